"""What a replay beside the stream is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger import publish, replay
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.replay_rules import Held, Piece, parted
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import Positions
from exactlyonce_spark import replay as run
from exactlyonce_spark.log_watch import LogWatch
from tests.simulation.database import MemoryTransaction
from tests.simulation.mutations.unlocked import unlocked


@contextmanager
def a_replay_lands_what_it_has_not_claimed() -> Iterator[None]:
    """A replay lands a range without asking whether the ledger still has it as this replay has claimed it."""
    with mock.patch.object(replay, "require_held", lambda *_: None):
        yield


@contextmanager
def a_replay_looks_without_a_lock() -> Iterator[None]:
    """Two replays look at the same range without the stream's lock, and both find that they may land it."""
    with unlocked(replay, "_change_once"):
        yield


@contextmanager
def a_range_that_a_replay_has_taken_stays_its_own() -> Iterator[None]:
    """The positions are set back to before what a replay has taken, and it stays there, although the stream reads it again."""

    def untaken(transaction: MemoryTransaction, stream_id: str) -> Any:
        return transaction.read_failures(stream_id, FailureStatus.QUARANTINED)

    with mock.patch.object(publish, "held_failures", untaken):
        yield


@contextmanager
def a_replay_marks_a_range_whose_rows_it_has_not_written() -> Iterator[None]:
    """A replay marks a range in one transaction and writes its rows in the next one."""
    land = replay.land_pieces

    def apart(ledger: Any, claim: Any, pieces: Any, write: Callable[[Any], int]) -> int | None:
        land(ledger, claim, pieces, lambda _: 0)
        with ledger.transaction() as transaction:
            return write(transaction)

    with mock.patch.object(run, "land_pieces", apart):
        yield


@contextmanager
def a_replay_moves_the_positions() -> Iterator[None]:
    """A replay sets the stream's positions to where it has replayed to, as a batch does."""
    land = replay.land_pieces

    def moving(ledger: Any, claim: Any, pieces: Sequence[Piece], write: Callable[[Any], int]) -> int | None:
        def write_and_move(transaction: LedgerTransaction) -> int:
            landed = transaction.read_positions(claim.stream_id)
            ends = {piece.row.partition: piece.until_offset for piece in pieces}
            moved = Positions({**landed.positions, **ends})
            transaction.set_positions(claim.stream_id, replace(landed, positions=moved))
            return write(transaction)

        return land(ledger, claim, pieces, write_and_move)

    with mock.patch.object(run, "land_pieces", moving):
        yield


@contextmanager
def what_is_left_of_a_range_overlaps_what_landed() -> Iterator[None]:
    """Where a part of a range has landed, the whole of it stays in quarantine beside that part, and nothing refuses it."""

    def overlapping(piece: Piece, status: FailureStatus, error: str | None = None) -> tuple[FailureRow, ...]:
        rows = parted(piece, status, error)
        if len(rows) == 1:
            return rows
        done, rest = rows
        return (replace(done, from_offset=done.until_offset - 1), replace(rest, from_offset=piece.row.from_offset))

    with (
        mock.patch.object(replay, "parted", overlapping),
        mock.patch.object(MemoryTransaction, "_require_no_overlap", lambda *_: None),
    ):
        yield


@contextmanager
def a_replay_does_not_compare_the_source() -> Iterator[None]:
    """A replay lands what it finds in the place of its records, whether or not retention or another topic came between."""
    with (
        mock.patch.object(run, "finding_of", lambda *_: Held()),
        mock.patch.object(LogWatch, "require", lambda *_: None),
    ):
        yield
