"""Where the newest record of a shard lies, and the first one of a moment.

Kinesis names its newest record only to who reads up to it. So a short time is read first, and a longer one only where that
held no record. A position behind the last record that is there loses nothing of what arrives meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.pages import LOOKS_AT_TIP, first_page, read_page
from exactlyonce.connectors.kinesis.patience import Deadline
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.shards import Shard

_LOOK_BACKS = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(hours=1),
    timedelta(days=1),
    timedelta(days=7),
    timedelta(days=30),
)


def tip_of(client: KinesisClient, stream: str, shard: Shard, deadline: Deadline) -> int:
    """Return the position behind the newest record; the end of a shard that is closed, the start of one without records.

    Raises:
        SourceUnreachable: if it is not reached before the deadline.
        OriginMissing, SourceRefused: by situation.
    """
    return _looked_back(client, stream, shard.id, None, deadline) if shard.is_open else SHARD_END


def at_moment(client: KinesisClient, stream: str, shard: Shard, moment: datetime, deadline: Deadline) -> int:
    """Return the position of the first record that arrived at or after a moment, or behind the last one before it.

    Whatever arrives while this is asked lies behind that position.

    Raises:
        SourceUnreachable: if it is not found before the deadline.
        OriginMissing, SourceRefused: by situation.
    """
    iterator = client.iterator(stream, shard.id, ShardIteratorType="AT_TIMESTAMP", Timestamp=moment)
    page = first_page(client, stream, shard.id, iterator, most=1, deadline=deadline)
    if page.records:
        return UserRecord(page.records[0].sequence_number).position
    if page.next_iterator is None:
        return SHARD_END
    return _looked_back(client, stream, shard.id, moment, deadline)


def behind_last_between(
    client: KinesisClient, stream: str, shard: Shard, begin: datetime, until: datetime, deadline: Deadline
) -> int | None:
    """Return the position behind the last record that arrived between two moments; None where none did.

    Such a position is behind a record that was read, so that a range may end there.

    Raises:
        SourceUnreachable: if it is not found before the deadline.
        OriginMissing, SourceRefused: by situation.
    """
    for look_back in (*_LOOK_BACKS, until - begin):
        since = max(begin, until - look_back)
        iterator = client.iterator(stream, shard.id, ShardIteratorType="AT_TIMESTAMP", Timestamp=since)
        behind = _read_on(client, stream, shard.id, iterator, until, deadline).behind_last
        if behind is not None or since == begin:
            return behind
    return None


def _looked_back(client: KinesisClient, stream: str, shard_id: str, moment: datetime | None, deadline: Deadline) -> int:
    """Return where the first record of a moment lies, or behind the last record, from ever further back."""
    now = datetime.fromtimestamp(client.clock.wall_seconds(), UTC)
    latest, oldest = moment or now, now - client.described(stream).retention
    for look_back in _LOOK_BACKS:
        if latest - look_back <= oldest:
            break  # nothing older is left, so the oldest record is asked for
        iterator = client.iterator(stream, shard_id, ShardIteratorType="AT_TIMESTAMP", Timestamp=latest - look_back)
        found = _read_on(client, stream, shard_id, iterator, moment, deadline)
        if found.position is not None:
            return found.position
    iterator = client.iterator(stream, shard_id, ShardIteratorType="TRIM_HORIZON")
    found = _read_on(client, stream, shard_id, iterator, moment, deadline)
    return TRIM_HORIZON if found.position is None else found.position


@dataclass(frozen=True, slots=True)
class _ReadOn:
    """Where the first record of a moment lies, or else behind the last record; and behind the last one before that moment.

    Both are None where there is no record.
    """

    position: int | None
    behind_last: int | None


def _read_on(
    client: KinesisClient, stream: str, shard_id: str, iterator: str, moment: datetime | None, deadline: Deadline
) -> _ReadOn:
    from_milliseconds = None if moment is None else int(moment.timestamp() * 1000)
    behind_last, tips = None, 0
    while tips < LOOKS_AT_TIP:
        deadline.require(f"the newest record of shard {shard_id} of stream {stream} was not reached")
        page = read_page(client, stream, shard_id, iterator)
        for record in page.records:
            if from_milliseconds is not None and record.arrival_milliseconds >= from_milliseconds:
                return _ReadOn(UserRecord(record.sequence_number).position, behind_last)
            behind_last = position_after_record(record.sequence_number)
        if page.next_iterator is None:
            return _ReadOn(SHARD_END, behind_last)
        tips += not page.milliseconds_behind
        iterator = page.next_iterator
    return _ReadOn(behind_last, behind_last)
