"""SIGKILL at every named point of a batch's path: ids are counted, and the verdict says what was seen.

Append in each of its three ways; with EVERY_MODE=1, which `make test-full` sets, Upsert, Merge, AtLeastOnce and AtMostOnce too.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from exactlyonce.reconcile.loop import Done
from tests.combinations import EVERY_MODE, one_or_all
from tests.rig import Rig

in_every_write = pytest.mark.parametrize("write", one_or_all(["Append", "Upsert", "Merge"]))
in_every_mode_only = pytest.mark.skipif(not EVERY_MODE, reason="takes minutes: EVERY_MODE=1, or make test-full")

BEFORE_ANY_BATCH = ("driver.claimed", "driver.session-started")
BEFORE_LANDING = ("batch.planned", "batch.begun", "batch.rows-written", "batch.source-checked")
LANDING = ("land.fenced", "land.rows-moved", "land.positions-advanced", "land.before-commit")

SMALL, LARGE = 400, 2400
"""Records a batch: below and above what the driver writes by itself."""


def crashes(points: tuple[str, ...], how: str = "kill-driver") -> str:
    """Crash at each point, each in a batch of its own; points before any batch in the first attempts."""
    numbered = [f"{point}@{batch}={how}" for batch, point in enumerate(points, 1)]
    return " ".join([*(f"{point}={how}" for point in BEFORE_ANY_BATCH), *numbered])


def kinds_after(rig: Rig) -> list[str]:
    """The verdicts that followed the crashes inside batches."""
    return rig.verdicts()[len(BEFORE_ANY_BATCH) + 1 :]


def write_as(rig: Rig, write: str) -> None:
    """Let the stream write by id; a record that takes effect twice shows in the sum of a Merge."""
    if write == "Append":
        return
    rig.sql("alter table orders add primary key (id)")
    sink = {**rig.document()["spec"]["sink"]["postgres"], "write": write, "keys": ["id"]}
    if write == "Merge":
        sink["merge"] = {"amount": "Sum"}
        rig.overrides["spec.transform"] = {"sql": "SELECT id, amount FROM source"}
    rig.overrides["spec.sink.postgres"] = sink


def assert_landed_once(rig: Rig, write: str) -> None:
    rig.assert_exactly_once()
    if write == "Merge":
        once = {number: Decimal(f"{number % 1000}.{number % 100:02d}") for number in rig.produced}
        assert dict(rig.sql("select id, amount from orders")) == once


def produce_batches(rig: Rig, count: int, size: int) -> None:
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = size
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 50
    rig.produce(count * size)


@in_every_write
@pytest.mark.timeout(1200)
def test_a_small_batch_that_the_driver_writes(rig: Rig, write: str) -> None:
    write_as(rig, write)
    points = (*BEFORE_LANDING, *LANDING, "batch.landed")
    produce_batches(rig, len(points) + 2, SMALL)
    rig.run(crash=f"{crashes(points)} task.copying=kill-driver", seconds=900)
    assert_landed_once(rig, write)
    replays = len(BEFORE_LANDING) + len(LANDING) + 1
    assert sorted(kinds_after(rig)) == sorted(["ReplayBatch"] * replays + ["SkipLanded"])


@in_every_write
@pytest.mark.timeout(1200)
def test_a_batch_that_is_staged(rig: Rig, write: str) -> None:
    write_as(rig, write)
    points = ("task.started", "task.copying", "task.committed", *BEFORE_LANDING, *LANDING, "batch.landed")
    produce_batches(rig, len(points) + 2, LARGE)
    rig.run(crash=crashes(points), seconds=900)
    assert_landed_once(rig, write)
    assert kinds_after(rig) == ["ReplayBatch"] * (len(points) - 1) + ["SkipLanded"]


@in_every_write
@pytest.mark.timeout(1200)
def test_a_batch_that_lands_by_partition(rig: Rig, write: str) -> None:
    write_as(rig, write)
    points = (
        "batch.planned", "batch.begun", "task.started", "task.fenced", "task.advanced", "task.before-commit",
        "task.committed", "batch.rows-written", "land.fenced", "land.before-commit", "batch.landed",
    )  # fmt: skip
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    produce_batches(rig, len(points) + 2, LARGE)
    rig.run(crash=f"{crashes(points)} task.copying=kill-driver", seconds=900)
    assert_landed_once(rig, write)
    kinds = kinds_after(rig)
    assert set(kinds) == {"ReplayBatch", "FinishBatch", "SkipLanded"}
    assert kinds[-1] == "SkipLanded"


OF_A_TASK = ("task.started", "task.fenced", "task.before-commit", "task.committed")
COPYING = "task.copying=kill-driver"
"""A task that writes to the table itself does not know there which batch it is of: that is the first one."""


def batch_of(number: int) -> int:
    """The batch that an id is in: Spark's limit takes as many of each partition, and they are even."""
    return number // LARGE + 1


