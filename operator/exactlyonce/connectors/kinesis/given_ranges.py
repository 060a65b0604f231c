"""Ranges of shards that a person gives by positions: each begins and ends behind a user record that its shard still holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exactlyonce.connectors.kinesis.aggregation import user_records
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    InsideRecord,
    MalformedPosition,
    UserRecord,
    from_text,
    read_from,
    to_text,
)
from exactlyonce.connectors.kinesis.reading import first_record, is_whole_behind, record_numbered
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.errors import NotBackfilled
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange, Partition


def given_ranges(
    client: KinesisClient, stream: str, named: str, given: Sequence[NamedSpan]
) -> Mapping[Partition, tuple[OffsetRange, ...]]:
    """Return the ranges of shards that a person gives; `stream` is the name of the data stream, which is `named` in calls.

    Positions are sparse, so a range that ended elsewhere than behind a record could not be read to its end, and one that began
    elsewhere would not show whether something has expired. Only TRIM_HORIZON means whatever the shard still holds.

    Raises:
        NotBackfilled: naming the range that is none of the stream's, or that cannot be read.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    shards = {shard.id: shard for shard in client.shards(named)}
    found: dict[Partition, list[OffsetRange]] = {}
    for span in given:
        if span.origin != stream:
            raise NotBackfilled(f"The range {span} is of {span.origin}, and the source is the data stream {stream}")
        shard = shards.get(span.partition)
        if shard is None:
            raise NotBackfilled(f"The range {span} names a shard that the data stream does not list")
        offsets = _offsets(span)
        _require_begin(client, named, shard, offsets.from_offset, span.begin)
        _require_end(client, named, shard, offsets.until_offset, span.end)
        if offsets.from_offset == TRIM_HORIZON:
            offsets = _from_oldest(client, named, shard, offsets)
        found.setdefault(Partition(stream, shard.id), []).append(offsets)
    return {key: tuple(sorted(spans)) for key, spans in found.items()}


def _offsets(span: NamedSpan) -> OffsetRange:
    try:
        begin, end = from_text(span.begin), from_text(span.end)
    except MalformedPosition as problem:
        raise NotBackfilled(f"The range of shard {span.partition} cannot be read: {problem}") from None
    if begin >= end:
        raise NotBackfilled(f"The range {span} ends where it begins, or before")
    return OffsetRange(begin, end)


def _from_oldest(client: KinesisClient, named: str, shard: Shard, offsets: OffsetRange) -> OffsetRange:
    """Begin with the oldest record that the shard still holds: the range is the same then, however often it is read."""
    oldest = first_record(client, named, shard.id)
    begin = offsets.until_offset if oldest is None else UserRecord(oldest.sequence_number).position
    if begin >= offsets.until_offset:
        raise NotBackfilled(f"The shard {shard.id} holds no record before {to_text(offsets.until_offset)} any more")
    return OffsetRange(begin, offsets.until_offset)


def _require_begin(client: KinesisClient, named: str, shard: Shard, position: int, text: str) -> None:
    """Require that nothing in front of the first record can have expired: the record before it, or it itself, is there."""
    match read_from(position):
        case InsideRecord() as inside:
            is_there = _has_user(client, named, shard, inside)
        case _:
            is_there = is_whole_behind(client, named, shard.id, position)
    if not is_there:
        raise _not_there(shard, text)


def _require_end(client: KinesisClient, named: str, shard: Shard, position: int, text: str) -> None:
    match read_from(position):
        case AfterRecord(sequence_number):
            is_there = record_numbered(client, named, shard.id, sequence_number) is not None
        case InsideRecord() as inside:
            is_there = _has_user(client, named, shard, inside)
        case _:
            is_there = not shard.is_open
    if is_there:
        return
    if position == SHARD_END:
        raise NotBackfilled(
            f"The range of shard {shard.id} ends at SHARD_END, and that shard is open; end behind a record"
        )
    raise _not_there(shard, text)


def _has_user(client: KinesisClient, named: str, shard: Shard, inside: InsideRecord) -> bool:
    record = record_numbered(client, named, shard.id, inside.sequence_number)
    users = () if record is None else user_records(record)
    return any(user.record.sub_sequence_number == inside.sub_sequence_number for user in users)


def _not_there(shard: Shard, text: str) -> NotBackfilled:
    return NotBackfilled(
        f"The position {text!r:.120} of shard {shard.id} does not stand behind a record that the shard holds. Write `after` "
        "and the sequence number of one, as the column _sequence_number or GetRecords has it; begin at TRIM_HORIZON for "
        "whatever the shard still holds"
    )
