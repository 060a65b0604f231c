"""Spark's readers of a memory, in Python: as a stream, and of exactly given ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from exactlyonce.connectors.toy.memory import ORIGIN, client_of
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

SCHEMA = "origin string, partition int, position bigint, timestamp timestamp, key binary, value binary"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Records have no timestamp; every one has this."""

Offsets = dict[str, dict[str, int]]


@dataclass
class Span(InputPartition):
    """What one task reads."""

    key: str
    start: int
    end: int


def _records(server: str, span: Span) -> Iterator[tuple[Any, ...]]:
    with client_of(server) as memory:
        for position, text in enumerate(memory.read(span.key, span.start, span.end), span.start):
            yield ORIGIN, int(span.key), position, _EPOCH, None, text.encode()


class ToyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads batches; with `availableNow`, up to what there was when the query started."""

    def __init__(self, server: str, batch_records: int) -> None:
        self._server = server
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

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read the records of a task."""
        assert isinstance(partition, Span)
        return _records(self._server, partition)

    def _ends(self) -> dict[str, int]:
        with client_of(self._server) as memory:
            ends: dict[str, int] = memory.describe()["ends"]
            return ends


class ToyReader(DataSourceReader):
    """Reads exactly given ranges."""

    def __init__(self, server: str, spans: list[Span]) -> None:
        self._server = server
        self._spans = spans

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each range."""
        return self._spans

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read the records of a task."""
        assert isinstance(partition, Span)
        return _records(self._server, partition)


class ToyData(DataSource):
    """What Spark calls `toy`."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "toy"

    def schema(self) -> str:
        """Return the columns of a record."""
        return SCHEMA

    def streamReader(self, schema: Any) -> ToyStreamReader:
        """Return the reader of a stream."""
        return ToyStreamReader(self.options["server"], int(self.options["batch_records"]))

    def reader(self, schema: Any) -> ToyReader:
        """Return the reader of ranges."""
        return ToyReader(self.options["server"], [Span(*span) for span in json.loads(self.options["spans"])])
