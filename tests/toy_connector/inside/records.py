"""Spark's readers of a memory, in Python: as a stream, and of exactly given ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from exactlyonce.connectors.toy.memory import ORIGIN, client_of
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from exactlyonce.positions.ranges import Partition
from exactlyonce_spark.decode.records import MALFORMED, MALFORMED_DDL, VALUE, Records, record_decoder
from exactlyonce_spark.decode.unread import LeftOut

COLUMNS: dict[str, Any] = {
    "origin": pa.string(),
    "partition": pa.int32(),
    "position": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.binary(),
}
_SCHEMA = "origin string, partition int, position bigint, timestamp timestamp, key binary"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Records have no timestamp; every one has this."""

Offsets = dict[str, dict[str, int]]


@dataclass
class Span(InputPartition):
    """What one task reads."""

    key: str
    start: int
    end: int


def _records(options: Mapping[str, str], span: Span) -> Iterator[pa.RecordBatch]:
    with client_of(options["server"]) as memory:
        texts = memory.read(span.key, span.start, span.end)
    positions = range(span.start, span.start + len(texts))
    rows = [(ORIGIN, int(span.key), position, _EPOCH, None) for position in positions]
    left_out = LeftOut.of(options.get("left_out")).of_positions(Partition(ORIGIN, int(span.key)), positions)
    values = pa.array([text.encode() for text in texts], pa.binary())
    moment = int(_EPOCH.timestamp()) * 1_000_000
    read = Records(values, lambda _place: None, lambda _place: moment, left_out=left_out)
    told = [pa.array(column, it) for column, it in zip(zip(*rows, strict=True), COLUMNS.values(), strict=True)]
    if rows:
        arrays = [*told, *record_decoder(options["format"]).decode(read)]
        yield pa.RecordBatch.from_arrays(arrays, names=[*COLUMNS, VALUE, MALFORMED])


class ToyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads batches; with `availableNow`, up to what there was when the query started."""

    def __init__(self, options: Mapping[str, str], batch_records: int) -> None:
        self._options = dict(options)
        self._batch_records = batch_records
        self._until: dict[str, int] | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember how far the query reads."""
        self._until = self._ends()

    def initialOffset(self) -> Offsets:
        """Return the first record of each partition."""
        return {ORIGIN: dict.fromkeys(self._ends(), 0)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        return ReadMaxRows(self._batch_records)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the next batch ends."""
        most = None if isinstance(limit, ReadAllAvailable) else self._batch_records
        reached = {}
        for key, end in (self._ends() if self._until is None else self._until).items():
            begun = start[ORIGIN].get(key, 0)
            reached[key] = end if most is None else min(end, begun + most)
            most = None if most is None else most - (reached[key] - begun)
        return {ORIGIN: reached}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return a task for each partition that has records."""
        spans = [Span(key, start[ORIGIN].get(key, 0), until) for key, until in end[ORIGIN].items()]
        return [span for span in spans if span.start < span.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        assert isinstance(partition, Span)
        return _records(self._options, partition)

    def _ends(self) -> dict[str, int]:
        with client_of(self._options["server"]) as memory:
            ends: dict[str, int] = memory.describe()["ends"]
            return ends


class ToyReader(DataSourceReader):
    """Reads exactly given ranges."""

    def __init__(self, options: Mapping[str, str], spans: list[Span]) -> None:
        self._options = dict(options)
        self._spans = spans

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each range."""
        return self._spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        assert isinstance(partition, Span)
        return _records(self._options, partition)


class ToyData(DataSource):
    """What Spark calls `toy`."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "toy"

    def schema(self) -> str:
        """Return the columns of a record."""
        decoded = record_decoder(self.options["format"]).ddl
        return f"{_SCHEMA}, {VALUE} {decoded}, {MALFORMED} {MALFORMED_DDL}"

    def streamReader(self, schema: Any) -> ToyStreamReader:
        """Return the reader of a stream."""
        return ToyStreamReader(self.options, int(self.options["batch_records"]))

    def reader(self, schema: Any) -> ToyReader:
        """Return the reader of ranges."""
        return ToyReader(self.options, [Span(*span) for span in json.loads(self.options["spans"])])
