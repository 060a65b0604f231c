"""A stream is at rest: what it still has to show of what has landed is tried again, now and then and not for ever."""

from __future__ import annotations

from exactlyonce.api.status import LandedShown, StreamStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.reconcile.pass_context import Done, PassResult, Waiting
from exactlyonce.reconcile.pass_step import PassStep
from exactlyonce.reconcile.shown import is_owed, tried


class AtRest(PassStep):
    """The passes over a stream without a driver that wants none.

    Whoever takes over from a stream that was suspended begins where the last look has shown it. Nobody waits for
    that at a terminal.
    """

    def rest(self, status: StreamStatus, version: str, *, completed: bool) -> PassResult:
        """Show where the stream has landed if that is owed and due, and return when it is to be tried again."""
        shown, now = status.landed_shown, self.context.timing.now()
        if shown is None or not is_owed(shown) or not self.context.place.asks_again:
            return Done(completed)
        if shown.retry_at is None or shown.retry_at <= now:
            shown = tried(self._shown_again(status), shown.tries + 1, now)
            self.write_changed(status, version, {"landed_shown": shown})
        retry_at = None if shown is None else shown.retry_at
        return Done(completed) if retry_at is None else Waiting(retry_at, status.message)

    def _shown_again(self, status: StreamStatus) -> LandedShown | None:
        try:
            view = self.context.stores.ledger.view(self.stream.stream_id)
        except ExactlyOnceError:
            view = None
        return self.landed_shown(view, status, is_last=True)
