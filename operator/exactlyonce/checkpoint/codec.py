"""The port to what a source writes into Spark's logs. Performs no I/O."""

from __future__ import annotations

from typing import Protocol

from exactlyonce.positions.ranges import Positions


class PositionCodec(Protocol):
    """How the entries of one kind of source stand for positions.

    Parsing raises `FileEmpty`, `FileTorn` or `VersionUnsupported` of `checkpoint.files`, by what is wrong.
    """

    def parse_entry(self, text: str) -> Positions:
        """Parse the source's line of `offsets/N`."""
        ...

    def render_entry(self, positions: Positions) -> str:
        """Return that line."""
        ...

    def parse_start(self, content: bytes) -> Positions:
        """Parse `sources/0/0`: where batch 0 of a query starts that was not seeded."""
        ...

    def render_start(self, positions: Positions) -> bytes:
        """Return the content of that file."""
        ...
