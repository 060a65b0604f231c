"""User records as the rows that Spark's readers of Kinesis yield. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from exactlyonce.connectors.kinesis.aggregation import UserRecordData
from exactlyonce.connectors.kinesis.shard_map import HashKeyOutside, ShardMap
from exactlyonce.connectors.kinesis.shards import hash_key_of
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import Partition
from exactlyonce_spark.decode.records import MALFORMED, MALFORMED_DDL, VALUE, RecordDecoder, Records
from exactlyonce_spark.decode.unread import LeftOut

SEQUENCE_NUMBER_DIGITS = 56
"""Sequence numbers have 186 bits. As texts of one width they are ordered as they are as integers, so a maximum is right."""

POSITION_DIGITS = 66
"""Of a position as one integer (`positions.py`), which has 32 bits more; no decimal of Spark holds it."""

COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "partition_key": ("string", pa.string()),
    "explicit_hash_key": ("string", pa.string()),
    "sequence_number": ("string", pa.string()),
    "sub_sequence_number": ("bigint", pa.int64()),
    "shard_id": ("string", pa.string()),
    "approximate_arrival_timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "stream": ("string", pa.string()),
    "position": ("string", pa.string()),
    "computed_shard": ("string", pa.string()),
}
"""The columns of a record, with Spark's types and those of Arrow; behind them come `value` and `malformed`, decoded."""

_ROWS, _DATA_BYTES = 2000, 8 * 1024 * 1024
"""The most of one Arrow batch, which a task holds several times over; a record that is larger is a batch of its own."""


class SequenceNumberTooLong(Refused):
    """A sequence number has more digits than any has today, so texts of one width could not be ordered."""


def schema_text(value: str) -> str:
    """Return the columns of a record as DDL; `value` is Spark's type of the decoded rows."""
    told = [f"{name} {type_}" for name, (type_, _) in COLUMNS.items()]
    return ", ".join((*told, f"{VALUE} {value}", f"{MALFORMED} {MALFORMED_DDL}"))


def arrow_batches(
    users: Iterable[UserRecordData],
    stream: str,
    shard: str,
    decoder: RecordDecoder,
    left_out: LeftOut,
    shards: ShardMap | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return user records as rows, decoded; `shards` is the map of shards, if each record's own is to be computed.

    Raises:
        HashKeyOutside: if a record belongs to no shard of the map.
    """
    for held in _bounded(users):
        rows = [(*_row(user, stream, shard), _computed(user, stream, shard, shards)) for user in held]
        columns = zip(zip(*rows, strict=True), COLUMNS.values(), strict=True)
        decoded = decoder.decode(_records(held, stream, shard, left_out))
        arrays = [*(pa.array(column, type_) for column, (_, type_) in columns), *decoded]
        yield pa.RecordBatch.from_arrays(arrays, names=[*COLUMNS, VALUE, MALFORMED])


def _records(held: list[UserRecordData], stream: str, shard: str, left_out: LeftOut) -> Records:
    return Records(
        pa.array([user.data for user in held], pa.binary()),
        lambda place: held[place].partition_key.encode(),
        lambda place: held[place].arrival_milliseconds * 1000,
        {place: user.malformed for place, user in enumerate(held) if user.malformed is not None},
        left_out.of_positions(Partition(stream, shard), (user.record.position for user in held)),
    )


def _bounded(users: Iterable[UserRecordData]) -> Iterator[list[UserRecordData]]:
    held: list[UserRecordData] = []
    size = 0
    for user in users:
        if held and (len(held) == _ROWS or size + len(user.data) > _DATA_BYTES):
            yield held
            held, size = [], 0
        held.append(user)
        size += len(user.data)
    if held:
        yield held


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
        user.partition_key,
        user.explicit_hash_key,
        number.zfill(SEQUENCE_NUMBER_DIGITS),
        user.record.sub_sequence_number,
        shard,
        user.arrival_milliseconds * 1000,
        stream,
        str(user.record.position).zfill(POSITION_DIGITS),
    )
