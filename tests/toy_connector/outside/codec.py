"""What the memory's reader writes into Spark's logs: `{"memory": {"0": 5}}`. Performs no I/O."""

from __future__ import annotations

from exactlyonce.checkpoint.files import FileEmpty, FileTorn, text_of
from exactlyonce.positions.ranges import MalformedPositions, Positions


class ToyCodec:
    """A `PositionCodec`."""

    def parse_entry(self, text: str) -> Positions:
        """Parse the source's line of `offsets/N`."""
        try:
            return Positions.from_json(text)
        except MalformedPositions as problem:
            raise FileTorn(str(problem)) from problem

    def render_entry(self, positions: Positions) -> str:
        """Return that line."""
        return positions.to_json()

    def parse_start(self, content: bytes) -> Positions:
        """Parse `sources/0/0`, which Spark does not read for a source in Python."""
        if not content:
            raise FileEmpty("it has no bytes")
        return self.parse_entry(text_of(content))

    def render_start(self, positions: Positions) -> bytes:
        """Return the content of that file."""
        return positions.to_json().encode()


CODEC = ToyCodec()
