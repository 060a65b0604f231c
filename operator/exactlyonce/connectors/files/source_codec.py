"""What the reader of a folder writes into Spark's offset log: `{"<folder>": {"0": "12:9f3a…"}}`. Performs no I/O.

Positions are texts: Spark's own JSON, and whoever reads the file, need not hold integers of 288 bits.
"""

from __future__ import annotations

import json

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.checkpoint.files import FileEmpty, FileTorn, text_of
from exactlyonce.connectors.files.source_position import MalformedPosition, from_text, to_text
from exactlyonce.connectors.files.source_spec import KEY
from exactlyonce.positions.ranges import Partition, Positions


class FolderCodec:
    """A `PositionCodec` for folders."""

    def parse_entry(self, text: str) -> Positions:
        """Parse the source's line of `offsets/N`.

        Raises:
            FileTorn: naming what `render_entry` does not write.
        """
        try:
            folders = parse_json(text, names_once=True)
        except JsonRefused as problem:
            raise FileTorn(f"{text[:80]!r} is {problem}, where a map of folders belongs") from problem
        if not isinstance(folders, dict):
            raise FileTorn(f"{text[:80]!r} is not a map of folders")
        return Positions(
            {Partition(folder, KEY): at for folder, held in folders.items() for at in _parsed(folder, held)}
        )

    def render_entry(self, positions: Positions) -> str:
        """Return that line."""
        folders = {partition.origin: {str(partition.key): to_text(at)} for partition, at in positions.items()}
        return json.dumps(folders, separators=(",", ":"))

    def parse_start(self, content: bytes) -> Positions:
        """Parse `sources/0/0`, which Spark does not read for a source in Python."""
        if not content:
            raise FileEmpty("it has no bytes")
        return self.parse_entry(text_of(content))

    def render_start(self, positions: Positions) -> bytes:
        """Return the content of that file."""
        return self.render_entry(positions).encode()


def _parsed(folder: str, held: object) -> tuple[int, ...]:
    """Return the position of a folder; none for one that is named and not read yet."""
    if held == {}:
        return ()
    if not isinstance(held, dict) or list(held) != [str(KEY)] or not isinstance(held[str(KEY)], str):
        raise FileTorn(f"folder {folder[:80]!r} has {held!r:.80} where a position belongs")
    try:
        return (from_text(held[str(KEY)]),)
    except MalformedPosition as problem:
        raise FileTorn(f"folder {folder[:80]!r}: {problem}") from problem


CODEC = FolderCodec()
