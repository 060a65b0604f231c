"""To which shard a record belongs, by its hash key, over shards as ListShards told them. Performs no I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.errors import SourceRefused


class HashKeyOutside(SourceRefused):
    """No shard of a map holds a hash key."""


@dataclass(frozen=True)
class ShardMap:
    """Shards of one stream, open and closed. It is asked for each record, so it is searched by halves."""

    shards: tuple[Shard, ...]

    def belongs_to(self, shard: str, hash_key: int) -> bool:
        """Whether this shard is in the map and holds a hash key."""
        found = self._by_id.get(shard)
        return found is not None and found.holds_key(hash_key)

    def shard_of(self, hash_key: int, sequence_number: int | None = None) -> Shard:
        """Return the shard that a record belongs to.

        With its sequence number it is the one that was opened last before it, as a shard is closed before its children are
        opened; so the map has to have been asked for later than the record was put. A record that comes without one (from a
        file, a replay) belongs to a shard that is open in the map: so the map has to be one of the record's time.

        Raises:
            HashKeyOutside: if no shard of the map holds it.
        """
        place = bisect_right(self._bounds, hash_key) - 1
        for shard in self._holding[place] if place >= 0 else ():
            if shard.is_open if sequence_number is None else shard.starting_sequence_number <= sequence_number:
                return shard
        when = "is open" if sequence_number is None else f"was opened before sequence number {sequence_number}"
        raise HashKeyOutside(f"No shard of the map that {when} holds hash key {hash_key}.")

    @cached_property
    def _by_id(self) -> dict[str, Shard]:
        return {shard.id: shard for shard in self.shards}

    @cached_property
    def _bounds(self) -> list[int]:
        """The hash keys at which a shard begins or the next one behind it could, in order."""
        return sorted({key for shard in self.shards for key in (shard.starting_hash_key, shard.ending_hash_key + 1)})

    @cached_property
    def _holding(self) -> list[list[Shard]]:
        """The shards that hold the hash keys from each bound to the next one, opened last first."""
        found: list[list[Shard]] = [[] for _ in self._bounds]
        for shard in sorted(self.shards, key=lambda shard: (shard.starting_sequence_number, shard.id), reverse=True):
            first, end = (
                bisect_left(self._bounds, key) for key in (shard.starting_hash_key, shard.ending_hash_key + 1)
            )
            for holding in found[first:end]:
                holding.append(shard)
        return found
