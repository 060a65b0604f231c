"""The shards of a stream as tasks are given them: asked for where one is not known, as their ranges never change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exactlyonce.connectors.kinesis.answers import ShardMissing
from exactlyonce.connectors.kinesis.shards import Shard


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

    def map(self, shard: str) -> tuple[Shard, ...]:
        """Return the shards of the stream with this one among them, or none where they are not needed.

        A record of this shard belongs to it, or to one that was open beside it; as long as a record is there, so are those.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        if not self._needs_map:
            return ()
        self._knows(shard)
        return tuple(self._known.values())

    def _knows(self, shard: str) -> bool:
        if shard not in self._known:
            self._known = {found.id: found for found in self._list()}
        return shard in self._known
