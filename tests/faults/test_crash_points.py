"""SIGKILL at every named point of a batch's path, in each mode: ids are counted, and the verdict says what was seen."""

from __future__ import annotations

import pytest

from tests.rig import Rig

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


def produce_batches(rig: Rig, count: int, size: int) -> None:
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = size
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 50
    rig.produce(count * size)


def test_a_small_batch_that_the_driver_writes(rig: Rig) -> None:
    points = (*BEFORE_LANDING, *LANDING, "batch.landed")
    produce_batches(rig, len(points) + 2, SMALL)
    rig.run(crash=f"{crashes(points)} task.copying=kill-driver", seconds=400)
    rig.assert_exactly_once()
    replays = len(BEFORE_LANDING) + len(LANDING) + 1
    assert sorted(kinds_after(rig)) == sorted(["ReplayBatch"] * replays + ["SkipLanded"])


def test_a_batch_that_is_staged(rig: Rig) -> None:
    points = ("task.started", "task.copying", "task.committed", *BEFORE_LANDING, *LANDING, "batch.landed")
    produce_batches(rig, len(points) + 2, LARGE)
    rig.run(crash=crashes(points), seconds=500)
    rig.assert_exactly_once()
    assert kinds_after(rig) == ["ReplayBatch"] * (len(points) - 1) + ["SkipLanded"]


def test_a_batch_that_lands_by_partition(rig: Rig) -> None:
    points = (
        "batch.planned", "batch.begun", "task.started", "task.fenced", "task.advanced", "task.before-commit",
        "task.committed", "batch.rows-written", "land.fenced", "land.before-commit", "batch.landed",
    )  # fmt: skip
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    produce_batches(rig, len(points) + 2, LARGE)
    rig.run(crash=f"{crashes(points)} task.copying=kill-driver", seconds=500)
    rig.assert_exactly_once()
    kinds = kinds_after(rig)
    assert set(kinds) == {"ReplayBatch", "FinishBatch", "SkipLanded"}
    assert kinds[-1] == "SkipLanded"


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
