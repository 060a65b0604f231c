"""A micro-batch in the model of Spark: what it reads, its tasks and their tries, and the state that it keeps."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from exactlyonce.positions.ranges import BatchNumber, MalformedPositions, OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.left_out import FailingRecords
from exactlyonce_spark.spark_port import ExecutedPlan
from exactlyonce_spark.target import DeadLetter, TaskRange
from tests.simulation import poison
from tests.simulation.scheduler import Actor, Process
from tests.simulation.spark_errors import (
    BatchTooLarge,
    LogUnreadable,
    SparkFailed,
    TaskFailedLate,
    TaskLost,
)
from tests.simulation.state import State

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld


TASK_TRIES = 4


class Batch:
    """A `SparkBatch` of the model; a task reads one Kafka range. Of what is `left_out` its query makes no row."""

    left_out: tuple[FailingRecords, ...] = ()

    def __init__(
        self,
        world: SimulatedWorld,
        process: Process,
        number: BatchNumber,
        start: Positions,
        end: Positions,
        folder: str,
        state: State | None,
    ) -> None:
        self._world = world
        self._process = process
        self.number = number
        try:
            self._ranges = start.ranges_until(end)
        except MalformedPositions as problem:
            raise LogUnreadable(f"batch {number} goes backwards: {problem}") from None
        self._folder = folder
        self._state = state
        self._before = [] if state is None else state.load(number)

    def plan(self) -> ExecutedPlan:
        """Return the plan as it is in memory."""
        self._world.simulation.step("read the plan")
        self._world.note_planned(self._process, self._ranges)
        pieces = tuple(TaskRange(key, offsets) for key, offsets in self._world.tasks_of(self._process, self._ranges))
        return ExecutedPlan(self._ranges, pieces, self._world.stateful)

    def collect(self) -> Sequence[Hashable] | None:
        """Read everything in the driver."""
        self._require_memory()
        rows: list[Hashable] = []
        for key, offsets in self._ranges.non_empty().items():
            self._world.simulation.step(f"read {key}")
            rows += self._read(key, offsets)
        return rows + self._emitted()

    def pieces(self) -> Any:
        """Refuse."""
        raise AssertionError("no driver of these prepares rows piece by piece")

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        """Run a task a range, each in an executor that may outlive the driver; failed tasks are tried again."""
        self._require_memory()
        world = self._world
        executor = world.new_process(f"executor of {self._process.name}")
        sent = pickle.dumps(job)
        pieces = world.tasks_of(self._process, self._ranges)
        reports: list[tasks.TaskReport | None] = [None] * len(pieces)
        running: list[tuple[int, int, Actor]] = []

        def start(index: int, attempt: int) -> None:
            key, offsets = pieces[index]
            work = self._task(pickle.loads(sent), index, attempt, key, offsets)
            name = f"task {index}.{attempt} of batch {self.number} of {self._process.name}"
            running.append((index, attempt, world.simulation.spawn(executor, name, work)))
            world.running_tasks[self._process] = [actor for *_, actor in running]

        for index in range(len(pieces)):
            start(index, 0)
        while any(report is None for report in reports):
            world.simulation.wait(
                "tasks", lambda: any(actor.done or world.task_is_lost(actor) for *_, actor in running)
            )
            for entry in list(running):
                index, attempt, actor = entry
                if actor.done and actor.error is None and actor.result is not None:
                    running.remove(entry)
                    reports[index] = reports[index] or actor.result
                elif actor.done or world.task_is_lost(actor):
                    running.remove(entry)
                    if attempt + 1 >= TASK_TRIES:
                        cause = actor.error or TaskLost("its executor was given up")
                        raise SparkFailed(f"task {index} failed: {cause!r}") from cause
                    if reports[index] is None:
                        start(index, attempt + 1)
        if world.stateful:
            reports.append(self._emit_by_task(job))
        return [report for report in reports if report is not None]

    def unread(self) -> Callable[[], list[Hashable]]:
        """Return what reads the rows, for a sink that writes them itself."""

        def read() -> list[Hashable]:
            rows = self.collect()
            assert rows is not None, "the model's driver has room for every batch"
            return list(rows)

        return read

    def run_without_rows(self) -> None:
        """Run for the state's sake."""
        self._world.simulation.step("run without rows")
        self._emitted()

    def records_read(self) -> int | None:
        """The model does not count."""
        return None

    def malformed(self, ranges: Ranges, *, before_run: bool) -> Sequence[DeadLetter]:
        """Read the ranges once more, and return what is malformed of them."""
        if not self._world.keeps_letters:
            return ()
        self._world.simulation.step("read for malformed records")
        return letters_of(self._world, self._process, ranges)

    def _task(
        self, job: Any, index: int, attempt: int, key: Partition, offsets: OffsetRange
    ) -> Callable[[], tasks.TaskReport]:
        world = self._world

        def work() -> tasks.TaskReport:
            world.simulation.step(f"read {key} {offsets}")
            rows = self._read(key, offsets)
            report: tasks.TaskReport = job.run(world.task_tools(self._process), tasks.TaskPlace(index, attempt), rows)
            world.simulation.step("report")
            if world.task_fails_late():
                raise TaskFailedLate("the task failed after its work was done")
            return report

        return work

    def _require_memory(self) -> None:
        most = self._world.most_records
        if most is not None and self._ranges.record_count > most:
            raise BatchTooLarge(
                f"java.lang.OutOfMemoryError: batch {self.number} has {self._ranges.record_count} records"
            )

    def _read(self, key: Partition, offsets: OffsetRange) -> list[Hashable]:
        """Read a range but for what the query leaves out, and what is malformed."""
        records = poison.read(self._world, key, offsets, self.left_out)
        return [record for record in records if self._world.is_well_formed(self._process, record)]

    def _emitted(self) -> list[Hashable]:
        """Count what the batch reads, keep that as state, and return the row with the running total."""
        if self._state is None:
            return []
        read = [
            record
            for key, offsets in self._ranges.non_empty().items()
            for record in self._world.topic.read(key, offsets)
        ]
        counted = [*self._before, *read]
        self._state.save(self.number, counted)
        return [("emitted", self.number, len(counted), len(set(counted)))]

    def _emit_by_task(self, job: Any) -> tasks.TaskReport:
        place = tasks.TaskPlace(len(self._ranges.non_empty()), 0)
        copy: tasks.Job = pickle.loads(pickle.dumps(job))
        return copy.run(self._world.task_tools(self._process), place, self._emitted())


def letters_of(world: SimulatedWorld, process: Process, ranges: Ranges) -> list[DeadLetter]:
    """Return the malformed records of some ranges, as a process finds them."""
    return [
        DeadLetter(key, record[2], None, None, repr(record).encode(), "malformed")
        for key, offsets in ranges.non_empty().items()
        for record in world.topic.read(key, offsets)
        if not world.is_well_formed(process, record)
    ]
