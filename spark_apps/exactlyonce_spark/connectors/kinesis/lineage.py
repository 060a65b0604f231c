"""Which shards a batch's end names beside those that it starts with. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exactlyonce.connectors.kinesis.positions import SHARD_END
from exactlyonce.connectors.kinesis.shards import Shard, ancestors_of, children_of


def waiting_parents(shards: Iterable[Shard], starts: Mapping[str, int]) -> frozenset[str]:
    """Return the listed shards that have been read to their end and of which no child has appeared yet.

    One that is listed no more has children that are listed, and appear, or that have expired as well: nothing is to come.
    """
    listed = tuple(shards)
    followers = children_of(listed)
    ended = (shard.id for shard in listed if starts.get(shard.id) == SHARD_END)
    return frozenset(shard for shard in ended if not any(child.id in starts for child in followers.get(shard, ())))


def appearing(shards: Iterable[Shard], starts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the children that the next batch's end has to name: their parents have all been read to their ends.

    A parent without a position was read before, or lies before the stream's start, unless it is itself still to appear: then
    its children wait for it. A shard none of whose parents is known is no child of what is read, so it is left alone.
    """
    listed = tuple(shards)
    to_come = _to_come(listed, starts)
    return tuple(
        shard.id
        for shard in listed
        if shard.id in to_come
        and to_come.isdisjoint(shard.parents)
        and all(starts.get(parent, SHARD_END) == SHARD_END for parent in shard.parents)
    )


def forgotten(shards: Iterable[Shard], starts: Mapping[str, int]) -> frozenset[str]:
    """Return the shards that a batch's end may leave out: read to their end, expired, and their children are named."""
    listed = tuple(shards)
    ids, children = {shard.id for shard in listed}, children_of(listed)
    return frozenset(
        shard
        for shard, position in starts.items()
        if position == SHARD_END
        and shard not in ids
        and (followers := children.get(shard))
        and all(child.id in starts for child in followers)
    )


def unreachable(shards: Iterable[Shard], starts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the open shards that follow on none that is read: those between have expired before anybody named them.

    Each shard of a stream is named at its start or follows on one that is, so of these nobody would ever read a record.
    """
    listed = tuple(shards)
    to_come = _to_come(listed, starts)
    return tuple(shard.id for shard in listed if shard.is_open and shard.id not in starts and shard.id not in to_come)


def _to_come(listed: Sequence[Shard], starts: Mapping[str, int]) -> frozenset[str]:
    """Return the descendants of what is read that are not read yet.

    An ancestor of what is read was read before it: it had expired and been left out, and is not read a second time because it
    is listed again.
    """
    followers = children_of(listed)
    known = ancestors_of(listed, starts) | starts.keys()
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        new = {child.id for child in followers.get(waiting.pop(), ())} - known - found
        found |= new
        waiting += new
    return frozenset(found)
