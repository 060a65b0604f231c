"""Delivery and commit may be changed while a stream is suspended, whatever its last driver left behind.

Every pair of settings, with the first driver killed at every point of its batch: the stream always continues, and the records
take effect as the weaker of the two settings promises. The loop, the decision and the batch loop are the product's own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.checkpoint import files
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions, Ranges
from exactlyonce_spark import crash_points, tasks
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.spark_port import ExecutedPlan
from exactlyonce_spark.target import DeadLetter, TaskRange
from tests.simulation.target import MemoryTarget
from tests.unit.passes import STREAM, Died, Machine

RECORDS = 3
"""A partition, each time."""


@dataclass(frozen=True)
class Mode:
    """One of the settings that a resource may have."""

    delivery: Delivery
    commit: Commit = Commit.BATCH

    def __str__(self) -> str:
        return f"{self.delivery}, {self.commit}"

    def request(self, machine: Machine) -> None:
        """Change the resource."""
        sink = {"secretRef": {"name": "warehouse"}, "table": "orders", "commit": str(self.commit)}
        machine.spec = {**machine.spec, "delivery": str(self.delivery), "sink": {"postgres": sink}}


MODES = [
    Mode(Delivery.EXACTLY_ONCE),
    Mode(Delivery.EXACTLY_ONCE, Commit.PARTITION),
    Mode(Delivery.AT_LEAST_ONCE),
    Mode(Delivery.AT_MOST_ONCE),
]


class Batch:
    """A `SparkBatch` whose tasks read a partition each, one after the other."""

    def __init__(self, machine: Machine, number: BatchNumber, ranges: Ranges, epoch: Epoch) -> None:
        self._machine = machine
        self._tools = tasks.TaskTools(machine.ledger, MemoryTarget(machine.database, epoch), machine.topic)
        self._ranges = ranges
        self.number = number

    def plan(self) -> ExecutedPlan:
        parts = tuple(TaskRange(key, offsets) for key, offsets in self._ranges.non_empty().items())
        return ExecutedPlan(self._ranges, parts, stateful=False)

    def collect(self) -> Sequence[Hashable] | None:
        return [row for key, span in self._ranges.items() for row in self._machine.topic.read(key, span)]

    def pieces(self) -> Any:
        raise AssertionError("no driver of these prepares rows piece by piece")

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        parts = enumerate(self._ranges.non_empty().items())
        return [
            job.run(self._tools, tasks.TaskPlace(place, 0), self._machine.topic.read(key, span))
            for place, (key, span) in parts
        ]

    def unread(self) -> Sequence[Hashable] | None:
        return self.collect()

    def run_without_rows(self) -> None:
        raise AssertionError("the query keeps no state")

    def records_read(self) -> int | None:
        return None

    def malformed(self, ranges: Ranges, *, before_run: bool) -> Sequence[DeadLetter]:
        return ()


def drive(machine: Machine, attempt: Epoch, mode: Mode) -> None:
    """Be the driver of an attempt until all that the topic holds has landed: Spark's logs, and the product's batch loop."""
    permit, row = claim_epoch(machine.ledger, STREAM, attempt, f"claim {attempt}", machine.drivers.ticket(attempt))
    assert row.checkpoint_path is not None
    folder = row.checkpoint_path.rsplit("/", 1)[-1]
    settings = BatchSettings(mode.delivery, mode.commit, small_batch_records=0)
    loop = BatchLoop(machine.ledger, permit, MemoryTarget(machine.database, attempt), machine.topic, settings)
    while True:
        planned, committed = (_latest(machine, f"{folder}/{log}/") for log in ("offsets", "commits"))
        number = planned if committed < planned else planned + 1
        if number > planned:
            end = Positions(machine.topic.ends)
            if end == _end(machine, folder, planned):
                return
            machine.store.files[f"{folder}/offsets/{number}"] = files.render_offsets(CODEC.render_entry(end), 8)
        end = _end(machine, folder, number)
        start = end if number == 0 else _end(machine, folder, number - 1)
        loop.run(Batch(machine, BatchNumber(number), start.ranges_until(end), attempt))
        machine.store.files[f"{folder}/commits/{number}"] = files.render_commit()


def _latest(machine: Machine, log: str) -> int:
    return max((int(path.removeprefix(log)) for path in machine.store.files if path.startswith(log)), default=-1)


def _end(machine: Machine, folder: str, number: int) -> Positions:
    text = machine.store.files[f"{folder}/offsets/{number}"].decode().split("\n")[2]
    return Positions.from_json(text)


@contextmanager
def watched(watcher: Callable[[str], None]) -> Iterator[None]:
    crash_points.watch(watcher)
    try:
        yield
    finally:
        crash_points.watch(lambda point: None)


def points_of(mode: Mode) -> list[str]:
    """Every point that a batch of this mode passes, in order."""
    passed: list[str] = []
    machine = Machine()
    mode.request(machine)
    machine.topic.ends = dict.fromkeys(machine.topic.ends, RECORDS)
    attempt = machine.run_until_a_driver_runs()
    with watched(passed.append):
        drive(machine, attempt, mode)
    return passed[passed.index("batch.planned", 1) :]  # the seeded batch 0 is run and recognised first


def killed_at(mode: Mode, place: int) -> Machine:
    """Return a stream whose driver was killed at a point of its first batch, as counted by `points_of`."""
    machine = Machine()
    mode.request(machine)
    machine.topic.ends = dict.fromkeys(machine.topic.ends, RECORDS)
    attempt = machine.run_until_a_driver_runs()
    passed: list[str] = []

    def die(point: str) -> None:
        passed.append(point)
        if "batch.planned" in passed[1:] and len(passed[passed.index("batch.planned", 1) :]) == place + 1:
            raise Died(point)

    with watched(die), pytest.raises(Died):
        drive(machine, attempt, mode)
    machine.end(attempt)
    machine.run_pass()
    machine.reports.clear()
    return machine


def lost(machine: Machine) -> set[Hashable]:
    """The records that the ledger says may be lost."""
    rows = [row for row in machine.database.tables.rows.values() if isinstance(row, FailureRow)]
    return {
        (machine.topic.topic_id, row.partition.key, offset)
        for row in rows
        if row.status is FailureStatus.LOST
        for offset in range(row.from_offset, row.until_offset)
    }


def assert_kept(machine: Machine, before: Mode, after: Mode, told: str) -> None:
    """Count every record: what is lost is told, and what is doubled was allowed to be."""
    deliveries = {before.delivery, after.delivery}
    given_up = lost(machine)
    for key, end in machine.topic.ends.items():
        for offset in range(end):
            record = (machine.topic.topic_id, key.key, offset)
            count = machine.database.tables.target[record]
            assert count >= 1 or (record in given_up and Delivery.AT_MOST_ONCE in deliveries), (
                f"{told}: {record} is lost"
            )
            assert count <= 1 or Delivery.AT_LEAST_ONCE in deliveries, f"{told}: {record} is there {count} times"


PLACES = [(mode, place, point) for mode in MODES for place, point in enumerate(points_of(mode))]


@pytest.mark.parametrize("after", MODES, ids=str)
@pytest.mark.parametrize(
    ("before", "place"), [pytest.param(mode, place, id=f"{mode}, {place} {point}") for mode, place, point in PLACES]
)
def test_a_stream_goes_on_with_other_settings_wherever_its_driver_was_killed(
    before: Mode, place: int, after: Mode
) -> None:
    machine = killed_at(before, place)
    after.request(machine)
    attempt = machine.run_until_a_driver_runs()
    told = f"{[kind for kind, _ in machine.reports]}"
    drive(machine, attempt, after)
    assert machine.view().landed.positions == Positions(machine.topic.ends), told
    machine.topic.ends = {key: end + RECORDS for key, end in machine.topic.ends.items()}
    drive_on = machine.view().stream.epoch
    assert drive_on == attempt
    machine.end(attempt)
    machine.run_pass()
    second = machine.run_until_a_driver_runs()
    drive(machine, second, after)
    assert machine.view().landed.positions == Positions(machine.topic.ends), told
    assert_kept(machine, before, after, told)
