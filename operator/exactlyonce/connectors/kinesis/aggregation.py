"""Records of Kinesis and the user records in them. Performs no I/O.

The Kinesis Producer Library (KPL) packs many user records into one record of Kinesis: four bytes that say so, an
`AggregatedRecord` of protocol buffers, and the MD5 of that message. Source: aggregation-format.md of
github.com/awslabs/amazon-kinesis-producer.

    message AggregatedRecord {
      repeated string partition_key_table     = 1;
      repeated string explicit_hash_key_table = 2;
      repeated Record records                 = 3;
    }
    message Record {
      required uint64 partition_key_index     = 1;
      optional uint64 explicit_hash_key_index = 2;
      required bytes  data                    = 3;
      repeated Tag    tags                    = 4;
    }

The parser is our own because those of libraries are lenient: they skip unknown fields and take the last of two values, so a
record may be missing or changed. Here, whatever is not exactly of this format is malformed as a whole: one user record with
all of the data and the reason, never a part of its user records.

A record that begins with the four bytes but whose MD5 is wrong is malformed as well, so that `onMalformed` decides. The
Kinesis Client Library hands it on as a plain record, and nobody learns that an aggregate was damaged.

After a reshard, the KPL sends all user records of an aggregate again that reached a shard which it had not predicted, and the
Kinesis Client Library drops an aggregate with a user record outside of its shard's range. Nothing is dropped here; see
`source.kinesis.outsideShardRange`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from exactlyonce.connectors.kinesis.positions import UserRecord
from exactlyonce.connectors.kinesis.shards import is_hash_key

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16

# The fields as protocol buffers write them: number << 3 | wire type, which is 2 with a length in front and 0 for an integer.
_PARTITION_KEY_TABLE, _EXPLICIT_HASH_KEY_TABLE, _RECORDS = 1 << 3 | 2, 2 << 3 | 2, 3 << 3 | 2
_PARTITION_KEY_INDEX, _EXPLICIT_HASH_KEY_INDEX, _DATA, _TAGS = 1 << 3, 2 << 3, 3 << 3 | 2, 4 << 3 | 2
_MOST_VARINT_BITS = 64


class RawRecord(NamedTuple):
    """A record as Kinesis holds it; `data` may be an aggregate.

    A tuple is read by a task in a fourth of the time that a frozen dataclass takes, and written for it in half of that time.
    """

    sequence_number: int
    partition_key: str
    data: bytes
    arrival_milliseconds: int


@dataclass(frozen=True, slots=True)
class UserRecordData:
    """What a producer put: a record of Kinesis, or one of those in an aggregate.

    `malformed` says what is wrong with an aggregate; `data` is then all of it, with the partition key that Kinesis knows.
    """

    record: UserRecord
    partition_key: str
    explicit_hash_key: str | None
    data: bytes
    arrival_milliseconds: int
    malformed: str | None = None


class _Malformed(ValueError):
    """What is wrong with an aggregate."""


@dataclass(slots=True)
class _Tables:
    partition_keys: list[str]
    explicit_hash_keys: list[str]
    records: list[tuple[int, int | None, bytes]]
    """Index of the partition key, of the explicit hash key, and the data."""


def user_records(record: RawRecord) -> list[UserRecordData]:
    """Return the user records of a record in their order, with sub-sequence numbers from 0; always at least one."""
    if not is_aggregate(record):
        return [_whole(record, None)]
    try:
        return _of_aggregate(record)
    except _Malformed as problem:
        return [_whole(record, f"a KPL aggregate is malformed: {problem}")]


def is_aggregate(record: RawRecord) -> bool:
    """Whether a record says that it is an aggregate; it may be a malformed one."""
    return record.data.startswith(MAGIC)


def user_record_count(record: RawRecord) -> int:
    """Return how many user records `user_records` would return."""
    if not is_aggregate(record):
        return 1
    try:
        return len(_checked_tables(record).records)
    except _Malformed:
        return 1


def _whole(record: RawRecord, malformed: str | None) -> UserRecordData:
    identity = UserRecord(record.sequence_number)
    return UserRecordData(identity, record.partition_key, None, record.data, record.arrival_milliseconds, malformed)


def _of_aggregate(record: RawRecord) -> list[UserRecordData]:
    tables = _checked_tables(record)
    partition_keys, explicit_hash_keys = tables.partition_keys, tables.explicit_hash_keys
    found = []
    for number, (key, hash_key, data) in enumerate(tables.records):
        explicit = None if hash_key is None else explicit_hash_keys[hash_key]
        identity = UserRecord(record.sequence_number, number)
        found.append(UserRecordData(identity, partition_keys[key], explicit, data, record.arrival_milliseconds))
    return found


def _checked_tables(record: RawRecord) -> _Tables:
    """Return what an aggregate holds; each index is one of its tables'."""
    tables = _tables(_message(record.data))
    partition_keys, explicit_hash_keys = len(tables.partition_keys), len(tables.explicit_hash_keys)
    for number, (key, hash_key, _) in enumerate(tables.records):
        if key >= partition_keys:
            raise _Malformed(f"user record {number} names partition key {key} of {partition_keys}")
        if hash_key is not None and hash_key >= explicit_hash_keys:
            raise _Malformed(f"user record {number} names explicit hash key {hash_key} of {explicit_hash_keys}")
    if not tables.records:
        raise _Malformed("it holds no user record")
    return tables


