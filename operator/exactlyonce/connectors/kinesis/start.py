"""Where a new stream starts in each shard. Each shard that is to be read is named, except those that follow on one that is.

A child is read once its parents are read to their ends. So it is named at the start only if all of its parents are named at
their ends, or are not listed any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.look_back import at_moment, tip_of
from exactlyonce.connectors.kinesis.patience import Deadline, each
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    UserRecord,
    from_text,
    position_after_record,
    to_text,
)
from exactlyonce.connectors.kinesis.shards import Shard, ancestors_of, children_of, listed_parents, require_whole_map
from exactlyonce.connectors.kinesis.spec import KinesisSource, StartFrom
from exactlyonce.errors import StartInvalid

_START_SECONDS = 240.0
"""How long the starts of all shards may be looked for: a pass of the operator has ten minutes."""

_SHOWN = 5


def starting_positions(
    client: KinesisClient, arn_or_name: str, spec: KinesisSource, shards: Sequence[Shard]
) -> dict[str, int]:
    """Return where each of the listed shards starts.

    Parents that are listed no more, of shards that follow, are at their ends: they were gone before the stream began, so
    nothing of them is owed to it.

    Raises:
        StartInvalid: if positions are given that do not fit the shards.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    require_whole_map(shards)
    found = _found(client, arn_or_name, spec, shards)
    ids = {shard.id for shard in shards}
    gone = {parent for shard in shards if shard.id not in found for parent in shard.parents if parent not in ids}
    return {**dict.fromkeys(sorted(gone), SHARD_END), **found}


def _found(client: KinesisClient, arn_or_name: str, spec: KinesisSource, shards: Sequence[Shard]) -> dict[str, int]:
    deadline = Deadline.within(client.clock, _START_SECONDS)
    match spec.start.from_:
        case StartFrom.TRIM_HORIZON:
            return in_order(shards, lambda shard: TRIM_HORIZON)
        case StartFrom.LATEST:
            tips = each(lambda shard: tip_of(client, arn_or_name, shard, deadline), shards)
            return dict(zip((shard.id for shard in shards), tips, strict=True))
        case StartFrom.TIMESTAMP:
            moment = spec.start.moment
            return in_order(shards, lambda shard: at_moment(client, arn_or_name, shard, moment, deadline), each)
        case StartFrom.POSITIONS:
            return given(shards, spec.start.positions)


def in_order(
    shards: Sequence[Shard],
    start_of: Callable[[Shard], int],
    ask: Callable[[Callable[[Shard], int], Sequence[Shard]], Iterable[int]] = map,
) -> dict[str, int]:
    """Return the start of each shard whose listed parents all start at their ends; the others follow. Performs no I/O itself.

    `ask` applies `start_of` to shards that do not wait for each other.
    """
    followers, waits = children_of(shards), listed_parents(shards)
    found: dict[str, int] = {}
    ready = [shard for shard in shards if not waits[shard.id]]
    while ready:
        starts = dict(zip((shard.id for shard in ready), ask(start_of, ready), strict=True))
        found |= starts
        ready = [
            child
            for parent, position in starts.items()
            if position == SHARD_END
            for child in followers.get(parent, ())
            if not _one_less(waits, child.id)
        ]
    return found


def _one_less(waits: dict[str, int], shard_id: str) -> int:
    waits[shard_id] -= 1
    return waits[shard_id]


def given(shards: Sequence[Shard], texts: Mapping[str, str]) -> dict[str, int]:
    """Return the positions given, with the ancestors of those shards at their ends: they are not read. Performs no I/O.

    Raises:
        StartInvalid: if a shard is given that is not listed, one is left out, or a child would be read before its parent.
    """
    by_id = {shard.id: shard for shard in shards}
    unknown = sorted(texts.keys() - by_id.keys())
    if unknown:
        raise _invalid(f"names {_some(unknown)}, which the stream does not list")
    ancestors = ancestors_of(shards, texts) - texts.keys()
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
    named = positions.keys() | _descendants(shards, texts)
    lacking = [shard.id for shard in shards if shard.id not in named]
    if lacking:
        raise _invalid(f"lacks {_some(lacking)}")
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


def _descendants(shards: Sequence[Shard], named: Iterable[str]) -> frozenset[str]:
    """Return the shards that follow on those named: all of their parents that are listed are named, or follow themselves."""
    followers, waits = children_of(shards), listed_parents(shards)
    reached = set(named)
    waiting = list(reached)
    while waiting:
        for child in followers.get(waiting.pop(), ()):
            if not _one_less(waits, child.id) and child.id not in reached:
                reached.add(child.id)
                waiting.append(child.id)
    return frozenset(reached)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _invalid(what: str) -> StartInvalid:
    return StartInvalid(
        f"source.kinesis.start.positions {what}. Give one position for every shard, except descendants."
    )
