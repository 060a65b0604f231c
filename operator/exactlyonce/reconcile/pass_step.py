"""What every step of a pass has: the stream, the context, and how the status is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.api.phases import Writer, require_transition
from exactlyonce.api.resource import Stream
from exactlyonce.api.status import LandedShown, StreamStatus
from exactlyonce.bounded_text import one_line
from exactlyonce.crash_points import reached
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.reconcile.pass_context import PassContext
from exactlyonce.reconcile.shown import is_news, owed, shown_at, shown_of
from exactlyonce.source.port import NotShown, NotShownBecause, ShownStream, ShowsLanded

NOT_SHOWN = "LandedNotShown"
"""Of the event that tells why the place where landed positions are shown is not as it should be."""


@dataclass(frozen=True)
class PassStep:
    """One step of the passes over a stream."""

    stream: Stream
    context: PassContext

    def reached(self, point: str) -> None:
        """Name a place between two effects, where a test may end the process."""
        reached(point, self.stream.metadata.namespace, self.stream.metadata.name)

    def write(self, status: StreamStatus, version: str, **changes: object) -> tuple[StreamStatus, str]:
        """Write the status with changes; return it with its new version."""
        changed = status.model_copy(update=changes)
        require_transition(status.phase, changed.phase, Writer.LOOP)
        return changed, self.context.statuses.write(changed, version)

    def write_changed(self, status: StreamStatus, version: str, changes: Mapping[str, object]) -> None:
        """Write the status if any of the changes is one."""
        if any(getattr(status, name) != value for name, value in changes.items()):
            self.write(status, version, **changes)

    def landed_shown(
        self, view: LedgerView | None, status: StreamStatus, *, is_last: bool = False
    ) -> LandedShown | None:
        """Show outside of the ledger where the stream has landed, if it asks for that; what fails there stops no pass.

        Return what the status tells of it from now on. Where it `is_last`, no later look comes of itself, so what could not be
        shown now is owed; `view` is None where the ledger did not answer.
        """
        source, place = self.context.stores.source, self.stream.spec.source.spec.shown_in
        if place is None or not isinstance(source, ShowsLanded):
            return None
        before = shown_at(place, status.landed_shown)
        unseen = owed(place) if is_last else before
        if view is None:
            return unseen
        if not view.landed.positions:
            return before
        try:
            problem = source.show_landed(self._stream_of(view, status), view.landed.positions)
        except ExactlyOnceError:
            return unseen  # those who show something are held up: a later pass shows it
        except Exception as mistake:
            told = f"What has landed could not be shown ({type(mistake).__name__}: {one_line(str(mistake))})."
            problem = NotShown(NotShownBecause.FAILED, told)
        if problem is not None and is_news(problem, before):
            self.context.telling.report(NOT_SHOWN, problem.words)
        return shown_of(problem, place)

    def _stream_of(self, view: LedgerView, status: StreamStatus) -> ShownStream:
        """Return by what the stream is told from others where it is shown."""
        row, takes_over = view.stream, self.stream.spec.source.spec.takes_over
        took_over = takes_over is not None and takes_over == status.took_over
        return ShownStream(row.stream_id, str(row.database), row.life, took_over)
