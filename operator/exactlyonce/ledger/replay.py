"""The transactions of a replay, over any ledger: take ranges, land them, give up what is gone, put back what is left.

Each locks the stream's row, so replays, landings and whatever sets the positions back take turns. None touches the stream's
epoch, claim, positions or batches, and none ends a session of the stream: a landing does not wait for a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.ledger.held import HELD, held_failures
from exactlyonce.ledger.other_tables import OtherTable, require_other_table
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown, settle
from exactlyonce.ledger.replay_decisions import ReplayDecision, decided_by, record_decision, why_decided
from exactlyonce.ledger.replay_rules import Piece, RangeKey, claimed, is_held, parted, why_not
from exactlyonce.ledger.rows import FailureRow, FailureStatus, StreamRow


class RangeNotHeld(ExactlyOnceError):
    """Another replay has taken a range, or the stream reads it again, or it is gone; nothing was changed."""


class NothingToReplayInto(Refused):
    """The ledger does not know the stream, or the table that it lands into is not there yet."""


class SinkChanged(Refused):
    """The stream does not land into what a replay was decided for; nothing was changed."""


@dataclass(frozen=True, slots=True)
class ReplayClaim:
    """A replay of one stream, by the random token that it writes into the rows of its ranges.

    `sink` is what it was decided to land into; empty where nobody compares that. With `backfill` it lands the parts of the
    backfill of that name, into another table than the stream does, which by its resource lands into `own`.
    """

    stream_id: str
    token: str
    sink: str = ""
    backfill: str = ""
    own: str = ""


def require_sink(transaction: LedgerTransaction, claim: ReplayClaim) -> None:
    """Require that the stream lands into what the replay was decided for; the caller holds the stream's row.

    A stream has another sink from the claim of its first driver on that has it. Who holds the row is before that claim or
    behind it, so a replay lands nothing into a table that the stream has left.

    Raises:
        SinkChanged: if it does not; where the latest driver has not said what it lands into, nothing is compared.
        IntoOwnTable, IntoTakenTable: if a backfill lands where a stream does, or into the ledger.
    """
    if claim.backfill:
        require_other_table(transaction, claim.stream_id, OtherTable(claim.sink, claim.own))
        return
    found = transaction.read_sink(claim.stream_id) if claim.sink else None
    if found not in (None, claim.sink):
        raise SinkChanged(
            f"{claim.stream_id} lands into {found}, as its latest driver has recorded, and this replay is for {claim.sink}. "
            "Either the stream was started with another sink since the replay was decided, or its sink was changed and it has "
            "not been started with that yet. Nothing more was landed. Start the stream with the sink that it is to have, and "
            "replay again"
        )


@dataclass(frozen=True, slots=True)
class Claimed:
    """The ranges that a replay has taken, and a sentence for each that it may not take."""

    rows: tuple[FailureRow, ...]
    refused: tuple[str, ...] = ()


@rerun_while_unknown
@rerun_after_lost_race
def claim_ranges(ledger: Ledger, claim: ReplayClaim, wanted: Collection[RangeKey]) -> Claimed:
    """Take ranges for a replay, and from another replay that has them: it can land nothing of them any more.

    Safe to repeat. A range that is not there, or not in quarantine, is refused by a sentence.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
        SinkChanged: if the stream lands into something else.
        CommitOutcomeUnknown: if the outcome stayed unknown; a later replay takes them all the same.
    """
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        if stream is None:
            raise NothingToReplayInto(f"The ledger has no row of {claim.stream_id}; start the stream first.")
        require_sink(transaction, claim)
        if claim.backfill:
            return _claimed_of_backfill(transaction, claim)
        held = {RangeKey.of(row): row for row in held_failures(transaction, claim.stream_id)}
        absent = [f"The range {key} is not in quarantine." for key in sorted(wanted) if key not in held]
        reasons = {key: _why_not_taken(held[key], stream.life) for key in sorted(wanted) if key in held}
        rows = tuple(claimed(held[key], claim.token) for key, reason in reasons.items() if reason is None)
        if rows:
            transaction.write_failures(claim.stream_id, rows)
        return Claimed(rows, (*absent, *(reason for reason in reasons.values() if reason is not None)))


def _why_not_taken(row: FailureRow, life: str) -> str | None:
    """What a replay has decided is settled before anybody takes it: its rows may be in the sink."""
    return next(iter(why_decided([row])), None) or why_not(row, life)


def _claimed_of_backfill(transaction: LedgerTransaction, claim: ReplayClaim) -> Claimed:
    """Take all parts of a backfill that have not landed; what they are is in its record, and not in what asked for it."""
    rows = tuple(claimed(row, claim.token) for status in HELD for row in _with_status(transaction, claim, status))
    _write(transaction, claim, rows)
    return Claimed(rows)


def _with_status(transaction: LedgerTransaction, claim: ReplayClaim, status: FailureStatus) -> tuple[FailureRow, ...]:
    if not claim.backfill:
        return transaction.read_failures(claim.stream_id, status)
    found = transaction.read_backfill(claim.stream_id, claim.backfill)
    return () if found is None else tuple(row for row in found.parts if row.status is status)


def _write(transaction: LedgerTransaction, claim: ReplayClaim, rows: tuple[FailureRow, ...]) -> None:
    if not claim.backfill:
        transaction.write_failures(claim.stream_id, rows)
        return
    found = transaction.read_backfill(claim.stream_id, claim.backfill)
    if found is not None and rows:
        transaction.write_backfill(claim.stream_id, found.changed(rows))


def sink_of_stream(ledger: Ledger, stream_id: str) -> str | None:
    """Return what the stream lands into, as its latest driver has recorded; None where that is not known."""
    with ledger.transaction() as transaction:
        return transaction.read_sink(stream_id)


def land_pieces(
    ledger: Ledger, claim: ReplayClaim, pieces: Sequence[Piece], write: Callable[[LedgerTransaction], int]
) -> int | None:
    """Land the rows of one chunk and mark its ranges Replayed, in one transaction; return how many rows took effect.

    The number is None where the outcome had to be looked for. What is behind a piece stays claimed.

    Raises:
        RangeNotHeld: if one of the ranges is not this replay's any more; nothing was written.
        SinkChanged: if the stream lands into something else by now.
        CommitOutcomeUnknown: if the outcome could not be settled; a later replay finds what is left.
    """

    def write_there(transaction: LedgerTransaction) -> int:
        if not claim.backfill:
            require_sink(transaction, claim)
            return write(transaction)
        written = write(transaction)
        require_sink(transaction, claim)  # what the table is called, and is a part of, stays so once it has got rows
        return written

    changed = tuple(row for piece in pieces for row in parted(piece, FailureStatus.REPLAYED))
    return _settled(ledger, claim, pieces, changed, write_there)


def decide_pieces(
    ledger: Ledger, claim: ReplayClaim, pieces: Sequence[Piece], decision: ReplayDecision, seen: Collection[str] = ()
) -> None:
    """Decide that the load of one chunk is committed, in one transaction that compares its ranges with what was claimed.

    From then on the ranges are no replay's: what becomes of the load settles them. What is behind a piece stays claimed.
    `seen` are the names of earlier decisions of which this replay knows that their loads are not committed any more.

    Raises:
        RangeNotHeld, SinkChanged, AnotherDecided, TransactionTooLong: nothing was decided; the load must never be committed.
        CommitOutcomeUnknown: if the outcome could not be settled; it may be decided.
    """

    def record(transaction: LedgerTransaction) -> int:
        require_sink(transaction, claim)
        record_decision(transaction, claim.stream_id, decision, seen)
        return 0

    _settled(ledger, claim, pieces, tuple(row for piece in pieces for row in _decided(piece)), record)


def _decided(piece: Piece) -> tuple[FailureRow, ...]:
    decided, *rest = parted(piece, FailureStatus.REPLAYING)
    return (replace(decided, replay=decided_by(piece.row.replay)), *rest)


def give_up(ledger: Ledger, claim: ReplayClaim, piece: Piece, error: str) -> None:
    """Record that records of a range are lost: the source does not hold them any more. The rest of it stays claimed.

    Raises:
        RangeNotHeld, CommitOutcomeUnknown: as `land_pieces`.
    """
    _settled(ledger, claim, [piece], parted(piece, FailureStatus.LOST, error))


def put_back(ledger: Ledger, claim: ReplayClaim, piece: Piece, error: str | None = None) -> None:
    """Put the piece back into quarantine, with the error of the replay where it failed; the rest of its range stays claimed.

    Raises:
        RangeNotHeld, CommitOutcomeUnknown: as `land_pieces`.
    """
    _settled(ledger, claim, [piece], parted(piece, FailureStatus.QUARANTINED, error))


def _settled(
    ledger: Ledger,
    claim: ReplayClaim,
    pieces: Sequence[Piece],
    changed: tuple[FailureRow, ...],
    write: Callable[[LedgerTransaction], int] = lambda _: 0,
) -> int | None:
    """Change the rows of some pieces and write theirs; return how many took effect, None where that had to be looked for."""
    return settle(
        lambda: _change_once(ledger, claim, pieces, changed, write), lambda: _has_changed(ledger, claim, changed)
    )


@rerun_after_lost_race
def _change_once(
    ledger: Ledger,
    claim: ReplayClaim,
    pieces: Sequence[Piece],
    changed: tuple[FailureRow, ...],
    write: Callable[[LedgerTransaction], int],
) -> int:
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        require_held(stream, _with_status(transaction, claim, FailureStatus.REPLAYING), pieces, bool(claim.backfill))
        written = write(transaction)
        _write(transaction, claim, changed)
        return written


@rerun_after_lost_race
def _has_changed(ledger: Ledger, claim: ReplayClaim, changed: Sequence[FailureRow]) -> bool:
    """Look under the stream's lock whether each row that this replay has ended is there."""
    with ledger.transaction() as transaction:
        transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        # What is left of a range may be another replay's by now; what this one has ended is not.
        ended = [row for row in changed if row.status is not FailureStatus.REPLAYING or row.is_decided]
        if claim.backfill and all(row.status is FailureStatus.REPLAYED for row in ended):
            backfill = transaction.read_backfill(claim.stream_id, claim.backfill)
            return backfill is not None and all(backfill.has_landed(row) for row in ended)
        found = {
            RangeKey.of(row): row
            for status in {row.status for row in changed}
            for row in _with_status(transaction, claim, status)
        }
        return all(_is_there(found.get(RangeKey.of(row)), row) for row in ended)


def _is_there(found: FailureRow | None, row: FailureRow) -> bool:
    return found is not None and (found.until_offset, found.status, found.replay) == (
        row.until_offset,
        row.status,
        row.replay,
    )


def require_held(
    stream: StreamRow | None, found: Sequence[FailureRow], pieces: Sequence[Piece], of_backfill: bool = False
) -> None:
    """Require that the ledger has each piece's range as this replay has claimed it: the compare-and-set of a replay.

    A backfill has no life: its table stays what it is when the stream starts over.

    Raises:
        RangeNotHeld: if it has not.
    """
    rows = {RangeKey.of(row): row for row in found}
    for piece in pieces:
        key = RangeKey.of(piece.row)
        if stream is None or not is_held(rows.get(key), piece.row, "" if of_backfill else stream.life):
            raise RangeNotHeld(
                f"The part {key} of the backfill is not held by this process any more: another one of the same name has taken "
                "it, or it has landed. Nothing was written by this; its row in the ledger's table backfills tells more."
                if of_backfill
                else f"The range {key} is not held by this replay any more: another replay has taken it, the stream reads it "
                "again, or it has landed. Nothing was written by this; `exactlyonce failures --all` shows what became of it."
            )
