"""What the reader of Kinesis writes into Spark's offset log: `{"<stream>": {"<shard>": "after 4957…"}}`. Performs no I/O.

Positions are texts: Spark's own JSON, and whoever reads the file, need not hold integers of 288 bits.
"""

from __future__ import annotations

import json
import re

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.checkpoint.files import FileEmpty, FileTorn, text_of
from exactlyonce.connectors.kinesis.positions import MalformedPosition, from_text, to_text
from exactlyonce.connectors.kinesis.shards import NAME
from exactlyonce.positions.ranges import Partition, Positions

_NAME = re.compile(NAME)


class KinesisCodec:
    """A `PositionCodec` for shards of a Kinesis stream."""

    def parse_entry(self, text: str) -> Positions:
        """Parse the source's line of `offsets/N`.

        Raises:
            FileTorn: naming what `render_entry` does not write: one position has one text, and one stream one map.
        """
        try:
            streams = parse_json(text, names_once=True)
        except JsonRefused as problem:
            raise FileTorn(f"{text[:80]!r} is {problem}, where a map of streams belongs") from problem
        if not isinstance(streams, dict):
            raise FileTorn(f"{text[:80]!r} is not a map of streams")
        positions: dict[Partition, int] = {}
        for stream, shards in streams.items():
            if _NAME.fullmatch(stream) is None:
                raise FileTorn(f"{stream!r:.80} is not the name of a stream")
            if not isinstance(shards, dict):
                raise FileTorn(f"stream {stream} has {shards!r:.80} where a map of shards belongs")
            for shard, position in shards.items():
                positions[Partition(stream, shard)] = _parsed(stream, shard, position)
        return Positions(positions)

    def render_entry(self, positions: Positions) -> str:
        """Return that line."""
        streams: dict[str, dict[str, str]] = {}
        for partition, position in positions.items():
            streams.setdefault(partition.origin, {})[str(partition.key)] = to_text(position)
        return json.dumps(streams, separators=(",", ":"))

    def parse_start(self, content: bytes) -> Positions:
        """Parse `sources/0/0`, which Spark does not read for a source in Python."""
        if not content:
            raise FileEmpty("it has no bytes")
        return self.parse_entry(text_of(content))

    def render_start(self, positions: Positions) -> bytes:
        """Return the content of that file."""
        return self.render_entry(positions).encode()


def _parsed(stream: str, shard: str, position: object) -> int:
    if _NAME.fullmatch(shard) is None:
        raise FileTorn(f"stream {stream} has {shard!r:.80} where the id of a shard belongs")
    if not isinstance(position, str):
        raise FileTorn(f"shard {shard} of stream {stream} has {position!r:.80} where a position belongs")
    try:
        return from_text(position)
    except MalformedPosition as problem:
        raise FileTorn(f"shard {shard} of stream {stream}: {problem}") from problem


CODEC = KinesisCodec()
