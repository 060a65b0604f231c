"""Spark's model with the product's reader of Kinesis: its planner, its tasks' ranges, its positions in the offset log."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.codec import CODEC
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce_spark.connectors.kinesis import records
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit
from tests.simulation.planned_spark import PlannedBatch, PlannedQuery
from tests.simulation.source import TOPIC
from tests.simulation.spark_errors import BatchTooLarge, PoisonRecord

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


class KinesisBatch(PlannedBatch):
    """A batch of ranges of shards, in tasks that may be handed what the planner has fetched."""

    codec = CODEC
    origin = TOPIC

    def _require_memory(self) -> None:
        world: KinesisWorld = self._world
        most, ranges = world.most_records, self._ranges.non_empty()
        count = sum(len(world.records_in(key, span) - world.stream.gone) for key, span in ranges.items())
        if most is not None and count > most:
            raise BatchTooLarge(f"java.lang.OutOfMemoryError: batch {self.number} has {count} records")

    def _read(self, key: Partition, offsets: OffsetRange) -> list[Hashable]:
        world: KinesisWorld = self._world
        parts = {part.shard: part for part in self._planned if isinstance(part, records.ShardRange)}
        part = parts[str(key.key)]
        users = records._users(
            world.place, part, offsets.from_offset, offsets.until_offset, lambda record, all_of: True
        )
        rows = [record_of(user.data) for user in users]
        failing = [place for place in world.poison if world.stream.record(*place) in rows]
        if world.poison_left and failing:
            world.poison_left -= 1
            world.journal.strike("poison")
            raise PoisonRecord(f"{failing[0][0]} fails its batch at {failing[0][1]}")
        return list(rows)


class KinesisQuery(PlannedQuery):
    """A query over shards."""

    batch_type = KinesisBatch

    def _reader_of_query(self) -> records.KinesisStreamReader:
        world: KinesisWorld = self._world
        limit = world.limit if self._growth.records is None else min(world.limit, self._growth.records)
        return records.KinesisStreamReader(world.place, BatchLimit(limit, 1 << 20))

    def _version(self) -> int:
        return int(self._world.stream.version)


def record_of(data: bytes) -> Hashable:
    """Return the record that a user record's data stands for."""
    life, shard, place = data.decode().split("/")
    return (life, int(shard), int(place))


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
