"""Kafka inside Spark. As a source: its records as DataFrames, and the ranges that tasks read."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from exactlyonce.api.format import Format, OnTombstone
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
from exactlyonce_spark.connectors.kafka.rows import ALWAYS, COLUMNS, schema_text
from exactlyonce_spark.connectors.kafka.sink import KafkaSinkConnector
from exactlyonce_spark.connectors.ports import PositionPart, RecordColumns, Spot
from exactlyonce_spark.decode.records import MALFORMED, VALUE, Records, as_option, record_decoder
from exactlyonce_spark.decode.unread import LeftOut
from exactlyonce_spark.target import TaskRange

_OF_LETTERS = (*ALWAYS, "timestamp", "key")
_VIEW = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
    "_headers": "headers",
}
_NAME = re.compile(r"\b_(?:key|timestamp|headers)\b", re.IGNORECASE)


@dataclass(frozen=True)
class KafkaReader:
    """A `SourceReader` over topics, which holds no login: the processes that read take it from the mounted secret.

    `shipped` are the columns that tasks hand to Spark: each costs time for every record. `one_range_each`: each task reads one
    range, however small a batch is.
    """

    spec: KafkaSource
    format: Format
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
            "concat(' in topic ', _topic, ' partition ', _partition, ' offset ', _offset)",
            "topic",
            "partition",
            "offset",
        )

    def stream(self, session: Any, partitions: int, most: int | None, left_out: Collection[Spot] = ()) -> Any:
        """Return the streaming DataFrame of the records.

        The start is never asked for: every checkpoint is seeded. A partition that appears later is read from its start.
        """
        asked = self._limit(partitions)
        options = self._options(left_out) | {"most": str(asked if most is None else min(asked, most))}
        options |= {"one_range_each": "true"} if self.one_range_each else {}
        return session.readStream.format(_registered(session)).options(**options).load()

    def batch(self, session: Any, ranges: Ranges, left_out: Collection[Spot] = ()) -> Any:
        """Return the records of exactly these ranges."""
        options = self._options(left_out) | {"ranges": ranges.to_json()}
        return session.read.format(_registered(session)).options(**options).load()

    def letters(self, session: Any, letters: Sequence[RecordedLetter]) -> Any:
        """Return the records that the letters are of; headers are not kept, so a transform that names them does not resolve."""
        decoder = record_decoder(as_option(self.format))
        of_letters: dict[str, list[Any]] = {
            "topic": [it.row.partition.origin for it in letters],
            "partition": [it.row.partition.key for it in letters],
            "offset": [it.row.position for it in letters],
            "timestamp": [it.timestamp for it in letters],
            "key": [it.record_key for it in letters],
        }
        read = Records(
            pa.array([it.value for it in letters], pa.binary()), of_letters["key"].__getitem__, lambda _place: None
        )
        arrays = [pa.array(of_letters[name], COLUMNS[name][1]) for name in _OF_LETTERS]
        table = pa.Table.from_arrays([*arrays, *decoder.decode(read)], names=[*_OF_LETTERS, VALUE, MALFORMED])
        return session.createDataFrame(table, schema_text(_OF_LETTERS, decoder.ddl))

    def task_ranges(self, input_partitions: Iterable[Any]) -> Iterator[tuple[TaskRange, ...]]:
        """Return the ranges that each input partition has brought to Spark, as the reader has made it."""
        for partition in input_partitions:
            ranges = Ranges.from_json(pickle.loads(partition.pickedPartition()).ranges)  # noqa: S301 - of our own reader
            yield tuple(TaskRange(key, span) for key, span in ranges.items())

    def _options(self, left_out: Collection[Spot]) -> dict[str, str]:
        from exactlyonce_spark.connectors.kafka.records import Place

        return Place(self.spec, self.shipped, as_option(self.format), LeftOut(tuple(left_out))).options()

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

    def reader(self, spec: StreamSpec, secrets: Secrets, life: str) -> KafkaReader:
        """Return the reader of a stream; what no client can be made of is told here, and not by Spark."""
        kafka = spec.source.spec
        assert isinstance(kafka, KafkaSource), "the registry gives each connector its own spec"
        consumer_of(consumer_properties(kafka, secrets(kafka.secret_ref))).close()
        deletes = spec.source.format.on_tombstone is OnTombstone.DELETE
        by_partition = spec.sink.spec.commit is Commit.PARTITION
        return KafkaReader(
            kafka, spec.source.format, spec.trigger.interval, shipped(spec.transform), deletes or by_partition
        )

    def load_classes(self, session: Any) -> None:
        """Load nothing: the reader is written in Python."""


def shipped(transform: Transform | None) -> tuple[str, ...]:
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
        *({"key"} if "_key" in named else ()),
        *({"timestamp"} if "_timestamp" in named else ()),
        *({"headers"} if "_headers" in named else ()),
    }
    return tuple(name for name in COLUMNS if name in wanted)


SOURCE = KafkaConnector()
SINK = KafkaSinkConnector()
