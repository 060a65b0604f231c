"""The shards of a stream as tasks are given them.

The range of a shard never changes, so it is asked for where it is not known. A map of all shards is one of its time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from exactlyonce.connectors.kinesis.answers import ShardMissing
from exactlyonce.connectors.kinesis.shard_map import ShardMap
from exactlyonce.connectors.kinesis.shards import Shard


@dataclass(frozen=True, slots=True)
class PackedMap:
    """A map of shards on its way to tasks: it is written once for all tasks of a batch, 120 kB and 10 ms for 1,000 shards."""

    packed: bytes

    @staticmethod
    def of(shards: ShardMap) -> PackedMap:
        """Return it as it travels."""
        return PackedMap(pickle.dumps(shards.shards))

    def unpacked(self) -> ShardMap:
        """Return the map."""
        return ShardMap(pickle.loads(self.packed))  # noqa: S301 - the driver has sent it, as it does the task around it


class KnownShards:
    """The shards of one stream; nothing is asked for that is not needed."""

    def __init__(
        self, stream: str, list_shards: Callable[[], Sequence[Shard]], *, needs_range: bool, needs_map: bool
    ) -> None:
        self._stream = stream
        self._list = list_shards
        self._needs_range = needs_range
        self._needs_map = needs_map
        self._known: dict[str, Shard] = {}

    def of(self, shard: str) -> Shard | None:
        """Return a shard, or None where its range is not needed.

        Raises:
            ShardMissing: if it is listed no more.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        if not self._needs_range:
            return None
        if not self._knows(shard):
            raise ShardMissing(
                f"Shard {shard} of stream {self._stream} is listed no more, so its range of hash keys is not known; its "
                "records have expired."
            )
        return self._known[shard]

    def map(self, read: Collection[str]) -> PackedMap | None:
        """Return the shards of the stream as they are now, those that are read among them; None where they are not needed.

        A record belongs to the shard that was opened last before it. So this is asked for again for each batch, once its end is
        known and so each of its records is there: a shard of which nothing is read may have been split since the batch before.
        One that is read stays in the map when it is listed no more: its records may have been fetched before they expired.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        if not self._needs_map:
            return None
        self._known = {name: self._known[name] for name in read if name in self._known} | self._listed()
        return PackedMap.of(ShardMap(tuple(self._known.values())))

    def _knows(self, shard: str) -> bool:
        if shard not in self._known:
            self._known = self._listed()
        return shard in self._known

    def _listed(self) -> dict[str, Shard]:
        return {found.id: found for found in self._list()}