def _message(data: bytes) -> bytes:
    if len(data) < len(MAGIC) + _DIGEST_BYTES:
        raise _Malformed(f"it is cut: {len(data)} bytes are too few to end with an MD5")
    message, digest = data[len(MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        raise _Malformed("its MD5 is not that of its content, so it was changed or cut")
    return message


def _tables(message: bytes) -> _Tables:
    found = _Tables([], [], [])
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at, end)
        if tag not in (_PARTITION_KEY_TABLE, _EXPLICIT_HASH_KEY_TABLE, _RECORDS):
            raise _Malformed(f"it has a field {tag >> 3} of wire type {tag & 7}, which is not of the format")
        start, at = _length_delimited(message, at, end)
        if tag == _RECORDS:
            found.records.append(_record(message, start, at, len(found.records)))
        elif tag == _PARTITION_KEY_TABLE:
            found.partition_keys.append(_text(message[start:at], "partition key", len(found.partition_keys)))
        else:
            found.explicit_hash_keys.append(_hash_key(message[start:at], len(found.explicit_hash_keys)))
    return found


def _record(message: bytes, at: int, end: int, number: int) -> tuple[int, int | None, bytes]:
    key: int | None = None
    hash_key: int | None = None
    data: bytes | None = None
    while at < end:
        tag, at = _varint(message, at, end)
        if tag == _PARTITION_KEY_INDEX and key is None:
            key, at = _varint(message, at, end)
        elif tag == _EXPLICIT_HASH_KEY_INDEX and hash_key is None:
            hash_key, at = _varint(message, at, end)
        elif tag == _DATA and data is None:
            start, at = _length_delimited(message, at, end)
            data = message[start:at]
        elif tag == _TAGS:
            _, at = _length_delimited(message, at, end)
        else:
            raise _Malformed(
                f"user record {number} has a field {tag >> 3} of wire type {tag & 7}, there twice or not of the format"
            )
    if key is None or data is None:
        raise _Malformed(f"user record {number} has no {'partition key' if key is None else 'data'}")
    return key, hash_key, data


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an integer and where it ends."""
    if at < end and message[at] < 0x80:  # nearly always
        return message[at], at + 1
    value = shift = 0
    while at < end:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> _MOST_VARINT_BITS:
                break
            return value, at
        shift += 7
        if shift >= _MOST_VARINT_BITS + 6:
            break
    raise _Malformed(f"an integer at byte {at} is cut or has more than {_MOST_VARINT_BITS} bits")


def _length_delimited(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where a field's content starts and ends."""
    length, start = _varint(message, at, end)
    if length > end - start:
        raise _Malformed(f"a field at byte {at} has {length} bytes, and {end - start} are left")
    return start, start + length


def _text(content: bytes, what: str, number: int) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise _Malformed(f"{what} {number} is not UTF-8") from problem


def _hash_key(content: bytes, number: int) -> str:
    text = _text(content, "explicit hash key", number)
    if not is_hash_key(text):
        raise _Malformed(f"explicit hash key {number} is not an integer from 0 to 2^128 - 1")
    return text
