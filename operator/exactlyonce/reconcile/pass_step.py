"""What every step of a pass has: the stream, the context, and how the status is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.api.phases import Writer, require_transition
from exactlyonce.api.resource import Stream
from exactlyonce.api.status import StreamStatus
from exactlyonce.bounded_text import one_line
from exactlyonce.crash_points import reached
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.reconcile.pass_context import PassContext
from exactlyonce.source.port import ShownStream, ShowsLanded

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

    def show_landed(self, view: LedgerView | None, status: StreamStatus) -> None:
        """Show outside of the ledger where the stream has landed, if it asks for that; what fails there stops no pass."""
        source, is_asked_for = self.context.stores.source, self.stream.spec.source.spec.shows_landed
        if view is None or not view.landed.positions or not is_asked_for or not isinstance(source, ShowsLanded):
            return
        try:
            told = source.show_landed(self._shown(view, status), view.landed.positions)
        except ExactlyOnceError:
            return  # those who show something are held up: a later pass shows it
        except Exception as problem:
            told = f"What has landed could not be shown ({type(problem).__name__}: {one_line(str(problem))})."
        if told is not None:
            self.context.telling.report(NOT_SHOWN, told)

    def _shown(self, view: LedgerView, status: StreamStatus) -> ShownStream:
        """Return by what the stream is told from others where it is shown."""
        row, takes_over = view.stream, self.stream.spec.source.spec.takes_over
        took_over = takes_over is not None and takes_over == status.took_over
        return ShownStream(row.stream_id, str(row.database), row.life, took_over)
