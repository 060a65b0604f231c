"""What a replay may do with ranges that are in quarantine, and what becomes of them. Performs no I/O.

A replay takes ranges by writing its token into their rows. From then on a row says whose it is, and each landing compares the
whole of it before anything is written: docs/adr/0041.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint, is_origin_id, is_other_origin
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Ranges


@dataclass(frozen=True, order=True, slots=True)
class RangeKey:
    """What tells a failed range from the others of its stream."""

    batch: BatchNumber
    partition: Partition
    from_offset: int

    @classmethod
    def of(cls, row: FailureRow) -> RangeKey:
        """Return the key of a row."""
        return cls(row.batch, row.partition, row.from_offset)

    def __str__(self) -> str:
        return f"{self.batch}/{self.partition}/{self.from_offset}"


@dataclass(frozen=True, slots=True)
class Piece:
    """The first part of a claimed range, up to `until_offset`: what one transaction changes of it."""

    row: FailureRow
    until_offset: int

    @property
    def offsets(self) -> OffsetRange:
        """The range of offsets."""
        return OffsetRange(self.row.from_offset, self.until_offset)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the range is left behind it."""
        return self.until_offset >= self.row.until_offset


def ranges_of(pieces: Sequence[Piece]) -> Ranges:
    """Return what the pieces of one chunk hold, of which each is in another partition."""
    return Ranges({piece.row.partition: piece.offsets for piece in pieces})


def why_not(row: FailureRow, life: str) -> str | None:
    """Return why a range cannot be replayed into a stream of this life, as a sentence; None where nothing forbids it."""
    name = f"The range {RangeKey.of(row)}"
    if row.status not in HELD:
        return f"{name} is {row.status}: {_because(row.status)}."
    if row.life != life:
        return (
            f"{name} was quarantined before the stream started over, and a replay could land records that it has read since; "
            "write its records to the table by hand."
        )
    return None


def _because(status: FailureStatus) -> str:
    match status:
        case FailureStatus.OPEN:
            return "its batch is still retried"
        case FailureStatus.CLOSED:
            return "its batch has landed"
        case FailureStatus.LOST:
            return "its records take no effect and cannot be read any more"
        case FailureStatus.SUPERSEDED:
            return "the stream reads its records again itself"
        case FailureStatus.REPLAYED:
            return "a replay has landed its records"
        case FailureStatus.GIVEN_UP:
            return "it was given up, and `exactlyonce failures take-back` returns it to quarantine"
        case FailureStatus.QUARANTINED | FailureStatus.REPLAYING:
            return "it is in quarantine"
        case _:
            assert_never(status)


def claimed(row: FailureRow, token: str) -> FailureRow:
    """Return the row of a range that a replay has taken, from whichever replay had it before."""
    return replace(row, status=FailureStatus.REPLAYING, replay=token)


def is_held(found: FailureRow | None, row: FailureRow, life: str) -> bool:
    """Whether the ledger's row still is what was claimed: the same records, held by the same replay, in the same life."""
    return found is not None and life == row.life and _claim_of(found) == _claim_of(row)


def _claim_of(row: FailureRow) -> tuple[object, ...]:
    return (RangeKey.of(row), row.until_offset, row.status, row.replay, row.origin_id, row.life)


def parted(piece: Piece, status: FailureStatus, error: str | None = None) -> tuple[FailureRow, ...]:
    """Return the rows after the piece has got a status; what is left of its range stays as it is, and begins behind it.

    The fingerprint is of the range's last record, which goes with the rest.
    """
    row = piece.row
    done = replace(row, until_offset=piece.until_offset, status=status, error=row.error if error is None else error)
    if status is FailureStatus.QUARANTINED:
        done = replace(done, replay="")
    if piece.is_whole:
        return (done,)
    return (replace(done, fingerprint=None), rest_of(piece))


def rest_of(piece: Piece) -> FailureRow:
    """Return what is left of a range behind a piece that is not the whole of it."""
    return replace(piece.row, from_offset=piece.until_offset)


def in_replay_order(row: FailureRow) -> tuple[bool, RangeKey]:
    """Order ranges earliest first, and behind them those of one record: so is what a replay has put back since it failed.

    A replay ends after some failures; those that failed before are not to keep it from the rest each time.
    """
    return (row.offset_count == 1, RangeKey.of(row))


def next_chunk(rows: Sequence[FailureRow], most: int) -> tuple[Piece, ...]:
    """Return the pieces that land next: the first batch's, at most `most` offsets, one range of each partition."""
    if not rows:
        return ()
    in_order = sorted(rows, key=in_replay_order)
    pieces: dict[Partition, Piece] = {}
    left = most
    for row in in_order:
        if row.batch == in_order[0].batch and row.partition not in pieces and left > 0:
            piece = Piece(row, min(row.until_offset, row.from_offset + left))
            pieces[row.partition] = piece
            left -= piece.offsets.record_count
    return tuple(pieces.values())


@dataclass(frozen=True, slots=True)
class Held:
    """The source holds the range, and nothing says that its records are other ones."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Retention has taken the records before `until_offset`."""

    until_offset: int


@dataclass(frozen=True, slots=True)
class OfAnother:
    """The source holds other records there, or nothing tells whether it does; `words` is a sentence."""

    words: str


Finding = Held | Gone | OfAnother


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a source says of some ranges: earliest offsets, ids of origins, and the record where each range's last one was.

    `records` lacks what was not asked, and is None where no record is there. `compacted` are origins from which compaction
    takes records.
    """

    earliest: Mapping[Partition, int]
    origin_ids: Mapping[str, str]
    records: Mapping[Partition, Fingerprint | None]
    compacted: frozenset[str] = frozenset()


def finding_of(row: FailureRow, facts: SourceFacts) -> Finding:
    """Return what the source says of a range: it is held, it or a part is gone, or its records are of another origin."""
    origin, earliest = row.partition.origin, facts.earliest[row.partition]
    found_id, name = facts.origin_ids.get(origin), f"The range {RangeKey.of(row)}"
    if is_other_origin(row.origin_id, found_id):
        return OfAnother(
            f"{name} is of {origin} with the id {row.origin_id}, and the source holds {origin} with the id {found_id}: it was "
            "deleted and recreated, and other records stand there. Nothing of it was landed."
        )
    if earliest >= row.until_offset:
        return Gone(row.until_offset)
    if row.fingerprint is None and not (is_origin_id(row.origin_id) and is_origin_id(found_id)):
        return OfAnother(
            f"Nothing tells whether {origin} still holds the records of the range {RangeKey.of(row)}: it has no id, and none "
            "of the last record was kept. Nothing of it was landed; write its records to the table by hand."
        )
    difference = _difference(row, facts)
    if difference is not None:
        return OfAnother(
            f"{name} has another last record in the source than when it was recorded ({difference}), so the log lost "
            "records and others stand in their place. Nothing of it was landed."
        )
    return Gone(earliest) if earliest > row.from_offset else Held()


def _difference(row: FailureRow, facts: SourceFacts) -> str | None:
    if row.fingerprint is None or row.partition not in facts.records:
        return None
    found = facts.records[row.partition]
    if found is None and row.partition.origin in facts.compacted:
        return None
    return row.fingerprint.difference(found)