@in_every_mode_only
@pytest.mark.timeout(1200)
def test_at_least_once_loses_nothing_and_doubles_at_most_a_batch_a_crash(rig: Rig) -> None:
    unwritten = ("batch.planned", "batch.begun")
    points = (*unwritten, *OF_A_TASK, "batch.rows-written", "batch.source-checked", *LANDING, "batch.landed")
    rig.overrides["spec.delivery"] = "AtLeastOnce"
    produce_batches(rig, len(points) + 2, LARGE)
    assert rig.run(crash=f"{crashes(points)} {COPYING}", seconds=900) == Done(completed=True), rig.story()
    found = rig.counts()
    assert sorted(found) == sorted(rig.produced)
    assert set(found.values()) <= {1, 2}
    doubled = {batch_of(number) for number, count in found.items() if count > 1}
    # The last point is behind the landing: that batch is recognised.
    assert doubled <= {1, *range(len(unwritten) + 1, len(points))}
    assert kinds_after(rig) == ["ReplayBatch"] * len(points) + ["SkipLanded"]


@in_every_mode_only
@pytest.mark.timeout(1200)
def test_at_most_once_doubles_nothing_and_loses_at_most_a_batch_a_crash(rig: Rig) -> None:
    unlanded = ("batch.planned", "batch.begun", *LANDING)
    points = (*unlanded, "batch.landed", *OF_A_TASK, "batch.rows-written")
    rig.overrides["spec.delivery"] = "AtMostOnce"
    produce_batches(rig, len(points) + 2, LARGE)
    assert rig.run(crash=f"{crashes(points)} {COPYING}", seconds=900) == Done(completed=True), rig.story()
    found = rig.counts()
    assert set(found.values()) == {1}
    told = {batch for (batch,) in rig.sql("select distinct batch from exactlyonce.failures where status = 'Lost'")}
    written = range(len(unlanded) + 1, len(points) + 1)
    assert told == {1, *written}, "these had landed and were not yet written"
    assert {batch_of(number) for number in rig.produced if number not in found} <= told
    expected = ["ReplayBatch"] * len(unlanded) + ["SkipLanded"] * (len(written) + 1)
    assert sorted(kinds_after(rig)) == expected


@pytest.mark.parametrize("point", ["task.copying", "task.committed"])
def test_a_worker_that_dies_is_replaced_and_what_it_staged_does_not_count(rig: Rig, point: str) -> None:
    produce_batches(rig, 2, LARGE)
    rig.run(crash=f"{point}@1=kill {point}@2=kill")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart"], "Spark ran the task again; no driver had to be started"


@pytest.mark.parametrize("point", ["task.advanced", "task.before-commit", "task.committed"])
def test_a_worker_that_dies_around_its_commit_lands_its_partition_once(rig: Rig, point: str) -> None:
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    produce_batches(rig, 2, LARGE)
    rig.run(crash=f"{point}@1=kill {point}@2=kill")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart"]
