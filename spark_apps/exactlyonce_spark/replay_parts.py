"""The first part of a range that a replay lands, of sources whose positions count records and of others. No pyspark here.

Where the difference of two positions is not a number of records, the source itself says where a part of a range may end,
and what of it cannot be read any more: docs/adr/0054.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.replay_rules import Piece, in_replay_order, next_chunk, ranges_of
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.positions.ranges import OffsetRange, Partition

PART_BYTES = 64 * 1024 * 1024
"""Of one part, as the source stores it: its rows pass through the memory of the replay's own process."""


class PartUnfit(ExactlyOnceError):
    """The first part of a range cannot be read, however few records it has; it stays in quarantine."""


@dataclass(frozen=True, slots=True)
class Part:
    """The first part of a range, which ends between two records, or two files, that were really looked at.

    `weight` is what half of is tried where it fails: records, but at least 1 for each file. One that `is_single` cannot be
    divided; `name` is then what a sentence calls it.
    """

    until_offset: int
    records: int
    weight: int
    is_single: bool
    name: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """The part up to `until_offset` cannot be read as it was planned, and might be again; `words` is a sentence."""

    until_offset: int
    words: str
    name: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The source does not hold what is before `until_offset` any more; nobody knows how many records that were."""

    until_offset: int
    words: str


Divided = Part | Unfit | Expired


class RangeDivider(Protocol):
    """Divides ranges of a source whose positions count no records."""

    def first(self, partition: Partition, offsets: OffsetRange, most: int) -> Divided:
        """Return the first part of a range, of at most so many records unless the source cannot divide further.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable, Refused: by situation.
        """
        ...

    def forget(self) -> None:
        """Look again at what is asked for next: what was found before cannot be read any more."""
        ...

    def text(self, offsets: OffsetRange) -> str:
        """Return a range in words."""
        ...

    @property
    def looked_at(self) -> int:
        """How many records were looked at so far: it grows while a part is looked for, which is a sign of progress."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one transaction lands: pieces of ranges, and how many records they have."""

    pieces: tuple[Piece, ...]
    records: int
    weight: int
    is_single: bool
    name: str = "The record"


class Chunks:
    """Says what of the claimed ranges lands next; without a divider, by the widths of the ranges."""

    def __init__(self, divider: RangeDivider | None = None) -> None:
        self._divider = divider

    def next(self, rows: Sequence[FailureRow], most: int) -> Chunk | None:
        """Return the next chunk, None where nothing is left. One that a divider has yet to see is a whole range."""
        if not rows:
            return None
        if self._divider is None:
            pieces = next_chunk(rows, most)
            count = ranges_of(pieces).record_count
            return Chunk(pieces, count, count, count <= 1)
        row = min(rows, key=in_replay_order)
        return Chunk((Piece(row, row.until_offset),), 0, 0, is_single=False)

    def divided(self, chunk: Chunk, most: int) -> Chunk | Unfit | Expired:
        """Return the part of a chunk that is read now, or why the first part of it is not.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable, Refused: as `RangeDivider.first`.
        """
        if self._divider is None:
            return chunk
        (piece,) = chunk.pieces
        found = self._divider.first(piece.row.partition, piece.offsets, most)
        if not isinstance(found, Part):
            return found
        pieces = (Piece(piece.row, found.until_offset),)
        return Chunk(pieces, found.records, found.weight, found.is_single, found.name)

    @property
    def is_divided(self) -> bool:
        """Whether a divider looks at what is read next."""
        return self._divider is not None

    def forget(self) -> None:
        """Look again at what comes next."""
        if self._divider is not None:
            self._divider.forget()

    def text(self, piece: Piece) -> str:
        """Return partition and range of a piece in words."""
        offsets = piece.offsets
        return f"{piece.row.partition} {offsets if self._divider is None else self._divider.text(offsets)}"

    def count_text(self, offsets: OffsetRange) -> str:
        """Return how many records a range has, as a part of a sentence; empty where nobody knows."""
        return f" of {offsets.record_count} records" if self._divider is None else ""
