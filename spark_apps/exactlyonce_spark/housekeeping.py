"""Beside its batches a driver removes what is no longer kept, of the ledger and of earlier checkpoints.

Each chore has a thread and a connection of its own that nothing waits for. Nothing that fails here is worth a batch: it is
logged, and retried later. No pyspark here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from exactlyonce.api.ledger_retention import LedgerRetention
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.connector import LedgerAddress, Use
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import Permit

log = logging.getLogger("exactlyonce.driver")

HasEnded = Callable[[], bool]
RemoveOnce = Callable[[HasEnded], bool]
"""Remove some of what is not kept, until told that the driver ends; return whether to be called again soon."""


@dataclass(frozen=True)
class Pauses:
    """How long is waited after a removal: when it is to be called again soon, when not, and when it failed.

    Soon is twice as long each time, up to `longest_soon_seconds`.
    """

    soon_seconds: float
    idle_seconds: float
    longest_soon_seconds: float
    failed_seconds: float = 600.0


OF_THE_LEDGER = Pauses(soon_seconds=5.0, idle_seconds=60.0, longest_soon_seconds=5.0)
OF_CHECKPOINTS = Pauses(soon_seconds=5.0, idle_seconds=3600.0, longest_soon_seconds=600.0)


class Housekeeping:
    """Removes what is not kept, at once and then again and again, until it is ended. `of_what` is for the log."""

    def __init__(self, remove_once: RemoveOnce, pauses: Pauses, of_what: str) -> None:
        self._remove_once = remove_once
        self._pauses = pauses
        self._of_what = of_what
        self._soon_seconds = pauses.soon_seconds
        self._ended = threading.Event()

    def run(self) -> None:
        """Remove until `end` is called; never raises."""
        pause = 0.0
        while not self._ended.wait(pause):
            pause = self._pause_after_once()

    def end(self) -> None:
        """Begin no further removal; one that runs is left to itself."""
        self._ended.set()

    def _pause_after_once(self) -> float:
        """Remove some and return how long to wait before the next time."""
        try:
            is_soon = self._remove_once(self._ended.is_set)
        except ExactlyOnceError as problem:
            log.warning(
                "What %s no longer keeps could not be removed; it will be retried later: %s", self._of_what, problem
            )
            return self._pauses.failed_seconds
        except Exception:
            log.exception("what %s no longer keeps could not be removed: unexpected error", self._of_what)
            return self._pauses.failed_seconds
        if not is_soon:
            self._soon_seconds = self._pauses.soon_seconds
            return self._pauses.idle_seconds
        pause = self._soon_seconds
        self._soon_seconds = min(2 * pause, self._pauses.longest_soon_seconds)
        return pause


@contextmanager
def keeping_house(*chores: Housekeeping) -> Iterator[None]:
    """Do these chores while the block runs."""
    for chore in chores:
        threading.Thread(target=chore.run, name="housekeeping", daemon=True).start()
    try:
        yield
    finally:
        for chore in chores:
            chore.end()


def of_the_ledger(address: LedgerAddress, permit: Permit, retention: LedgerRetention) -> Housekeeping:
    """Return the chore that deletes what the ledger no longer keeps."""

    def remove_once(_: HasEnded) -> bool:
        with closing(address.open(f"exactlyonce {permit.stream_id} housekeeping", Use.HOUSEKEEPING)) as ledger:
            return delete_expired(ledger, permit, retention).may_be_more

    return Housekeeping(remove_once, OF_THE_LEDGER, "the ledger")
