"""SIGKILL at every named point of a batch's path: ids are counted, and the verdict says what was seen.

Append in each of its three ways: staged at every point on its path, the other two where their paths differ from that one.
With EVERY_MODE=1, which `make test-full` sets, every point in each way, and Upsert, Merge, AtLeastOnce and AtMostOnce too.
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
"""Records per batch: below and above what the driver writes by itself."""


def crashes(points: tuple[str, ...], before: tuple[str, ...] = BEFORE_ANY_BATCH) -> str:
    """Kill the driver at each point, each in a batch of its own; at those before any batch in the first attempts."""
    numbered = [f"{point}@{batch}=kill-driver" for batch, point in enumerate(points, 1)]
    return " ".join([*(f"{point}=kill-driver" for point in before), *numbered])


def kinds_after(rig: Rig, before: tuple[str, ...] = BEFORE_ANY_BATCH) -> list[str]:
    """The verdicts that followed the crashes inside batches."""
    return rig.verdicts()[len(before) + 1 :]


def write_as(rig: Rig, write: str) -> None:
    """Let the stream write by id; a record that takes effect twice shows in the sum of a Merge."""
    if write == "Append":
        return
    rig.sql("alter table orders add primary key (id)")
    sink = {**rig.document()["spec"]["sink"]["postgres"], "write": write, "keys": ["id"]}
    if write == "Merge":
        sink["merge"] = [{"column": "amount", "combine": "Sum"}]
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
@pytest.mark.seconds(40)
@pytest.mark.timeout(1200)
def test_a_small_batch_that_the_driver_writes(rig: Rig, write: str) -> None:
    """The rows are copied in the transaction that lands them; what comes before is as in a batch that is staged."""
    write_as(rig, write)
    points = (*BEFORE_LANDING, *LANDING, "batch.landed") if EVERY_MODE else ("land.rows-moved", "batch.landed")
    before = BEFORE_ANY_BATCH if EVERY_MODE else ()
    produce_batches(rig, len(points) + 2, SMALL)
    rig.run(crash=f"{crashes(points, before)} task.copying=kill-driver", seconds=900)
    assert_landed_once(rig, write)
    assert sorted(kinds_after(rig, before)) == sorted(["ReplayBatch"] * len(points) + ["SkipLanded"])


@in_every_write
@pytest.mark.seconds(100)
@pytest.mark.timeout(1200)
def test_a_batch_that_is_staged(rig: Rig, write: str) -> None:
    write_as(rig, write)
    points = ("task.started", "task.copying", "task.committed", *BEFORE_LANDING, *LANDING, "batch.landed")
    produce_batches(rig, len(points) + 2, LARGE)
    rig.run(crash=crashes(points), seconds=900)
    assert_landed_once(rig, write)
    assert kinds_after(rig) == ["ReplayBatch"] * (len(points) - 1) + ["SkipLanded"]


@in_every_write
@pytest.mark.seconds(70)
@pytest.mark.timeout(1200)
def test_a_batch_that_lands_by_partition(rig: Rig, write: str) -> None:
    """Its tasks commit; what the driver does before and after them is as in a batch that is staged."""
    write_as(rig, write)
    points: tuple[str, ...] = (
        "batch.planned", "batch.begun", "task.started", "task.fenced", "task.advanced", "task.before-commit",
        "task.committed", "batch.rows-written", "land.fenced", "land.before-commit", "batch.landed",
    )  # fmt: skip
    before = BEFORE_ANY_BATCH if EVERY_MODE else ()
    if not EVERY_MODE:
        points = (
            "task.fenced", "task.advanced", "task.before-commit", "task.committed", "land.before-commit", "batch.landed",
        )  # fmt: skip
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    produce_batches(rig, len(points) + 2, LARGE)
    rig.run(crash=f"{crashes(points, before)} task.copying=kill-driver", seconds=900)
    assert_landed_once(rig, write)
    kinds = kinds_after(rig, before)
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


def test_a_worker_that_dies_is_replaced_and_what_it_staged_does_not_count(rig: Rig) -> None:
    produce_batches(rig, 4, LARGE)
    rig.run(crash="task.copying@1=kill task.committed@2=kill task.copying@3=kill task.committed@3=kill")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart"], "Spark ran the task again; no driver had to be started"
    assert len(list(rig.folder.glob("fired-*"))) == 4


def test_a_worker_that_dies_around_its_commit_lands_its_partition_once(rig: Rig) -> None:
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    produce_batches(rig, 4, LARGE)
    rig.run(crash="task.advanced@1=kill task.before-commit@2=kill task.committed@3=kill")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart"]
    assert len(list(rig.folder.glob("fired-*"))) == 3
