"""Beside its batches a driver deletes what the ledger no longer keeps: a thread and a connection of its own, never waited for.

Nothing that fails here is worth a batch: it is told, and tried again later. No pyspark here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass

from exactlyonce.api.ledger_retention import LedgerRetention
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.connector import LedgerAddress, Use
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger

log = logging.getLogger("exactlyonce.driver")

OpenLedger = Callable[[], AbstractContextManager[Ledger]]


@dataclass(frozen=True)
class Pauses:
    """How long is waited after a deletion: when there is likely more, when there is not, and when it failed."""

    more_seconds: float = 5.0
    idle_seconds: float = 60.0
    failed_seconds: float = 600.0


class Housekeeping:
    """Deletes what is not kept, at once and then again and again, until it is ended."""

    def __init__(self, open_ledger: OpenLedger, permit: Permit, retention: LedgerRetention, pauses: Pauses) -> None:
        self._open_ledger = open_ledger
        self._permit = permit
        self._retention = retention
        self._pauses = pauses
        self._ended = threading.Event()

    def run(self) -> None:
        """Delete until `end` is called; never raises."""
        pause = 0.0
        while not self._ended.wait(pause):
            pause = self._delete_once()

    def end(self) -> None:
        """Begin no further deletion; one that runs is left to itself."""
        self._ended.set()

    def _delete_once(self) -> float:
        """Delete a few rows of each table and return how long to wait before the next time."""
        try:
            with self._open_ledger() as ledger:
                deleted = delete_expired(ledger, self._permit, self._retention)
        except ExactlyOnceError as problem:
            log.warning("What the ledger no longer keeps could not be deleted; it will be retried later: %s", problem)
            return self._pauses.failed_seconds
        except Exception:
            log.exception("what the ledger no longer keeps could not be deleted: unexpected error")
            return self._pauses.failed_seconds
        return self._pauses.more_seconds if deleted.may_be_more else self._pauses.idle_seconds


@contextmanager
def keeping_ledger_short(address: LedgerAddress, permit: Permit, retention: LedgerRetention) -> Iterator[None]:
    """Delete what the ledger no longer keeps while the block runs."""
    application = f"exactlyonce {permit.stream_id} housekeeping"
    keeper = Housekeeping(lambda: closing(address.open(application, Use.HOUSEKEEPING)), permit, retention, Pauses())
    threading.Thread(target=keeper.run, name="housekeeping", daemon=True).start()
    try:
        yield
    finally:
        keeper.end()
