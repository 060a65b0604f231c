"""A stream is at rest: what it still has to show of what has landed is tried again, now and then and not for ever."""

from __future__ import annotations

from datetime import datetime

from exactlyonce.api.status import LandedShown, StreamStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.reconcile.pass_context import Done, PassResult, Waiting
from exactlyonce.reconcile.pass_operations import PassOperations
from exactlyonce.reconcile.shown import is_owed, shown_at, tried


class AtRest(PassOperations):
    """The passes over a stream without a driver that wants none.

    Whoever takes over from a stream that was suspended begins where the last look has shown it. Nobody waits for
    that at a terminal.
    """

    def rest(self, status: StreamStatus, version: str, *, completed: bool) -> PassResult:
        """Show where the stream has landed if that is owed and due, and return when it is to be tried again.

        The resource may name another place by now than the one that was looked at, or none: that is looked at once.
        """
        now, asks_again = self.context.timing.now(), self.context.place.asks_again
        shown = shown_at(self.stream.spec.source.spec.shown_in, status.landed_shown)
        if shown is None:
            shown = self._first_shown(status, now)
        elif is_owed(shown) and asks_again and (shown.retry_at is None or shown.retry_at <= now):
            shown = tried(self._shown_again(status), shown.tries + 1, now)
        self.write_changed(status, version, {"landed_shown": shown})
        retry_at = None if shown is None else shown.retry_at
        return Waiting(retry_at, status.message) if retry_at is not None and asks_again else Done(completed)

    def _first_shown(self, status: StreamStatus, now: datetime) -> LandedShown | None:
        """Show where the stream has landed in a place that was not looked at yet, if the resource names one."""
        if self.stream.spec.source.spec.shown_in is None or not status.attempt:
            return None
        return tried(self._shown_again(status), 0, now)

    def _shown_again(self, status: StreamStatus) -> LandedShown | None:
        return self.landed_shown(self._ledger(), status, is_last=True)

    def _ledger(self) -> LedgerView | ExactlyOnceError | None:
        try:
            return self.context.stores.ledger.view(self.stream.stream_id)
        except ExactlyOnceError as problem:
            return problem
