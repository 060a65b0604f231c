"""Kafka inside Spark. As a source: its records as DataFrames, and the ranges that tasks read."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from exactlyonce.api.format import OnTombstone
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.transform import Transform
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.kafka.codec import CODEC, KafkaCodec
from exactlyonce.connectors.kafka.properties import consumer_properties
from exactlyonce.connectors.kafka.reading import consumer_of
from exactlyonce.connectors.kafka.spec import DEFAULT_BATCH_OFFSETS, KafkaSource
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.kafka.rows import ALWAYS, COLUMNS
from exactlyonce_spark.connectors.kafka.sink import KafkaSinkConnector
from exactlyonce_spark.connectors.ports import PositionPart, RecordColumns
from exactlyonce_spark.target import TaskRange

_LETTERS = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
_VIEW = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
    "_headers": "headers",
}
_WITH_TIMESTAMP = ("timestamp", "malformed")
_NAME = re.compile(r"\b_(?:key|timestamp|headers)\b", re.IGNORECASE)


@dataclass(frozen=True)
class KafkaReader:
    """A `SourceReader` over topics, which holds no login: the processes that read take it from the mounted secret.

    `shipped` are the columns that tasks hand to Spark: each costs time for every record. `one_range_each`: each task reads one
    range, however small a batch is.
    """

    spec: KafkaSource
    interval: timedelta | None = None
    shipped: tuple[str, ...] = ALWAYS
    one_range_each: bool = False
    codec: KafkaCodec = CODEC

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names that the view `source` may have of Kafka."""
        return tuple(_VIEW)

    @property
    def position_columns(self) -> Mapping[str, PositionPart]:
        """Topic, partition and offset."""
        return {"_topic": PositionPart.ORIGIN, "_partition": PositionPart.PARTITION, "_offset": PositionPart.POSITION}

    @property
    def names_before_reading(self) -> bool:
        """A partition that appears is named at its first record, and read from the next batch on."""
        return True

    def columns(self, records: Any) -> RecordColumns:
        """Return the columns of Kafka's records, as far as they were shipped."""
        return RecordColumns(
            {name: column for name, column in _VIEW.items() if column in records.columns},
            "_key",
            "concat(' in topic ', _topic, ' partition ', _partition, ' offset ', _offset)",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "key",
            malformed="malformed" if "malformed" in records.columns else None,
        )

    def stream(self, session: Any, partitions: int, most: int | None) -> Any:
        """Return the streaming DataFrame of the records.

        The start is never asked for: every checkpoint is seeded. A partition that appears later is read from its start.
        """
        asked = self._limit(partitions)
        options = self._options(self.shipped) | {"most": str(asked if most is None else min(asked, most))}
        options |= {"one_range_each": "true"} if self.one_range_each else {}
        return session.readStream.format(_registered(session)).options(**options).load()

    def batch(self, session: Any, ranges: Ranges) -> Any:
        """Return the records of exactly these ranges, with all columns."""
        columns = tuple(name for name in COLUMNS if name in self.shipped or name not in ("headers", "malformed"))
        options = self._options(columns) | {"ranges": ranges.to_json()}
        return session.read.format(_registered(session)).options(**options).load()

    def letters(self, session: Any, letters: Sequence[RecordedLetter]) -> Any:
        """Return the records that the letters are of; headers are not kept, so a transform that names them does not resolve."""
        rows = [
            (it.row.partition.origin, it.row.partition.key, it.row.position, it.timestamp, it.record_key, it.value)
            for it in letters
        ]
        return session.createDataFrame(rows, _LETTERS)

    def task_ranges(self, input_partitions: Iterable[Any]) -> Iterator[tuple[TaskRange, ...]]:
        """Return the ranges that each input partition has brought to Spark, as the reader has made it."""
        for partition in input_partitions:
            ranges = Ranges.from_json(pickle.loads(partition.pickedPartition()).ranges)  # noqa: S301 - of our own reader
            yield tuple(TaskRange(key, span) for key, span in ranges.items())

    def _options(self, columns: tuple[str, ...]) -> dict[str, str]:
        from exactlyonce_spark.connectors.kafka.records import Place

        return Place(self.spec, columns).options()

    def _limit(self, partitions: int) -> int:
        kafka = self.spec
        if kafka.max_rate_per_partition is not None:
            assert self.interval is not None, "the resource's rules ask for an interval"
            return max(1, math.floor(kafka.max_rate_per_partition * self.interval.total_seconds() * partitions))
        return kafka.max_offsets_per_trigger or DEFAULT_BATCH_OFFSETS


def _registered(session: Any) -> str:
    from exactlyonce_spark.connectors.kafka.records import FORMAT, KafkaData

    session.dataSource.register(KafkaData)
    return FORMAT


class KafkaConnector:
    """Kafka."""

    def reader(self, spec: StreamSpec, secrets: Secrets) -> KafkaReader:
        """Return the reader of a stream; what no client can be made of is told here, and not by Spark."""
        kafka = spec.source.spec
        assert isinstance(kafka, KafkaSource), "the registry gives each connector its own spec"
        consumer_of(consumer_properties(kafka, secrets(kafka.secret_ref))).close()
        deletes = spec.source.format.on_tombstone is OnTombstone.DELETE
        by_partition = spec.sink.spec.commit is Commit.PARTITION
        return KafkaReader(
            kafka, spec.trigger.interval, shipped(spec.transform, with_key=deletes), deletes or by_partition
        )

    def load_classes(self, session: Any) -> None:
        """Load nothing: the reader is written in Python."""


def shipped(transform: Transform | None, *, with_key: bool) -> tuple[str, ...]:
    """Return the columns that a stream may use: by the names in its SQL; all of them where it is written in Python.

    A `*` takes all but the headers, which only a stream that names them has.
    """
    if transform is None:
        named = set()
    elif transform.sql is None:
        named = {"_key", "_timestamp", "_headers"}
    else:
        named = {name.lower() for name in _NAME.findall(transform.sql)}
        named |= {"_key", "_timestamp"} if "*" in transform.sql else set()
    wanted = {
        *ALWAYS,
        *({"key"} if with_key or "_key" in named else ()),
        *(_WITH_TIMESTAMP if "_timestamp" in named else ()),
        *({"headers"} if "_headers" in named else ()),
    }
    return tuple(name for name in COLUMNS if name in wanted)


SOURCE = KafkaConnector()
SINK = KafkaSinkConnector()
