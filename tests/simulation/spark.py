"""A model of Spark's micro-batch execution: its logs, its restart, its tasks.

It does what the restart table of docs/checkpoint-states.md says Spark 4.2.0 does, the harmful rows included. The batch
itself is landed by the product's own `BatchLoop` and task jobs.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from exactlyonce.checkpoint.files import parse_kafka_start
from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, LogStore
from exactlyonce.errors import OutcomeUnknown, Unreachable
from exactlyonce.offsets import BatchNumber, MalformedPositions, OffsetRange, Positions, Ranges, TopicPartition
from exactlyonce_spark import tasks
from exactlyonce_spark.batch import BatchLoop, ExecutedPlan
from exactlyonce_spark.target import DeadLetter, TaskRange
from tests.simulation.scheduler import Actor, Process
from tests.simulation.state import State

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

TASK_TRIES = 4
STATE_CONF = {
    "spark.sql.streaming.stateStore.providerClass": "x.RocksDBStateStoreProvider",
}


class SparkFailed(Exception):
    """The query ended with an error."""


class TaskFailedLate(SparkFailed):
    """A task failed after its work was done."""


class TaskLost(SparkFailed):
    """The executor of a task was given up."""


class PoisonRecord(SparkFailed):
    """A batch fails on one of its records."""


class LogTaken(SparkFailed):
    """CONCURRENT_STREAM_LOG_UPDATE: another query writes into this checkpoint."""


class LogUnreadable(SparkFailed):
    """A log of the checkpoint lacks a file, or holds what cannot be."""


class OffsetChanged(SparkFailed):
    """The log ends before where the query stands."""


class PartitionsDiffer(SparkFailed):
    """Partitions of the checkpoint are gone from the source, or new ones do not start from 0."""


class Query:
    """One streaming query in one driver process, on one checkpoint directory."""

    def __init__(
        self,
        world: SimulatedWorld,
        process: Process,
        path: str,
        loop: BatchLoop,
        draining: Callable[[], bool],
        named: frozenset[str],
        delete_expired: Callable[[], object] = lambda: None,
    ) -> None:
        self._world = world
        self._named = named
        self._process = process
        self._folder = path.rsplit("/", 1)[-1]
        self._loop = loop
        self._draining = draining
        self._delete_expired = delete_expired
        self._store: LogStore = world.store
        self._state = State(self._store, self._folder, process.name)

    def run(self) -> None:
        """Run batches until the process is asked to drain; raises what ends a query with an error."""
        number, start, end = self._restart_point()
        while True:
            if end is None:
                end = self._wait_for_records(start, number)
                if end is None:
                    return
                self._write(f"offsets/{number}", self._offsets_file(end))
                if self._draining():
                    return  # planned, and asked to end before it was begun: the batch waits for the next driver
            state = self._state if self._world.stateful else None
            batch = Batch(self._world, self._process, number, start, end, self._folder, state)
            self._loop.run(batch)
            self._write(
                f"commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}' if state is None else state.commit(number)
            )
            self._expire()
            number, start, end = BatchNumber(number + 1), end, None

    def _expire(self) -> None:
        """Delete what the ledger no longer keeps; that it cannot be done now ends no driver."""
        with suppress(Unreachable, OutcomeUnknown):
            self._delete_expired()

    def _restart_point(self) -> tuple[BatchNumber, Positions, Positions | None]:
        """MicroBatchExecution.populateStartOffsets."""
        planned = self._numbers("offsets")
        committed = self._numbers("commits")
        if not planned:
            return (
                BatchNumber(0),
                self._earliest(),
                None,
            )
        latest = planned[-1]
        end = self._read_offsets(latest)
        if latest > 0 and latest - 1 not in planned:
            raise LogUnreadable(f"batch {latest - 1} doesn't exist")
        if committed and committed[-1] == latest:
            assert end is not None
            return BatchNumber(latest + 1), end, None
        start = self._read_offsets(latest - 1) if latest > 0 else None
        if start is None and latest == 0:
            start = self._kafka_start()
        if start is None:  # batch 0, or the batch after a void offset: nothing says where it started
            start = self._earliest()
        return BatchNumber(latest), start, end

    def _wait_for_records(self, start: Positions, number: BatchNumber) -> Positions | None:
        """Return the end of the next batch, once there is one to run; None when the process is to drain."""
        world = self._world
        topic = world.topic
        if self._is_empty_batch(number):
            return start
        while not self._draining() and self._next_end(start) == start:
            self._wait_at_most(100, lambda: self._draining() or self._next_end(start) != start)
            self._loop.check_still_valid()
        if self._next_end(start) == start or self._draining():
            return None
        if any(end < start.get(key, 0) for key, end in self._next_end(start).items()):
            raise OffsetChanged("an offset was changed: some data may have been missed")
        ends = self._ends()
        if any(key not in ends for key in start):
            raise PartitionsDiffer("partitions are gone")
        if any(topic.earliest(key) > 0 for key in ends if key not in start):
            raise PartitionsDiffer("added partitions do not start from 0")
        return self._next_end(start)

    def _wait_at_most(self, time: int, may_go: Callable[[], bool]) -> None:
        simulation = self._world.simulation
        timer = simulation.now + time
        simulation.wait("records", lambda: may_go() or simulation.now > timer)

    def _is_empty_batch(self, number: BatchNumber) -> bool:
        """A stateful query runs a batch without records after one with records; here every even one is such."""
        return self._world.stateful and number > 0 and number % 2 == 0

    def _next_end(self, start: Positions) -> Positions:
        limit = self._world.limit
        return Positions({key: min(end, start.get(key, 0) + limit) for key, end in self._ends().items()})

    def _ends(self) -> dict[TopicPartition, int]:
        """The ends of the partitions that the query subscribes to."""
        return {key: end for key, end in self._world.topic.ends.items() if key.topic in self._named}

    def _earliest(self) -> Positions:
        return Positions({key: self._world.topic.earliest(key) for key in self._ends()})

    def _offsets_file(self, end: Positions) -> bytes:
        conf = STATE_CONF if self._world.stateful else {}
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf})
        return f"v1\n{metadata}\n{end.to_json()}".encode()

    def _kafka_start(self) -> Positions | None:
        """KafkaSourceInitialOffsetWriter: where batch 0 starts, if it was written."""
        try:
            return parse_kafka_start(self._store.read(f"{self._folder}/sources/0/0"))
        except FileMissing:
            return None
        except ValueError as problem:
            raise LogUnreadable(f"sources/0/0: {problem}") from None

    def _write(self, name: str, content: bytes) -> None:
        path = f"{self._folder}/{name}"
        if self._world.foreign_writes:
            self._world.simulation.step(f"overwrite {path}")
            self._world.store.files[path] = content
            if "/offsets/" in path and self._world.strikes("foreign writes", 0.05):
                self._world.foreign_write()
            return
        if isinstance(self._store.create(path, content), AlreadyExists):
            raise LogTaken(f"CONCURRENT_STREAM_LOG_UPDATE on {path}")

    def _numbers(self, log: str) -> list[int]:
        names = [entry.name for entry in self._store.list(f"{self._folder}/{log}")]
        return sorted(int(name) for name in names if name.isdigit())

    def _read_offsets(self, number: int) -> Positions | None:
        try:
            text = self._store.read(f"{self._folder}/offsets/{number}").decode().split("\n")[2]
            return None if text == "-" else Positions.from_json(text)
        except (FileMissing, IndexError, MalformedPositions):
            raise LogUnreadable(f"offsets/{number} cannot be read") from None


class Batch:
    """A `SparkBatch` of the model; a task reads one Kafka range."""

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
        pieces = tuple(TaskRange(key, offsets) for key, offsets in self._ranges.non_empty().items())
        return ExecutedPlan(self._ranges, pieces, self._world.stateful)

    def collect(self) -> Sequence[Hashable] | None:
        """Read everything in the driver."""
        rows: list[Hashable] = []
        for key, offsets in self._ranges.non_empty().items():
            self._world.simulation.step(f"read {key}")
            rows += self._read(key, offsets)
        return rows + self._emitted()

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        """Run a task a range, each in an executor that may outlive the driver; failed tasks are tried again."""
        world = self._world
        executor = world.new_process(f"executor of {self._process.name}")
        sent = pickle.dumps(job)
        pieces = list(self._ranges.non_empty().items())
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

    def run_without_rows(self) -> None:
        """Run for the state's sake."""
        self._world.simulation.step("run without rows")
        self._emitted()

    def records_read(self) -> int | None:
        """The model does not count."""
        return None

    def malformed(self, ranges: Ranges, *, certain: bool) -> Sequence[DeadLetter]:
        """The model's records are all well-formed."""
        return ()

    def _task(
        self, job: Any, index: int, attempt: int, key: TopicPartition, offsets: OffsetRange
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

    def _read(self, key: TopicPartition, offsets: OffsetRange) -> list[Hashable]:
        """Read a range; a record that is poison fails the batch as often as it was drawn."""
        world = self._world
        partition, offset = world.poison or (None, -1)
        if world.poison_left and partition == key and offsets.from_offset <= offset < offsets.until_offset:
            world.poison_left -= 1
            world.journal.strike("poison")
            raise PoisonRecord(f"{key} at {offset} fails its batch")
        return list(world.topic.read(key, offsets))

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
