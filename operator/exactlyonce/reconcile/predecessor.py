"""What came before an attempt: its number follows on that, and who last wrote the checkpoint may still live."""

from __future__ import annotations

from exactlyonce.api.status import StreamStatus
from exactlyonce.launch.port import Ended, Gone, Launcher
from exactlyonce.ledger.rows import LedgerView, StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.observation import MayLive, NoPredecessor, Predecessor, ProvenDead


def next_attempt(status: StreamStatus, view: LedgerView | None, launcher: Launcher) -> Epoch:
    """Return the number of the next attempt: higher than every one that status, ledger or launcher knows.

    A lost status and a ledger that went back may both have forgotten an attempt whose last message is still there.
    """
    raised = 0 if view is None else view.stream.epoch
    return Epoch(max(status.attempt, raised, launcher.latest()) + 1)


def predecessor_of(row: StreamRow | None, status: StreamStatus, launcher: Launcher) -> Predecessor:
    """Return who last wrote the published checkpoint of a stream, and whether its death is proven."""
    if row is None or row.writer is None:
        return NoPredecessor()
    if row.writer_released:
        return ProvenDead(f"the ledger says that the driver of attempt {row.writer} has stopped")
    state = launcher.state_of(row.writer)
    if isinstance(state, Ended):
        return ProvenDead(state.proof)
    known = status.driver
    if known is not None and known.attempt == row.writer and known.proof is not None:
        return ProvenDead(known.proof)
    if known is not None and known.attempt > row.writer and known.writer_proof is not None:
        return ProvenDead(known.writer_proof)  # a driver without a query came after it, which writes no checkpoint
    why = state.message if isinstance(state, Gone) else f"nothing proves that the driver of attempt {row.writer} ended"
    return MayLive(why)
