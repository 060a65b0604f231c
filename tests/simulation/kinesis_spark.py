"""Spark's model with the product's reader of Kinesis: its planner, its tasks' ranges, its positions in the offset log."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.codec import CODEC
from exactlyonce.positions.ranges import BatchNumber, MalformedPositions, OffsetRange, Partition, Positions
from exactlyonce_spark.connectors.kinesis import records
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit
from exactlyonce_spark.plan import _ranges
from exactlyonce_spark.spark_port import ExecutedPlan
from tests.simulation.scheduler import Process
from tests.simulation.source import TOPIC
from tests.simulation.spark import Query
from tests.simulation.spark_batch import Batch
from tests.simulation.spark_errors import BatchTooLarge, LogUnreadable, PoisonRecord

if TYPE_CHECKING:
    from tests.simulation.kinesis_world import KinesisWorld


@dataclass(frozen=True)
class SimulatedPlace(records.Place):
    """The stream of a world: each task has a client of its own, as each has its own process."""

    connect: Callable[[], KinesisClient] = field(kw_only=True)

    def client(self) -> KinesisClient:
        """Return the client of a task."""
        return self.connect()

    lasting_client = client


class KinesisQuery(Query):
    """A query over shards."""

    _world: Any

    def _reader_of_query(self) -> records.KinesisStreamReader:
        world: KinesisWorld = self._world
        limit = world.limit if self._growth.records is None else min(world.limit, self._growth.records)
        return records.KinesisStreamReader(world.place, BatchLimit(limit, 1 << 20))

    def run(self) -> None:
        """Run batches; the planner lives as long as the query."""
        self._reader = self._reader_of_query()
        super().run()

    def _grow(self) -> None:
        super()._grow()
        self._reader = self._reader_of_query()

    def _batch(self, number: BatchNumber, start: Positions, end: Positions) -> Batch:
        try:
            return KinesisBatch(self._world, self._process, number, start, end, self._folder, self._reader)
        except MalformedPositions as problem:
            raise LogUnreadable(f"batch {number} goes backwards: {problem}") from None

    def _wait_for_records(self, start: Positions, number: BatchNumber) -> Positions | None:
        stream = self._world.stream
        if not start:
            raise LogUnreadable("the checkpoint was not seeded, so nothing names the shards")
        while not self._draining():
            end = _parsed(self._reader.latestOffset(_offsets(start), ReadAllAvailable()))
            if end != start:
                return end
            self._wait_at_most(50, partial(self._has_news, stream.version))
            self._loop.check_still_valid()
        return None

    def _has_news(self, version: int) -> bool:
        return self._draining() or bool(self._world.stream.version != version)

    def _earliest(self) -> Positions:
        """`initialOffset`: no shard."""
        return Positions({})

    def _kafka_start(self) -> Positions | None:
        return None

    def _entry(self, end: Positions) -> str:
        return CODEC.render_entry(end)

    def _parsed(self, entry: str) -> Positions:
        return CODEC.parse_entry(entry)


class KinesisBatch(Batch):
    """A batch whose ranges are those that Spark's reader plans, in tasks that may be handed what the planner has fetched."""

    _world: Any

    def __init__(
        self,
        world: Any,
        process: Process,
        number: BatchNumber,
        start: Positions,
        end: Positions,
        folder: str,
        reader: records.KinesisStreamReader,
    ) -> None:
        self._world = world
        self._process = process
        self.number = number
        self._ranges = _ranges(start, end, ())
        self._folder = folder
        self._state = None
        self._before = []
        parts = reader.partitions(_offsets(start), _offsets(end)) if end else ()
        self._parts = {part.shard: part for part in parts if isinstance(part, records.ShardRange)}

    def plan(self) -> ExecutedPlan:
        """Return the plan as it is in memory: Spark does not show what a task of a source in Python reads."""
        self._world.simulation.step("read the plan")
        return ExecutedPlan(self._ranges, None, False)

    def records_read(self) -> int | None:
        """The model does not count."""
        return None

    def _require_memory(self) -> None:
        world: KinesisWorld = self._world
        most, ranges = world.most_records, self._ranges.non_empty()
        count = sum(len(world.records_in(key, span) - world.stream.gone) for key, span in ranges.items())
        if most is not None and count > most:
            raise BatchTooLarge(f"java.lang.OutOfMemoryError: batch {self.number} has {count} records")

    def _read(self, key: Partition, offsets: OffsetRange) -> list[Hashable]:
        world: KinesisWorld = self._world
        part = self._parts[str(key.key)]
        users = records._users(
            world.place, part, offsets.from_offset, offsets.until_offset, lambda record, all_of: True
        )
        rows = [_record(user.data) for user in users]
        poison = world.poison
        if poison is not None and world.poison_left and world.stream.record(*poison) in rows:
            world.poison_left -= 1
            world.journal.strike("poison")
            raise PoisonRecord(f"{poison[0]} fails its batch at {poison[1]}")
        return list(rows)


def _record(data: bytes) -> Hashable:
    life, shard, place = data.decode().split("/")
    return (life, int(shard), int(place))


def _offsets(positions: Positions) -> records.Offsets:
    found: records.Offsets = json.loads(CODEC.render_entry(positions))
    return found or {TOPIC: {}}


def _parsed(offsets: Any) -> Positions:
    return CODEC.parse_entry(json.dumps(offsets))


def in_line(ask: Callable[[Any], Any], asked: Sequence[Any]) -> Any:
    """Ask one after the other: greenlets of a world are of one thread."""
    return [ask(one) for one in asked]


class InLine:
    """A pool of threads that has none."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what a pool takes."""

    map = staticmethod(in_line)

    def shutdown(self, **options: Any) -> None:
        """Nothing runs."""
