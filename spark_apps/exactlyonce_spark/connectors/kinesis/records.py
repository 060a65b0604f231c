"""Spark's readers of Kinesis, in Python: as a stream, and of exactly given ranges.

Options are seen in plans and logs, so the login is none of them: whoever reads takes it from the mounted secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from exactlyonce.connectors.kinesis.aggregation import RawRecord, UserRecordData, user_records
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.clients import following_client, kinesis_client
from exactlyonce.connectors.kinesis.login import KinesisAddress, address_of
from exactlyonce.connectors.kinesis.positions import from_text, to_text
from exactlyonce.connectors.kinesis.reading import ShardReader, read_range
from exactlyonce.errors import Refused
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_mounted
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit, Planner

FORMAT = "exactlyonce_kinesis"

SEQUENCE_NUMBER_DIGITS = 56
"""Sequence numbers have 186 bits. As texts of one width they are ordered as they are as integers, so a maximum is right."""

POSITION_DIGITS = 66
"""Of a position as one integer (`positions.py`), which has 32 bits more; no decimal of Spark holds it."""

SCHEMA = (
    "data binary, partition_key string, explicit_hash_key string, sequence_number string, sub_sequence_number bigint, "
    "shard_id string, approximate_arrival_timestamp timestamp, stream string, position string, malformed string"
)
_TYPES: dict[str, pa.DataType] = {
    "data": pa.binary(),
    "partition_key": pa.string(),
    "explicit_hash_key": pa.string(),
    "sequence_number": pa.string(),
    "sub_sequence_number": pa.int64(),
    "shard_id": pa.string(),
    "approximate_arrival_timestamp": pa.timestamp("us", tz="UTC"),
    "stream": pa.string(),
    "position": pa.string(),
    "malformed": pa.string(),
}
_ARROW = pa.schema(_TYPES)
_ROWS, _EPOCH = 2000, datetime(1970, 1, 1, tzinfo=UTC)

Offsets = dict[str, dict[str, str]]
"""As the codec has them, parsed."""


class SequenceNumberTooLong(Refused):
    """A sequence number has more digits than any has today, so texts of one width could not be ordered."""


@dataclass(frozen=True)
class Place:
    """Which stream it is, and where its login is to be found."""

    stream: str
    named: str
    region: str
    endpoint: str | None
    secret: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        """Return what the options say."""
        return cls(
            options["stream"], options["named"], options["region"], options.get("endpoint"), options.get("secret")
        )

    def options(self) -> dict[str, str]:
        """Return the options that say so."""
        told = {"stream": self.stream, "named": self.named, "region": self.region}
        told |= {} if self.endpoint is None else {"endpoint": self.endpoint}
        return told | ({} if self.secret is None else {"secret": self.secret})

    def client(self) -> KinesisClient:
        """Return this process's client, with the login as it is mounted now; for a task.

        Raises:
            SecretMissing: if the secret is not there, or holds no whole login.
        """
        return kinesis_client(self.address())

    def lasting_client(self) -> KinesisClient:
        """Return a client that reads the mounted login again once it is refused; for the life of a query.

        Raises:
            SecretMissing: as `client`.
        """
        return following_client(self.address)

    def address(self) -> KinesisAddress:
        """Return where the service is, with the login as it is mounted now.

        Raises:
            SecretMissing: as `client`.
        """
        mounted = {} if self.secret is None else read_mounted(Path(os.environ[SECRETS_FOLDER]), self.secret)
        return address_of(self.region, self.endpoint, self.secret, mounted)


@dataclass
class ShardRange(InputPartition):
    """What one task reads; `fetched` are the records of it, where the planner still holds them."""

    shard: str
    start: str
    end: str
    fetched: tuple[RawRecord, ...] | None = None


def _batches(place: Place, part: ShardRange) -> Iterator[pa.RecordBatch]:
    start, end = from_text(part.start), from_text(part.end)
    users: Iterable[UserRecordData]
    if part.fetched is None:
        users = read_range(place.client(), place.named, part.shard, start, end)
    else:
        every = (user for record in part.fetched for user in user_records(record))
        users = (user for user in every if start <= user.record.position < end)
    yield from arrow_batches(users, place.stream, part.shard)


def arrow_batches(users: Iterable[UserRecordData], stream: str, shard: str) -> Iterator[pa.RecordBatch]:
    """Return user records as rows of `SCHEMA`."""
    remaining = iter(users)
    while rows := [_row(user, stream, shard) for user in islice(remaining, _ROWS)]:
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)],
            schema=_ARROW,
        )


def _row(user: UserRecordData, stream: str, shard: str) -> tuple[Any, ...]:
    number = str(user.record.sequence_number)
    if len(number) > SEQUENCE_NUMBER_DIGITS:
        raise SequenceNumberTooLong(
            f"Sequence number {number} of shard {shard} of stream {stream} has more than {SEQUENCE_NUMBER_DIGITS} digits, "
            "which no stream of Kinesis has had; this release cannot order it."
        )
    return (
        user.data,
        user.partition_key,
        user.explicit_hash_key,
        number.zfill(SEQUENCE_NUMBER_DIGITS),
        user.record.sub_sequence_number,
        shard,
        _EPOCH + timedelta(milliseconds=user.arrival_milliseconds),
        stream,
        str(user.record.position).zfill(POSITION_DIGITS),
        user.malformed,
    )


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads batches. Spark keeps one in a process of the driver for the life of the query."""

    def __init__(self, place: Place, limit: BatchLimit) -> None:
        self._place = place
        self._limit = limit
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks are given the reader, and not what the planner holds."""
        return {"_place": self._place, "_limit": self._limit, "_planner": None}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and end."""
        self._planned().read_until_now()

    def initialOffset(self) -> Offsets:
        """Return no shard: Spark does not keep what is answered here, so every checkpoint is seeded.

        Spark asks before batch 0 of a seed, whose end names each shard where the stream starts; nothing is read in it.
        """
        return {self._place.stream: {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit of Spark's own: bytes and records are limited at once, by the planner."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the next batch ends."""
        starts = _positions(start, self._place.stream)
        assert starts, "a query over Kinesis starts from a seeded checkpoint, which names its shards"
        return {self._place.stream: _texts(self._planned().ends(starts))}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return a task for each shard that has something to read."""
        starts, found = _positions(start, self._place.stream), []
        for shard, until in _positions(end, self._place.stream).items():
            begin = starts.get(
                shard, until
            )  # one that appears is named where it starts, and read from the next batch on
            if begin != until:
                fetched = None if self._planner is None else self._planner.fetched(shard, begin, until)
                found.append(ShardRange(shard, to_text(begin), to_text(until), fetched))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        assert isinstance(partition, ShardRange)
        return _batches(self._place, partition)

    def stop(self) -> None:
        """End the planner's threads."""
        if self._planner is not None:
            self._planner.close()

    def _planned(self) -> Planner:
        if self._planner is None:
            client, named = self._place.lasting_client(), self._place.named
            self._planner = Planner(
                lambda shard, start: ShardReader(client, named, shard, start), lambda: client.shards(named), self._limit
            )
        return self._planner


class KinesisRangesReader(DataSourceReader):
    """Reads exactly given ranges."""

    def __init__(self, place: Place, ranges: Ranges) -> None:
        self._place = place
        self._parts = [
            ShardRange(str(key.key), to_text(span.from_offset), to_text(span.until_offset))
            for key, span in ranges.non_empty().items()
        ]

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each range."""
        return self._parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        assert isinstance(partition, ShardRange)
        return _batches(self._place, partition)


class KinesisData(DataSource):
    """What Spark calls by the name in `FORMAT`."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a record."""
        return SCHEMA

    def streamReader(self, schema: Any) -> KinesisStreamReader:
        """Return the reader of a stream."""
        limit = BatchLimit(int(self.options["records"]), int(self.options["bytes"]), float(self.options["seconds"]))
        return KinesisStreamReader(Place.of(self.options), limit)

    def reader(self, schema: Any) -> KinesisRangesReader:
        """Return the reader of ranges."""
        return KinesisRangesReader(Place.of(self.options), Ranges.from_json(self.options["ranges"]))


def _positions(offsets: Offsets, stream: str) -> dict[str, int]:
    return {shard: from_text(text) for shard, text in offsets[stream].items()}


def _texts(positions: Mapping[str, int]) -> dict[str, str]:
    return {shard: to_text(position) for shard, position in positions.items()}
