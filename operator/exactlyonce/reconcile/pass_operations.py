"""What every part of a pass can do: write the status, verdicts included, and show what has landed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.resource import Stream
from exactlyonce.api.status import DriverStatus, LandedShown, Phase, StreamStatus
from exactlyonce.bounded_text import one_line
from exactlyonce.crash_points import reached
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.fence import NewStream, Raised, raise_epoch
from exactlyonce.ledger.rows import LedgerView, StreamRow
from exactlyonce.positions.fingerprint import is_other_origin
from exactlyonce.positions.ranges import Epoch, Positions
from exactlyonce.reconcile.observe import new_token
from exactlyonce.reconcile.pass_context import Halted, PassContext
from exactlyonce.reconcile.recorded import verdict_of
from exactlyonce.reconcile.restart import HaltStream
from exactlyonce.reconcile.shown import is_news, not_the_same, owed, shown_at, shown_of
from exactlyonce.reconcile.verdicts import Decision
from exactlyonce.source.port import NotShown, NotShownBecause, ShownStream, ShowsLanded

NOT_SHOWN = "LandedNotShown"
"""Of the event that tells why the place where landed positions are shown is not as it should be."""


@dataclass(frozen=True)
class PassOperations:
    """Operations that the modules of a pass over one stream share."""

    stream: Stream
    context: PassContext

    def reached(self, point: str) -> None:
        """Name a place between two effects, where a test may end the process."""
        reached(point, self.stream.metadata.namespace, self.stream.metadata.name)

    def write(
        self, status: StreamStatus, version: str, reason: TransitionReason | None = None, /, **changes: object
    ) -> tuple[StreamStatus, str]:
        """Write the status with changes; return it with its new version. A new phase needs a reason."""
        changed = status.model_copy(update=changes)
        return changed, self.context.statuses.write(changed, version, reason)

    def write_changed(
        self,
        status: StreamStatus,
        version: str,
        changes: Mapping[str, object],
        reason: TransitionReason | None = None,
    ) -> None:
        """Write the status if any of the changes is one."""
        if any(getattr(status, name) != value for name, value in changes.items()):
            self.write(status, version, reason, **changes)

    def owner_is_gone(self, row: StreamRow) -> bool:
        """Whether the ledger names another owner than this resource, and that one no longer exists."""
        place = self.context.place
        return row.owner != place.owner and place.owner_is_gone(row.owner)

    def begin_attempt(
        self, status: StreamStatus, version: str, attempt: Epoch, **changes: object
    ) -> tuple[StreamStatus, str, str, Raised]:
        """Record an attempt in the status, with what else changes then, and raise the ledger's epoch to it.

        Return the status, its version, the ticket for the driver, and what the raise found.
        """
        context = self.context
        recorded = TransitionReason.ATTEMPT_RECORDED
        status, version = self.write(status, version, recorded, attempt=attempt, phase=Phase.RECONCILING, **changes)
        self.reached("pass.attempt-recorded")
        ticket = new_token()
        raised = raise_epoch(context.stores.ledger, self._new_stream(), attempt, ticket)
        self.reached("pass.epoch-raised")
        return status, version, ticket, raised

    def _new_stream(self) -> NewStream:
        """What the stream's row says when the raise makes it; the token is this very pass's."""
        context = self.context
        return NewStream(
            self.stream.stream_id, new_token(), context.place.owner, context.stores.ledger.database_identity()
        )

    def halt_after_driver(self, status: StreamStatus, version: str, halt: HaltStream, driver: DriverStatus) -> Halted:
        """Halt the stream for how its driver has ended, and report it."""
        changes = {"message": halt.message, "driver": driver, "consecutive_failures": halt.consecutive_failures}
        self.write(status, version, TransitionReason.DRIVER_FAILED, phase=Phase.HALTED, **changes)
        self.context.reporter.report("Halted", halt.message)
        return Halted(halt.message)

    def record_verdict(
        self,
        status: StreamStatus,
        version: str,
        decision: Decision,
        attempt: Epoch,
        told: Mapping[str, object],
        reason: TransitionReason = TransitionReason.VERDICT_RECORDED,
    ) -> tuple[StreamStatus, str]:
        """Write what was decided for an attempt into the status, with what else it tells then, and report it."""
        verdict = verdict_of(decision, attempt, self.context.timing.now())
        changes = {"phase": Phase.LAUNCHING, "message": verdict.message, "verdict": verdict, **told}
        written = self.write(status, version, reason, **changes)
        self.context.reporter.report(verdict.kind, f"Attempt {attempt}: {verdict.message}")
        return written

    def landed_shown(
        self, view: LedgerView | ExactlyOnceError | None, status: StreamStatus, *, is_last: bool = False
    ) -> LandedShown | None:
        """Show outside of the ledger where the stream has landed, if it asks for that; what fails there stops no pass.

        `view` is what the ledger holds of the stream, None where it holds nothing, or why it did not answer. Return what the
        status tells from now on. Where it `is_last`, no later look comes of itself, so what could not be shown now is owed.
        """
        source, place = self.context.stores.source, self.stream.spec.source.spec.shown_in
        if place is None or not isinstance(source, ShowsLanded):
            return None
        before = shown_at(place, status.landed_shown)
        if isinstance(view, ExactlyOnceError):
            return owed(place, view) if is_last else before
        if view is None or not view.landed.positions:
            return before
        try:
            problem = self._show(source, view, status)
        except ExactlyOnceError as held_up:
            return owed(place, held_up) if is_last else before
        except Exception as mistake:
            told = f"What has landed could not be shown ({type(mistake).__name__}: {one_line(str(mistake))})."
            problem = NotShown(NotShownBecause.FAILED, told)
        if problem is not None and is_news(problem, before):
            self.context.reporter.report(NOT_SHOWN, problem.words)
        return shown_of(problem, place)

    def _show(self, source: ShowsLanded, view: LedgerView, status: StreamStatus) -> NotShown | None:
        """Show where the stream has landed in what the source still is; positions of another source mean other records.

        A stream at rest may name other brokers or another data stream by now, and nothing else looks at them before it runs.
        """
        positions, known = view.landed.positions, view.landed.origin_ids
        origins = sorted({key.origin for key in positions})
        found = source.origin_ids(origins)
        others = [origin for origin in origins if is_other_origin(known.get(origin), found.get(origin))]
        held = Positions({key: at for key, at in positions.items() if key.origin in found})
        if others or not held:
            return NotShown(NotShownBecause.FAILED, not_the_same(others or origins))
        return source.show_landed(self._stream_of(view, status), held)

    def _stream_of(self, view: LedgerView, status: StreamStatus) -> ShownStream:
        """Return by what the stream is told from others where it is shown."""
        row, takes_over = view.stream, self.stream.spec.source.spec.takes_over
        took_over = takes_over is not None and takes_over == status.took_over
        return ShownStream(row.stream_id, str(row.database), row.life, took_over)
