"""A model of Spark's micro-batch execution: its logs, its restart, its tasks.

It does what the restart table of docs/checkpoint-states.md says Spark 4.2.0 does, the harmful rows included. The batch
itself is landed by the product's own `BatchLoop` and task jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from exactlyonce.checkpoint.files import FileTorn
from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, LogStore
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.errors import OutcomeUnknown, Unreachable
from exactlyonce.launch.port import ShrunkLimit
from exactlyonce.positions.ranges import BatchNumber, MalformedPositions, Partition, Positions
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.growth import Growth
from exactlyonce_spark.left_out import FailingRecords
from tests.simulation.scheduler import Process
from tests.simulation.spark_batch import Batch
from tests.simulation.spark_errors import LogTaken, LogUnreadable, OffsetChanged, PartitionsDiffer
from tests.simulation.state import State

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

STATE_CONF = {
    "spark.sql.streaming.stateStore.providerClass": "x.RocksDBStateStoreProvider",
}


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
        shrunk: ShrunkLimit | None = None,
    ) -> None:
        self._world = world
        self._growth = Growth(shrunk)
        self._named = named
        self._process = process
        self._folder = path.rsplit("/", 1)[-1]
        self._loop = loop
        self._draining = draining
        self._delete_expired = delete_expired
        self._store: LogStore = world.store
        self._state = State(self._store, self._folder, process.name)
        self.left_out: tuple[FailingRecords, ...] = ()

    def run(self) -> None:
        """Run batches until the process is asked to drain; raises what ends a query with an error."""
        if self._world.collects_generations:
            self._expire()
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
            self._loop.run(self._batch(number, start, end))
            self._growth.landed(self._loop.stands)
            if self._growth.due:
                self._grow()
            self._write(
                f"commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}' if state is None else state.commit(number)
            )
            self._expire()
            number, start, end = BatchNumber(number + 1), end, None

    def _batch(self, number: BatchNumber, start: Positions, end: Positions) -> Batch:
        state = self._state if self._world.stateful else None
        batch = Batch(self._world, self._process, number, start, end, self._folder, state)
        batch.left_out = self.left_out
        return batch

    def _grow(self) -> None:
        """The driver starts its query again, on the same checkpoint."""
        self._growth.grow()

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
        while not self._draining() and self._is_at_end(start):
            self._wait_at_most(100, lambda: self._draining() or not self._is_at_end(start))
            self._loop.check_still_valid()
        if self._is_at_end(start) or self._draining():
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

    def _is_at_end(self, start: Positions) -> bool:
        """Whether the next batch would end where it starts; asked at every step that a query waits."""
        ends = self._ends()
        if len(ends) != len(start):
            return False
        if self._growth.records is not None:
            return self._next_end(start) == start
        limit = self._world.limit
        for key, end in ends.items():
            first = start.get(key)
            if first is None or min(end, first + limit) != first:
                return False
        return True

    def _next_end(self, start: Positions) -> Positions:
        """Where the next batch ends: the resource's limit holds for each partition here, a smaller one for all together."""
        limit, left = self._world.limit, self._growth.records
        ends: dict[Partition, int] = {}
        for key, end in self._ends().items():
            first = start.get(key, 0)
            ends[key] = min(end, first + (limit if left is None else min(limit, left)))
            left = None if left is None else left - max(0, ends[key] - first)
        return Positions(ends)

    def _ends(self) -> dict[Partition, int]:
        """The ends of the partitions that the query subscribes to."""
        return {key: end for key, end in self._world.topic.ends.items() if key.origin in self._named}

    def _earliest(self) -> Positions:
        return Positions({key: self._world.topic.earliest(key) for key in self._ends()})

    def _offsets_file(self, end: Positions) -> bytes:
        conf = STATE_CONF if self._world.stateful else {}
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf})
        return f"v1\n{metadata}\n{self._entry(end)}".encode()

    def _entry(self, end: Positions) -> str:
        return end.to_json()

    def _parsed(self, entry: str) -> Positions:
        return Positions.from_json(entry)

    def _kafka_start(self) -> Positions | None:
        """KafkaSourceInitialOffsetWriter: where batch 0 starts, if it was written."""
        try:
            return CODEC.parse_start(self._store.read(f"{self._folder}/sources/0/0"))
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
            return None if text == "-" else self._parsed(text)
        except (FileMissing, IndexError, MalformedPositions, FileTorn):
            raise LogUnreadable(f"offsets/{number} cannot be read") from None
