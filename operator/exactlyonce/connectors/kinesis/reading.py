"""Ranges and single records of a shard, and the reader of shards (`shard_reader.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from exactlyonce.connectors.kinesis.aggregation import RawRecord, UserRecordData, user_records
from exactlyonce.connectors.kinesis.answers import SequenceNumberRefused, ShardMissing
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    AfterRecord,
    InsideRecord,
    position_after_record,
    read_from,
    to_text,
)
from exactlyonce.connectors.kinesis.shard_reader import Fetched, PositionExpired, ShardReader, first_page
from exactlyonce.errors import Refused

__all__ = [
    "Fetched",
    "PositionExpired",
    "RangeIncomplete",
    "RawRecord",
    "ShardReader",
    "first_record",
    "read_range",
    "record_before",
]

_EMPTY_TIPS = 3
"""How often a range that must hold more is looked at where Kinesis says that nothing more is there."""

_PAGE_BYTES = 16 * 1024 * 1024  # more than one answer of Kinesis has


class RangeIncomplete(Refused):
    """A planned range cannot be read as it was planned."""


def read_range(client: KinesisClient, stream: str, shard_id: str, start: int, end: int) -> Iterator[UserRecordData]:
    """Yield the user records of `[start, end)`, the same ones in the same order each time.

    Raises:
        PositionExpired: if records at the start may be gone.
        RangeIncomplete: if the shard does not hold the range up to exactly `end`.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    what = f"The range of shard {shard_id} of stream {stream} from {to_text(start)} to {to_text(end)}"
    if start > end:
        raise RangeIncomplete(f"{what} ends before it starts.")
    reached = start
    for record in _records_from(client, stream, shard_id, start) if start < end else ():
        if record is None:
            reached = SHARD_END
            break
        behind_record = position_after_record(record.sequence_number)
        inside = [one for one in user_records(record) if one.record.position >= start]
        if not inside:
            raise RangeIncomplete(f"{what} starts inside record {record.sequence_number}, behind its last user record.")
        for one, behind in zip(inside, [*(one.record.position for one in inside[1:]), behind_record], strict=True):
            if one.record.position >= end:
                raise RangeIncomplete(
                    f"{what} has no record that ends there; the next one is {to_text(behind_record)}."
                )
            yield one
            reached = behind
            if reached == end:
                return
    if reached != end:
        raise RangeIncomplete(f"{what} holds records up to {to_text(reached)} only.")


def _records_from(client: KinesisClient, stream: str, shard_id: str, start: int) -> Iterator[RawRecord | None]:
    """Yield records from a position on up to the newest one; None at the end of the shard."""
    reader, empty_tips = ShardReader(client, stream, shard_id, start), 0
    while empty_tips < _EMPTY_TIPS:
        fetched = reader.fetch(_PAGE_BYTES)
        yield from fetched.records
        if fetched.at_end:
            yield None
            return
        empty_tips = 0 if fetched.records or fetched.milliseconds_behind else empty_tips + 1


def record_before(client: KinesisClient, stream: str, shard_id: str, position: int) -> RawRecord | None:
    """Return the record that a position is behind or inside of; None if there is none, or it cannot be read any more.

    At the start and at the end of a shard there is none.

    Raises:
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    match read_from(position):
        case AfterRecord(sequence_number) | InsideRecord(sequence_number, _):
            pass
        case _:
            return None
    start = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": str(sequence_number)}
    try:
        found = _first(client, stream, shard_id, start)
    except SequenceNumberRefused:
        return None
    return found if found is not None and found.sequence_number == sequence_number else None


def first_record(client: KinesisClient, stream: str, shard_id: str) -> RawRecord | None:
    """Return the oldest record that can be read; None if there is none, or no such shard any more.

    Raises:
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    return _first(client, stream, shard_id, {"ShardIteratorType": "TRIM_HORIZON"})


def _first(client: KinesisClient, stream: str, shard_id: str, start: dict[str, str]) -> RawRecord | None:
    try:
        page = first_page(client, stream, shard_id, client.iterator(stream, shard_id, **start), most=1)
    except ShardMissing:
        return None
    return page.records[0] if page.records else None
