"""The transactions of a replay, over any ledger: take ranges, land them, give up what is gone, put back what is left.

Each locks the stream's row, so replays, landings and whatever sets the positions back take turns. None touches the stream's
epoch, claim, positions or batches, and none ends a session of the stream: a landing does not wait for a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from exactlyonce.errors import CommitOutcomeUnknown, ExactlyOnceError, Refused
from exactlyonce.ledger.held import held_failures
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.replay_rules import Piece, RangeKey, claimed, is_held, parted, why_not
from exactlyonce.ledger.rows import FailureRow, FailureStatus, StreamRow

_TRIES = 3
"""Of a transaction whose outcome is unknown: each is safe to run again once it was looked for under the lock."""


class RangeNotHeld(ExactlyOnceError):
    """Another replay has taken a range, or the stream reads it again, or it is gone; nothing was changed."""


class NothingToReplayInto(Refused):
    """The ledger does not know the stream."""


@dataclass(frozen=True, slots=True)
class ReplayClaim:
    """A replay of one stream, by the random token that it writes into the rows of its ranges."""

    stream_id: str
    token: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """The ranges that a replay has taken, and a sentence for each that it may not take."""

    rows: tuple[FailureRow, ...]
    refused: tuple[str, ...] = ()


def claim_ranges(ledger: Ledger, claim: ReplayClaim, wanted: Collection[RangeKey]) -> Claimed:
    """Take ranges for a replay, and from another replay that has them: it can land nothing of them any more.

    Safe to repeat. A range that is not there, or not in quarantine, is refused by a sentence.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
        CommitOutcomeUnknown: if the outcome stayed unknown; a later replay takes them all the same.
    """
    for _ in range(_TRIES - 1):
        try:
            return _claim_once(ledger, claim, wanted)
        except CommitOutcomeUnknown:
            continue
    return _claim_once(ledger, claim, wanted)


@rerun_after_lost_race
def _claim_once(ledger: Ledger, claim: ReplayClaim, wanted: Collection[RangeKey]) -> Claimed:
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        if stream is None:
            raise NothingToReplayInto(f"The ledger has no row of {claim.stream_id}; start the stream first.")
        held = {RangeKey.of(row): row for row in held_failures(transaction, claim.stream_id)}
        absent = [f"The range {key} is not in quarantine." for key in sorted(wanted) if key not in held]
        reasons = {key: why_not(held[key], stream.life) for key in sorted(wanted) if key in held}
        rows = tuple(claimed(held[key], claim.token) for key, reason in reasons.items() if reason is None)
        if rows:
            transaction.write_failures(claim.stream_id, rows)
        return Claimed(rows, (*absent, *(reason for reason in reasons.values() if reason is not None)))


def land_pieces(
    ledger: Ledger, claim: ReplayClaim, pieces: Sequence[Piece], write: Callable[[LedgerTransaction], int]
) -> int | None:
    """Land the rows of one chunk and mark its ranges Replayed, in one transaction; return how many rows took effect.

    The number is None where the outcome had to be looked for. What is behind a piece stays claimed.

    Raises:
        RangeNotHeld: if one of the ranges is not this replay's any more; nothing was written.
        CommitOutcomeUnknown: if the outcome could not be settled; a later replay finds what is left.
    """
    changed = tuple(row for piece in pieces for row in parted(piece, FailureStatus.REPLAYED))
    written: list[int] = []

    def land(transaction: LedgerTransaction) -> None:
        written[:] = [write(transaction)]

    was_answered = _settled(ledger, claim, pieces, changed, land)
    return written[0] if was_answered else None


def give_up(ledger: Ledger, claim: ReplayClaim, piece: Piece, error: str) -> None:
    """Record that records of a range are lost: the source does not hold them any more. The rest of it stays claimed.

    Raises:
        RangeNotHeld, CommitOutcomeUnknown: as `land_pieces`.
    """
    _settled(ledger, claim, [piece], parted(piece, FailureStatus.LOST, error), _nothing)


def put_back(ledger: Ledger, claim: ReplayClaim, piece: Piece, error: str | None = None) -> None:
    """Put the piece back into quarantine, with the error of the replay where it failed; the rest of its range stays claimed.

    Raises:
        RangeNotHeld, CommitOutcomeUnknown: as `land_pieces`.
    """
    _settled(ledger, claim, [piece], parted(piece, FailureStatus.QUARANTINED, error), _nothing)


def _nothing(_transaction: LedgerTransaction) -> None:
    """Write no row."""


def _settled(
    ledger: Ledger,
    claim: ReplayClaim,
    pieces: Sequence[Piece],
    changed: tuple[FailureRow, ...],
    write: Callable[[LedgerTransaction], None],
) -> bool:
    """Change the rows of some pieces; where the outcome is unknown, look under the lock, and run it again if need be."""
    for remaining in reversed(range(_TRIES)):
        try:
            _change_once(ledger, claim, pieces, changed, write)
        except CommitOutcomeUnknown:
            if _has_changed(ledger, claim, changed):
                return False
            if not remaining:
                raise
        else:
            return True
    raise AssertionError("the last try returns or raises")


@rerun_after_lost_race
def _change_once(
    ledger: Ledger,
    claim: ReplayClaim,
    pieces: Sequence[Piece],
    changed: tuple[FailureRow, ...],
    write: Callable[[LedgerTransaction], None],
) -> None:
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        require_held(stream, transaction.read_failures(claim.stream_id, FailureStatus.REPLAYING), pieces)
        write(transaction)
        transaction.write_failures(claim.stream_id, changed)


@rerun_after_lost_race
def _has_changed(ledger: Ledger, claim: ReplayClaim, changed: Sequence[FailureRow]) -> bool:
    """Look under the stream's lock, which waits for the transaction whose outcome is unknown to end."""
    with ledger.transaction() as transaction:
        transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        found = {
            RangeKey.of(row): row
            for status in {row.status for row in changed}
            for row in transaction.read_failures(claim.stream_id, status)
        }
        # What is left of a range may be another replay's by now; what this one has ended is not.
        ended = [row for row in changed if row.status is not FailureStatus.REPLAYING]
        return all(_is_there(found.get(RangeKey.of(row)), row) for row in ended)


def _is_there(found: FailureRow | None, row: FailureRow) -> bool:
    return found is not None and (found.until_offset, found.status, found.replay) == (
        row.until_offset,
        row.status,
        row.replay,
    )


def require_held(stream: StreamRow | None, found: Sequence[FailureRow], pieces: Sequence[Piece]) -> None:
    """Require that the ledger has each piece's range as this replay has claimed it: the compare-and-set of a replay.

    Raises:
        RangeNotHeld: if it has not.
    """
    rows = {RangeKey.of(row): row for row in found}
    for piece in pieces:
        key = RangeKey.of(piece.row)
        if stream is None or not is_held(rows.get(key), piece.row, stream.life):
            raise RangeNotHeld(
                f"The range {key} is not held by this replay any more: another replay has taken it, the stream reads it again, "
                "or it has landed. Nothing was written by this; `exactlyonce failures --all` shows what became of it."
            )
