"""Who last wrote the published checkpoint, and whether that driver is known to have ended."""

from __future__ import annotations

from exactlyonce.api.status import StreamStatus
from exactlyonce.launch.port import Ended, Gone, Launcher
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.reconcile.observation import MayLive, NoPredecessor, Predecessor, ProvenDead


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
