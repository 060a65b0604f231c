"""Where a new stream starts in each shard. Each shard that is to be read is named, except those that follow on one that is.

A child is read once its parents are read to their ends. So it is named at the start only if all of its parents are named at
their ends, or are not listed any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    UserRecord,
    from_text,
    position_after_record,
    to_text,
)
from exactlyonce.connectors.kinesis.shard_reader import first_page
from exactlyonce.connectors.kinesis.shards import Shard, require_whole_map
from exactlyonce.connectors.kinesis.spec import KinesisSource, StartFrom
from exactlyonce.errors import SourceUnreachable, StartInvalid

_MOST_PAGES_TO_TIP = 10_000


def starting_positions(client: KinesisClient, arn_or_name: str, spec: KinesisSource) -> dict[str, int]:
    """Return where each shard starts.

    Raises:
        StartInvalid: if positions are given that do not fit the shards.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    shards = client.shards(arn_or_name)
    require_whole_map(shards)
    match spec.start.from_:
        case StartFrom.TRIM_HORIZON:
            return in_order(shards, lambda shard: TRIM_HORIZON)
        case StartFrom.LATEST:
            return {shard.id: tip_of(client, arn_or_name, shard) for shard in shards}
        case StartFrom.TIMESTAMP:
            moment = spec.start.moment
            return in_order(shards, lambda shard: at_moment(client, arn_or_name, shard, moment))
        case StartFrom.POSITIONS:
            return given(shards, spec.start.positions)


def in_order(shards: Sequence[Shard], start_of: Callable[[Shard], int]) -> dict[str, int]:
    """Return the start of each shard whose listed parents all start at their ends; the others follow. Performs no I/O."""
    waiting = {shard.id: shard for shard in shards}
    listed, found = frozenset(waiting), dict[str, int]()
    while ready := [
        shard
        for shard in waiting.values()
        if all(found.get(parent) == SHARD_END for parent in shard.parents if parent in listed)
    ]:
        for shard in ready:
            found[shard.id] = start_of(shard)
            del waiting[shard.id]
    return found


def tip_of(client: KinesisClient, stream: str, shard: Shard) -> int:
    """Return the position behind the last record that is there: Kinesis names it only to who reads up to it.

    Raises:
        SourceUnreachable: if producers are faster than it can be read.
    """
    if not shard.is_open:
        return SHARD_END
    position, iterator = TRIM_HORIZON, client.iterator(stream, shard.id, ShardIteratorType="TRIM_HORIZON")
    for _ in range(_MOST_PAGES_TO_TIP):
        page = client.records(stream, shard.id, iterator)
        if page.records:
            position = position_after_record(page.records[-1].sequence_number)
        if page.next_iterator is None:
            return SHARD_END
        if not page.milliseconds_behind:
            return position
        iterator = page.next_iterator
    raise SourceUnreachable(
        f"The newest record of shard {shard.id} of stream {stream} was not reached; start from a Timestamp instead."
    )


def at_moment(client: KinesisClient, stream: str, shard: Shard, moment: datetime) -> int:
    """Return the position at the first record that arrived at or after a moment, or behind the last one if none did."""
    page = first_page(
        client,
        stream,
        shard.id,
        client.iterator(stream, shard.id, ShardIteratorType="AT_TIMESTAMP", Timestamp=moment),
        most=1,
    )
    if page.records:
        return UserRecord(page.records[0].sequence_number).position
    return tip_of(client, stream, shard)


def given(shards: Sequence[Shard], texts: Mapping[str, str]) -> dict[str, int]:
    """Return the positions given, with the ancestors of those shards at their ends: they are not read. Performs no I/O.

    Raises:
        StartInvalid: if a shard is given that is not listed, one is left out, or a child would be read before its parent.
    """
    by_id = {shard.id: shard for shard in shards}
    unknown = sorted(texts.keys() - by_id.keys())
    if unknown:
        raise _invalid(f"names {', '.join(unknown)}, which the stream does not list")
    ancestors = _ancestors(texts, by_id) - texts.keys()
    positions = {**dict.fromkeys(ancestors, SHARD_END), **{shard: from_text(text) for shard, text in texts.items()}}
    for name, position in sorted(positions.items()):
        shard = by_id[name]
        _require_within(shard, position)
        early = [parent for parent in shard.parents if positions.get(parent, SHARD_END) != SHARD_END]
        if early:
            raise _invalid(
                f"names {name} and its parent {early[0]} at {to_text(positions[early[0]])}; a shard is read once its parents "
                f"are at SHARD_END, so leave {name} out"
            )
    lacking = [shard.id for shard in shards if shard.id not in positions and not _follows(shard, texts, by_id)]
    if lacking:
        raise _invalid(f"lacks {', '.join(lacking)}")
    return positions


def _require_within(shard: Shard, position: int) -> None:
    lowest = UserRecord(shard.starting_sequence_number).position
    if position == TRIM_HORIZON or (position == SHARD_END and not shard.is_open):
        return
    if position == SHARD_END:
        raise _invalid(f"has {shard.id} at SHARD_END, and that shard is open")
    ending = shard.ending_sequence_number
    if position < lowest or (ending is not None and position > position_after_record(ending)):
        raise _invalid(
            f"has {shard.id} at {to_text(position)}, and its sequence numbers are from {shard.starting_sequence_number} to "
            f"{'now on' if ending is None else ending}: it is one of another shard or stream"
        )


def _ancestors(names: Mapping[str, object], by_id: Mapping[str, Shard]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        parents = [parent for parent in by_id[waiting.pop()].parents if parent in by_id and parent not in found]
        found.update(parents)
        waiting += parents
    return frozenset(found)


def _follows(shard: Shard, named: Mapping[str, str], by_id: Mapping[str, Shard]) -> bool:
    """Whether a shard is a descendant of shards that are given: all of its parents that are listed are, or follow on one."""
    parents = [parent for parent in shard.parents if parent in by_id]
    return bool(parents) and all(parent in named or _follows(by_id[parent], named, by_id) for parent in parents)


def _invalid(what: str) -> StartInvalid:
    return StartInvalid(
        f"source.kinesis.start.positions {what}. Give one position for every shard, except descendants."
    )
