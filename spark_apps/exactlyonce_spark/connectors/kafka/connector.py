"""Kafka inside Spark. As a source: its records as DataFrames, and the ranges that Spark's tasks read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.transform import Transform
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.kafka.codec import CODEC, KafkaCodec
from exactlyonce.connectors.kafka.properties import java_properties
from exactlyonce.connectors.kafka.spec import DEFAULT_BATCH_OFFSETS, KafkaSource
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce.schema.name_pattern import for_java
from exactlyonce_spark.connectors.kafka.sink import KafkaSinkConnector
from exactlyonce_spark.connectors.ports import PositionPart, RecordColumns
from exactlyonce_spark.target import TaskRange

_NO_BROKER = "127.0.0.1:9"  # the discard port
_LETTERS = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
_VIEW = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
}


@dataclass(frozen=True)
class KafkaReader:
    """A `SourceReader` over Spark's own Kafka source. `with_headers`: headers cost time for every record."""

    spec: KafkaSource
    interval: timedelta | None
    secret: Mapping[str, str] = field(repr=False)
    with_headers: bool = False
    codec: KafkaCodec = CODEC

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names that the view `source` may have of Kafka."""
        return (*_VIEW, "_headers")

    @property
    def position_columns(self) -> Mapping[str, PositionPart]:
        """Topic, partition and offset."""
        return {"_topic": PositionPart.ORIGIN, "_partition": PositionPart.PARTITION, "_offset": PositionPart.POSITION}

    @property
    def names_before_reading(self) -> bool:
        """A new partition is read in the batch whose end names it first; its task says from where."""
        return False

    def columns(self, records: Any) -> RecordColumns:
        """Return the columns of Kafka's records; headers where they were read."""
        headers = {"_headers": "headers"} if "headers" in records.columns else {}
        return RecordColumns(
            {**_VIEW, **headers},
            "_key",
            "concat(' in topic ', _topic, ' partition ', _partition, ' offset ', _offset)",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "key",
        )

    def stream(self, session: Any, partitions: int, most: int | None) -> Any:
        """Return the streaming DataFrame of the records.

        The start is never asked for: every checkpoint is seeded. A partition that appears later is read from its start.
        """
        options = self._options(with_headers=self.with_headers) | self._selection()
        asked = self._limit(partitions)
        options["maxOffsetsPerTrigger"] = str(asked if most is None else min(asked, most))
        options["startingOffsets"] = "earliest"
        return session.readStream.format("kafka").options(**options).load()

    def batch(self, session: Any, ranges: Ranges) -> Any:
        """Return the records of exactly these ranges."""
        options = self._options(with_headers=self.with_headers)
        positions = ranges.non_empty()
        chosen: dict[str, list[int]] = {}
        for partition in positions:
            chosen.setdefault(partition.origin, []).append(int(partition.key))
        options["assign"] = json.dumps(chosen)
        options["startingOffsets"] = positions.starts.to_json()
        options["endingOffsets"] = positions.ends.to_json()
        return session.read.format("kafka").options(**options).load()

    def letters(self, session: Any, letters: Sequence[RecordedLetter]) -> Any:
        """Return the records that the letters are of; headers are not kept, so a transform that names them does not resolve."""
        rows = [
            (it.row.partition.origin, it.row.partition.key, it.row.position, it.timestamp, it.record_key, it.value)
            for it in letters
        ]
        return session.createDataFrame(rows, _LETTERS)

    def task_ranges(self, input_partitions: Iterable[Any]) -> Iterator[TaskRange]:
        """KafkaBatchInputPartition.offsetRange of every input partition."""
        for partition in input_partitions:
            span = partition.offsetRange()
            key = span.topicPartition()
            yield TaskRange(Partition(key.topic(), key.partition()), OffsetRange(span.fromOffset(), span.untilOffset()))

    def _options(self, *, with_headers: bool) -> dict[str, str]:
        options = {f"kafka.{key}": value for key, value in java_properties(self.spec, self.secret).items()}
        # Without it a batch that reaches the end of the log waits half a second for records that are not there.
        options.setdefault("kafka.fetch.max.wait.ms", "10")
        options["failOnDataLoss"] = "true"
        options["includeHeaders"] = str(with_headers).lower()
        return options

    def _selection(self) -> dict[str, str]:
        kafka = self.spec
        if kafka.topics is not None:
            return {"subscribe": ",".join(kafka.topics)}
        if kafka.topic_pattern is not None:
            return {"subscribePattern": for_java(kafka.topic_pattern)}
        assert kafka.assign is not None, "a source is one of the three"
        return {"assign": json.dumps({chosen.topic: list(chosen.partitions) for chosen in kafka.assign})}

    def _limit(self, partitions: int) -> int:
        kafka = self.spec
        if kafka.max_rate_per_partition is not None:
            assert self.interval is not None, "the resource's rules ask for an interval"
            return max(1, math.floor(kafka.max_rate_per_partition * self.interval.total_seconds() * partitions))
        return kafka.max_offsets_per_trigger or DEFAULT_BATCH_OFFSETS


class KafkaConnector:
    """Kafka."""

    def reader(self, spec: StreamSpec, secrets: Secrets, life: str) -> KafkaReader:
        """Return the reader of a stream."""
        kafka = spec.source.spec
        assert isinstance(kafka, KafkaSource), "the registry gives each connector its own spec"
        return KafkaReader(kafka, spec.trigger.interval, secrets(kafka.secret_ref), _may_read_headers(spec.transform))

    def load_classes(self, session: Any) -> None:
        """Read from brokers that are not there: the classes are loaded, and the connection is refused."""
        options = {
            "kafka.bootstrap.servers": _NO_BROKER,
            "subscribe": "none",
            "kafka.default.api.timeout.ms": "200",
            "kafka.request.timeout.ms": "100",
            "fetchOffset.numRetries": "1",
        }
        session.read.format("kafka").options(**options).load().count()


def _may_read_headers(transform: Transform | None) -> bool:
    """Whether the transform may use the column _headers."""
    return transform is not None and (transform.sql is None or "_headers" in transform.sql.lower())


SOURCE = KafkaConnector()
SINK = KafkaSinkConnector()
