"""Ranges and single records of a shard, and the reader of shards (`shard_reader.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from exactlyonce.connectors.kinesis.aggregation import RawRecord, UserRecordData, user_records
from exactlyonce.connectors.kinesis.answers import SequenceNumberRefused, ShardMissing
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.pages import LOOKS_AT_TIP, first_page, sought
from exactlyonce.connectors.kinesis.patience import Deadline, surely
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtShardEnd,
    AtTrimHorizon,
    InsideRecord,
    UserRecord,
    position_after_record,
    read_from,
    to_text,
)
from exactlyonce.connectors.kinesis.shard_reader import Fetched, PositionExpired, ShardReader
from exactlyonce.errors import Refused

__all__ = [
    "Fetched",
    "PositionExpired",
    "RangeIncomplete",
    "RawRecord",
    "RecordFilter",
    "ShardReader",
    "first_record",
    "is_whole_behind",
    "read_range",
    "record_numbered",
]


class RangeIncomplete(Refused):
    """A planned range cannot be read as it was planned."""


RecordFilter = Callable[[RawRecord, Sequence[UserRecordData]], bool]
"""Whether the user records of a record are yielded, decided on all of them at once."""


def read_range(
    client: KinesisClient,
    stream: str,
    shard_id: str,
    start: int,
    end: int,
    keeps: RecordFilter = lambda record, users: True,
) -> Iterator[UserRecordData]:
    """Yield the user records of `[start, end)`, the same ones in the same order each time, as far as `keeps` says so.

    From TRIM_HORIZON on, those that have expired are not among them: no record in front of it could be asked for.

    Raises:
        PositionExpired: if records at the start may be gone.
        RangeIncomplete: if the shard does not hold the range up to exactly `end`.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    what = f"The range of shard {shard_id} of stream {stream} from {to_text(start)} to {to_text(end)}"
    if start > end:
        raise RangeIncomplete(f"{what} ends before it starts.")
    if start == end:
        return
    records = _records_from(client, stream, shard_id, start)
    oldest = list(islice(records, 1))
    if start == TRIM_HORIZON and any(one is None or UserRecord(one.sequence_number).position >= end for one in oldest):
        return  # all of it has expired; who continues reading behind it does not find the record there, and says so
    if start == TRIM_HORIZON and not oldest and not is_whole_behind(client, stream, shard_id, end):
        return  # and so where nothing is left: the record behind which it ends, or the next number, would still be there
    yield from _up_to(end, chain(oldest, records), start, keeps, what)


def _up_to(
    end: int, records: Iterable[RawRecord | None], start: int, keeps: RecordFilter, what: str
) -> Iterator[UserRecordData]:
    reached = start
    for record in records:
        if record is None:
            reached = SHARD_END
            break
        behind_record = position_after_record(record.sequence_number)
        users = user_records(record)
        inside, is_kept = [one for one in users if one.record.position >= start], keeps(record, users)
        if not inside:
            raise RangeIncomplete(
                f"{what} starts inside record {record.sequence_number}, behind the last of its user records."
            )
        for one, behind in zip(inside, [*(one.record.position for one in inside[1:]), behind_record], strict=True):
            if one.record.position >= end:
                raise RangeIncomplete(
                    f"{what} does not end between two user records; the next record ends at {to_text(behind_record)}."
                )
            if is_kept:
                yield one
            reached = behind
            if reached == end:
                return
    if reached != end:
        raise RangeIncomplete(f"{what} can be read up to {to_text(reached)} only: the shard holds nothing behind that.")


def _records_from(client: KinesisClient, stream: str, shard_id: str, start: int) -> Iterator[RawRecord | None]:
    """Yield records from a position on up to the newest one; None at the end of the shard."""
    reader, empty_tips = ShardReader(client, stream, shard_id, start), 0
    while empty_tips < LOOKS_AT_TIP:
        fetched = reader.fetch()
        yield from fetched.records
        if fetched.at_end:
            yield None
            return
        empty_tips = 0 if fetched.records or fetched.milliseconds_behind else empty_tips + 1


def record_numbered(
    client: KinesisClient, stream: str, shard_id: str, sequence_number: int, deadline: Deadline | None = None
) -> RawRecord | None:
    """Return the record with a sequence number; None if there is none, or it cannot be read any more.

    Raises:
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    found = _at_or_behind(client, stream, shard_id, sequence_number, deadline)
    return found if found is not None and found.sequence_number == sequence_number else None


def is_whole_behind(
    client: KinesisClient, stream: str, shard_id: str, position: int, deadline: Deadline | None = None
) -> bool:
    """Whether nothing can have expired behind a position: what lies in front of it, or the very next number, is there.

    At the start of a shard nothing lies in front, and at its end nothing lies behind: both are whole.

    Raises:
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    match read_from(position):
        case AtTrimHorizon() | AtShardEnd():
            return True
        case InsideRecord(sequence_number, _):
            return record_numbered(client, stream, shard_id, sequence_number, deadline) is not None
        case AfterRecord(sequence_number):
            pass
    # A stream that was told to start at a record has read none before it, and nothing lies between a number and the next.
    found = _at_or_behind(client, stream, shard_id, sequence_number, deadline)
    if found is None:
        found = _at_or_behind(client, stream, shard_id, sequence_number + 1, deadline)
    return found is not None and found.sequence_number <= sequence_number + 1


def first_record(
    client: KinesisClient, stream: str, shard_id: str, deadline: Deadline | None = None
) -> RawRecord | None:
    """Return the oldest record that can be read; None if there is none, or no such shard any more.

    Raises:
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    return _first(client, stream, shard_id, {"ShardIteratorType": "TRIM_HORIZON"}, deadline)


def _at_or_behind(
    client: KinesisClient, stream: str, shard_id: str, sequence_number: int, deadline: Deadline | None
) -> RawRecord | None:
    """Return the first record whose number is not below; None as well where Kinesis does not know the number."""
    start = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": str(sequence_number)}
    try:
        return _first(client, stream, shard_id, start, deadline)
    except SequenceNumberRefused:
        return None


def _first(
    client: KinesisClient, stream: str, shard_id: str, start: dict[str, str], deadline: Deadline | None
) -> RawRecord | None:
    def call() -> RawRecord | None:
        iterator = client.iterator(stream, shard_id, **start)
        page = first_page(client, stream, shard_id, iterator, most=1, deadline=deadline)
        return page.records[0] if page.records else None

    try:
        return surely(client.clock, lambda: sought(client, call))
    except ShardMissing:
        return None
