"""User records as the rows that Spark's readers of Kinesis yield. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from exactlyonce.connectors.kinesis.aggregation import UserRecordData
from exactlyonce.connectors.kinesis.shard_map import HashKeyOutside, ShardMap
from exactlyonce.connectors.kinesis.shards import hash_key_of
from exactlyonce.errors import Refused

SEQUENCE_NUMBER_DIGITS = 56
"""Sequence numbers have 186 bits. As texts of one width they are ordered as they are as integers, so a maximum is right."""

POSITION_DIGITS = 66
"""Of a position as one integer (`positions.py`), which has 32 bits more; no decimal of Spark holds it."""

SCHEMA = (
    "data binary, partition_key string, explicit_hash_key string, sequence_number string, sub_sequence_number bigint, "
    "shard_id string, approximate_arrival_timestamp timestamp, stream string, position string, malformed string, "
    "computed_shard string"
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
    "computed_shard": pa.string(),
}
_ARROW = pa.schema(_TYPES)

_ROWS, _DATA_BYTES = 2000, 8 * 1024 * 1024
"""The most of one Arrow batch, which a task holds several times over; a record that is larger is a batch of its own."""


class SequenceNumberTooLong(Refused):
    """A sequence number has more digits than any has today, so texts of one width could not be ordered."""


def arrow_batches(
    users: Iterable[UserRecordData], stream: str, shard: str, shards: ShardMap | None = None
) -> Iterator[pa.RecordBatch]:
    """Return user records as rows of `SCHEMA`; `shards` is the map of shards, if each record's own is to be computed.

    Raises:
        HashKeyOutside: if a record belongs to no shard of the map.
    """
    for rows in _bounded(users, stream, shard, shards):
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)],
            schema=_ARROW,
        )


def _bounded(
    users: Iterable[UserRecordData], stream: str, shard: str, shards: ShardMap | None
) -> Iterator[list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for user in users:
        if rows and (len(rows) == _ROWS or size + len(user.data) > _DATA_BYTES):
            yield rows
            rows, size = [], 0
        rows.append((*_row(user, stream, shard), _computed(user, stream, shard, shards)))
        size += len(user.data)
    if rows:
        yield rows


def _computed(user: UserRecordData, stream: str, shard: str, shards: ShardMap | None) -> str | None:
    if shards is None or user.malformed is not None:
        return None
    hash_key = hash_key_of(user.partition_key, user.explicit_hash_key)
    if shards.belongs_to(shard, hash_key):
        return shard  # of all shards that ever hold a key, one is open at a time, and this one was
    try:
        return shards.shard_of(hash_key, user.record.sequence_number).id
    except HashKeyOutside as problem:
        raise HashKeyOutside(
            f"User record {user.record.sub_sequence_number} of record {user.record.sequence_number} of shard {shard} of stream "
            f"{stream}: {problem}"
        ) from problem


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
        user.arrival_milliseconds * 1000,
        stream,
        str(user.record.position).zfill(POSITION_DIGITS),
        user.malformed,
    )
