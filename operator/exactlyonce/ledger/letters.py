"""What became of malformed records that a stream keeps as dead letters, and what a replay may do with them. Performs no I/O.

A letter is of a record that the stream has passed. Where the stream is set back before it, the record may land as a row, and a
replay of the letter would land it a second time. So each setting back is recorded, in the transaction that does it, by the
positions from which the stream reads again; a letter of an earlier batch at or behind such a position is Superseded. Nothing is
written to the letters themselves then: they may be millions, and that transaction must be short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn, Protocol, assert_never, runtime_checkable

from exactlyonce.errors import Refused
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.fingerprint import is_other_origin
from exactlyonce.positions.ranges import BatchNumber, Partition

LetterKey = tuple[str, str, int, int]
"""What tells a dead letter from the others of its stream, and where the next page of them begins; it has no other meaning."""


class LetterStatus(StrEnum):
    """What became of a malformed record."""

    KEPT = "Kept"
    """The record has no row in the sink."""
    REPLAYING = "Replaying"
    """A replay has taken the letter and has not landed it; the row names the replay, which may have died since."""
    REPLAYED = "Replayed"
    """A replay has landed the record."""
    SUPERSEDED = "Superseded"
    """The stream reads the record again, or has read it again: it has landed as a row, or will, or is malformed once more."""


@dataclass(frozen=True, slots=True)
class LetterRow:
    """A dead letter without its content.

    `origin_id` is of the origin that the record is of, and `life` of the stream that kept it (`StreamRow.life`). `replay` is
    the replay that has claimed or landed it.
    """

    key: LetterKey
    partition: Partition
    position: int
    origin_id: str
    batch: BatchNumber
    error: str
    life: str
    status: LetterStatus = LetterStatus.KEPT
    replay: str = ""

    @property
    def identifier(self) -> str:
        """Partition and position; the same for the letters of an origin that was recreated."""
        return f"{self.partition}/{self.position}"


class SetBacksUnknown(Refused):
    """The ledger does not record from where a stream has read again, and somebody asks what may be landed beside it."""


@runtime_checkable
class RefusesGivenRanges(Protocol):
    """A transaction of a ledger that records no set-backs, so that what was Lost may have landed since."""

    def refuse_given_ranges(self, stream_id: str) -> NoReturn:
        """Raise SetBacksUnknown."""
        ...


@dataclass(frozen=True, slots=True)
class SetBack:
    """From `position` on the records of a partition are read again, in batches after `batch`."""

    partition: Partition
    position: int
    origin_id: str
    batch: BatchNumber


def set_backs_of(before: LandedPositions, after: LandedPositions, batch: BatchNumber) -> tuple[SetBack, ...]:
    """Return where a stream that stood at `before` reads again when it is set to `after`, whose seed has the number `batch`.

    A partition in which it did not stand may be one that it has read a while ago.
    """
    return tuple(
        SetBack(partition, position, after.origin_ids.get(partition.origin, ""), batch)
        for partition, position in after.positions.items()
        if position < before.positions.get(partition, position + 1)
        or is_other_origin(before.origin_ids.get(partition.origin), after.origin_ids.get(partition.origin))
    )


def status_of(row: LetterRow, set_backs: Iterable[SetBack]) -> LetterStatus:
    """Return what became of a letter; what was replayed before the stream was set back stays that."""
    if row.status is LetterStatus.REPLAYED:
        return row.status
    return LetterStatus.SUPERSEDED if any(_is_read_again(row, it) for it in set_backs) else row.status


def _is_read_again(row: LetterRow, set_back: SetBack) -> bool:
    if row.partition != set_back.partition or row.position < set_back.position or row.batch > set_back.batch:
        return False
    # Of an origin that was replaced, other records stand there: the stream does not read this one again.
    return not is_other_origin(row.origin_id, set_back.origin_id)


def why_letter_stays(row: LetterRow, status: LetterStatus, life: str) -> str | None:
    """Return why a letter of this status cannot be replayed into a stream of this life, as a sentence; else None."""
    name = f"The dead letter {row.identifier}"
    match status:
        case LetterStatus.REPLAYED:
            return f"{name} is Replayed: a replay has landed its record."
        case LetterStatus.SUPERSEDED:
            return f"{name} is Superseded: the stream was set back before it and reads its record again itself."
        case LetterStatus.KEPT | LetterStatus.REPLAYING:
            pass
        case _:
            assert_never(status)
    if row.life != life:
        return (
            f"{name} was kept before the stream started over, and a replay could land a record that it has read since; export "
            "it and write it to the table by hand."
        )
    return None


def taken_by(row: LetterRow, replay: str) -> LetterRow:
    """Return the row of a letter that a replay has taken, from whichever replay had it before."""
    return replace(row, status=LetterStatus.REPLAYING, replay=replay)


def replayed(row: LetterRow) -> LetterRow:
    """Return the row of a letter whose record the replay that holds it has landed."""
    return replace(row, status=LetterStatus.REPLAYED)


def kept_on(row: LetterRow, error: str | None = None) -> LetterRow:
    """Return the row of a letter that a replay has not landed, with what was wrong this time."""
    return replace(row, status=LetterStatus.KEPT, replay="", error=row.error if error is None else error)


def is_held_as(found: LetterRow | None, row: LetterRow, set_backs: Collection[SetBack]) -> bool:
    """Whether the ledger's row still is what a replay has claimed, and the stream has not been set back before it since."""
    return (
        found is not None
        and (found.key, found.batch, found.status, found.replay, found.life)
        == (row.key, row.batch, row.status, row.replay, row.life)
        and status_of(found, set_backs) is LetterStatus.REPLAYING
    )


def next_letters(rows: Iterable[LetterRow], most: int) -> Iterator[LetterRow]:
    """Yield the first rows, no more than `most`, that one transaction lands.

    Two of one place, of an origin that was recreated, are not among them: what is said of a record there is of one.
    """
    places: set[tuple[Partition, int]] = set()
    for row in rows:
        if len(places) >= most or (row.partition, row.position) in places:
            return
        places.add((row.partition, row.position))
        yield row
