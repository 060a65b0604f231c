"""Positions that are given for the shards of a stream: whether they fit its shards, and each other. Performs no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from exactlyonce.bounded_text import some_of
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    UserRecord,
    position_after_record,
    to_text,
)
from exactlyonce.connectors.kinesis.shards import Shard, ancestors_of, children_of, listed_parents
from exactlyonce.errors import StartInvalid

_SHOWN = 5

Invalid = Callable[[str], StartInvalid]
"""Makes the error of what is wrong with the positions, in words that follow on where they are given."""


def given(shards: Sequence[Shard], given_positions: Mapping[str, int], invalid: Invalid) -> dict[str, int]:
    """Return the positions given, with the ancestors of those shards at their ends: they are not read.

    Raises:
        StartInvalid: if a shard is given that is not listed, one is left out, or a child would be read before its parent.
    """
    by_id = {shard.id: shard for shard in shards}
    unknown = sorted(given_positions.keys() - by_id.keys())
    if unknown:
        raise invalid(f"names {some(unknown)}, which the stream does not list")
    ancestors = ancestors_of(shards, given_positions) - given_positions.keys()
    positions = {**dict.fromkeys(ancestors, SHARD_END), **given_positions}
    for name, position in sorted(positions.items()):
        shard = by_id[name]
        require_within(shard, position, invalid)
        early = [parent for parent in shard.parents if positions.get(parent, SHARD_END) != SHARD_END]
        if early:
            raise invalid(
                f"names {name} and its parent {early[0]} at {to_text(positions[early[0]])}; a shard is read once its parents "
                f"are at SHARD_END, so leave {name} out"
            )
    lacking = not_given(shards, given_positions)
    if lacking:
        raise invalid(f"lacks {some(lacking)}")
    return positions


def not_given(shards: Sequence[Shard], names: Iterable[str]) -> list[str]:
    """Return the shards that neither are named, nor follow on those named, nor are their ancestors."""
    given_names = frozenset(names)
    named = given_names | ancestors_of(shards, given_names) | _descendants(shards, given_names)
    return [shard.id for shard in shards if shard.id not in named]


def require_within(shard: Shard, position: int, invalid: Invalid) -> None:
    """Require that a position lies within a shard, as far as ListShards tells.

    Raises:
        StartInvalid: if it is one of another shard or stream, or the end of one that is open.
    """
    lowest = UserRecord(shard.starting_sequence_number).position
    if position == TRIM_HORIZON or (position == SHARD_END and not shard.is_open):
        return
    if position == SHARD_END:
        raise invalid(f"has {shard.id} at SHARD_END, and that shard is open")
    ending = shard.ending_sequence_number
    if position < lowest or (ending is not None and position > position_after_record(ending)):
        raise invalid(
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
            if not one_less(waits, child.id) and child.id not in reached:
                reached.add(child.id)
                waiting.append(child.id)
    return frozenset(reached)


def one_less(waits: dict[str, int], shard_id: str) -> int:
    """Let a shard wait for one parent less, and return for how many it still waits."""
    waits[shard_id] -= 1
    return waits[shard_id]


def some(names: Sequence[str]) -> str:
    """Return a list of names that a message has room for."""
    return some_of(names, _SHOWN)
