"""What a status shows of the ledger: which checkpoint is in use, and how far the stream has come. Performs no I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from exactlyonce.api.status import CheckpointStatus, Progress, StreamStatus
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.observation import Known

LOOK_SECONDS = 10.0
"""How often the ledger is asked, at most, only to show how far a stream has come."""

_MOST_KEYS = 10_000


@dataclass
class RateLimit:
    """Says that something is due, for each key at most once in `seconds`; for several threads.

    What it has forgotten is due once too often, and nothing else depends on it.
    """

    clock: Callable[[], float]
    seconds: float = LOOK_SECONDS
    _next: dict[str, float] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, key: str) -> bool:
        """Whether it is due now; then it is not for `seconds`."""
        now = self.clock()
        with self._guard:
            if self._next.get(key, now) > now:
                return False
            if len(self._next) >= _MOST_KEYS:
                self._next = {known: moment for known, moment in self._next.items() if moment > now}
            self._next[key] = now + self.seconds
            return True


def checkpoint_of(view: LedgerView | None) -> CheckpointStatus | None:
    """Return the checkpoint that the ledger has published, if it has."""
    if view is None or view.stream.generation is None or view.stream.checkpoint_path is None:
        return None
    return CheckpointStatus(generation=view.stream.generation, location=view.stream.checkpoint_path)


def known_of(status: StreamStatus) -> Known | None:
    """Return what a status remembers of the ledger, for the next decision."""
    progress, checkpoint = status.progress, status.checkpoint
    if progress is None or progress.batch is None:
        return None
    return Known(BatchNumber(progress.batch), progress.landed_at, None if checkpoint is None else checkpoint.location)


def progress_of(view: LedgerView | None, before: Progress | None) -> Progress | None:
    """Return how far the ledger says that the stream has come; what it does not know of is kept from `before`.

    So is a later batch: that the ledger went back is the next decision's to tell (`progress_decided`).
    """
    known = None if before is None else before.batch
    if view is None or view.stream.landed_batch is None or (known is not None and view.stream.landed_batch < known):
        return before
    return progress_decided(view, before)


def progress_decided(view: LedgerView | None, before: Progress | None) -> Progress | None:
    """Return how far a stream has come that continues where the ledger stands, whatever the status knew."""
    if view is None or view.stream.landed_batch is None:
        return before
    row = view.batch(view.stream.landed_batch)
    landed = {"batch": view.stream.landed_batch, "landed_at": None if row is None else row.landed_at}
    return (before or Progress()).model_copy(update=landed)


def progress_forgotten(before: Progress | None) -> Progress | None:
    """Return the progress of a stream that starts over: what it landed in its life before is no evidence any more."""
    return None if before is None else before.model_copy(update={"batch": None, "landed_at": None})
