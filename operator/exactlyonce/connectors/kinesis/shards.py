"""The shards of a stream: which keys each holds, which follow on which, and whether their map has no gap. Performs no I/O.

A shard holds the records whose hash key lies within its range, both ends inclusive. The hash key is the MD5 of the partition
key as an unsigned 128-bit integer, or the explicit hash key. A split closes one shard and opens two; a merge closes two and
opens one. A closed shard is listed until its last record has expired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from exactlyonce.errors import SourceRefused

GREATEST_HASH_KEY = (1 << 128) - 1

NAME = "[a-zA-Z0-9_.-]{1,128}"
"""What a stream may be called, and a shard."""


class ShardMapBroken(SourceRefused):
    """The open shards of a stream leave out a range of hash keys, or two of them hold the same range."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as ListShards shows it. `ending_sequence_number` is None while it is open."""

    id: str
    parents: tuple[str, ...]
    starting_hash_key: int
    ending_hash_key: int
    starting_sequence_number: int
    ending_sequence_number: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether records may still be added."""
        return self.ending_sequence_number is None

    def holds_key(self, hash_key: int) -> bool:
        """Whether records with this hash key belong here."""
        return self.starting_hash_key <= hash_key <= self.ending_hash_key


def children_of(shards: Iterable[Shard]) -> dict[str, list[Shard]]:
    """Return the shards that a split or merge made of each shard: two, or one; a shard that is open has none."""
    found: dict[str, list[Shard]] = {}
    for shard in shards:
        for parent in dict.fromkeys(shard.parents):
            found.setdefault(parent, []).append(shard)
    return found


def ancestors_of(shards: Iterable[Shard], names: Iterable[str]) -> frozenset[str]:
    """Return the shards of which those named were made, at whatever distance, as far as they are still listed."""
    by_id = {shard.id: shard for shard in shards}
    found: set[str] = set()
    waiting = [by_id[name] for name in names if name in by_id]
    while waiting:
        parents = [by_id[parent] for parent in waiting.pop().parents if parent in by_id and parent not in found]
        found.update(parent.id for parent in parents)
        waiting += parents
    return frozenset(found)


def listed_parents(shards: Collection[Shard]) -> dict[str, int]:
    """Return how many parents of each shard are still listed."""
    ids = {shard.id for shard in shards}
    return {shard.id: len(ids.intersection(shard.parents)) for shard in shards}


def require_whole_map(shards: Iterable[Shard]) -> None:
    """Require that each hash key belongs to exactly one open shard.

    Raises:
        ShardMapBroken: naming the first range of hash keys that no shard holds, or that two hold.
    """
    next_key, last = 0, "the lowest hash key"
    for shard in sorted((shard for shard in shards if shard.is_open), key=lambda shard: shard.starting_hash_key):
        if shard.starting_hash_key > next_key:
            raise _gap(next_key, shard.starting_hash_key - 1, last, shard.id)
        if shard.starting_hash_key < next_key:
            shared_end = min(next_key - 1, shard.ending_hash_key)
            raise ShardMapBroken(
                f"Hash keys {shard.starting_hash_key} to {shared_end} belong to two open shards, {last} and {shard.id}; "
                "wait until the stream is ACTIVE, and check what ListShards answers if this continues."
            )
        next_key, last = shard.ending_hash_key + 1, shard.id
    if next_key <= GREATEST_HASH_KEY:
        raise _gap(next_key, GREATEST_HASH_KEY, last, "the greatest hash key")


def hash_key_of(partition_key: str, explicit_hash_key: str | None) -> int:
    """Return the hash key by which a record belongs to a shard; an explicit one satisfies `is_hash_key`."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest())


def is_hash_key(text: str) -> bool:
    """Whether a text is an explicit hash key: a decimal integer of at most 128 bits."""
    return text.isascii() and text.isdigit() and len(text) <= 39 and int(text) <= GREATEST_HASH_KEY


def _gap(start: int, end: int, before: str, after: str) -> ShardMapBroken:
    return ShardMapBroken(
        f"No open shard holds hash keys {start} to {end}, between {before} and {after}; "
        "wait until the stream is ACTIVE, and check what ListShards answers if this continues."
    )
