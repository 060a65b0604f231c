"""The step of a pass that starts the next driver: choose, record, raise, observe, decide, act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus
from exactlyonce.launch.port import Ended, Gone, Launcher, Orders
from exactlyonce.ledger.expiry import make_room
from exactlyonce.ledger.fence import NewStream, Raised, raise_epoch
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.act import act
from exactlyonce.reconcile.bad_update import after_proof
from exactlyonce.reconcile.batch_limit import order_of, records_of, still_needed, too_large_of
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.identity import before_the_raise
from exactlyonce.reconcile.in_pod import Brief
from exactlyonce.reconcile.known_checks import went_back
from exactlyonce.reconcile.observation import MayLive, NoPredecessor, Predecessor, ProvenDead
from exactlyonce.reconcile.observe import new_token, observe, request_of
from exactlyonce.reconcile.pass_context import (
    Halted,
    PassResult,
    Waiting,
    Watching,
)
from exactlyonce.reconcile.pass_operations import PassOperations
from exactlyonce.reconcile.progress import known_of
from exactlyonce.reconcile.quarantine import bisects, number_of, quarantine_of, still_to_be_quarantined
from exactlyonce.reconcile.recorded import (
    checkpoint_after,
    landed_after,
    life_after,
    newer_epoch,
    verdict_of,
)
from exactlyonce.reconcile.verdicts import Decision, FirstStart, Launch


class Launching(PassOperations):
    """The step of a pass that starts a driver."""

    def launch(self, status: StreamStatus, version: str, plan: str | None) -> PassResult:
        """Choose, record, raise, observe, decide, act: in this order."""
        context, stream_id = self.context, self.stream.stream_id
        context.attempts.check()
        context.attempts.rehearse()
        context.stores.ledger.prepare()
        before = context.stores.ledger.view(stream_id)
        if before is not None:
            row, request = before.stream, request_of(self.stream, context.place.owner)
            is_gone = row.owner != context.place.owner and context.place.owner_is_gone(row.owner)
            foreign = before_the_raise(request, row, is_gone)
            if foreign is not None:
                return self._leave_to_its_owner(status, version, Decision(foreign))
        proven = after_proof(status, before)
        if proven:
            # It was given up before Spark was up, and came up before it was fenced: its image and spec are not a bad update.
            status, version = self.write(status, version, **proven)
            return Waiting(
                context.timing.now(),
                f"Attempt {status.attempt} ran Spark after all; a later bad update is rolled back to its spec.",
            )
        known = Epoch(0) if before is None else before.stream.epoch
        # A lost status and a ledger that went back may both have forgotten an attempt whose last message is still there.
        attempt = Epoch(max(status.attempt, known, context.attempts.launcher.latest()) + 1)
        if known > status.attempt:
            context.reporter.report("NewerEpoch", newer_epoch(stream_id, known, status.attempt, attempt))
        limit = still_needed(status.batch_limit, before, self.stream.spec.recovery)
        poison = still_to_be_quarantined(status.poison_batch, before, self.stream.spec.recovery)
        status, version = self.write(
            status,
            version,
            TransitionReason.ATTEMPT_RECORDED,
            attempt=attempt,
            phase=Phase.RECONCILING,
            batch_limit=limit,
            poison_batch=poison,
        )
        self.reached("pass.attempt-recorded")
        ticket = new_token()
        raised = raise_epoch(context.stores.ledger, self._new_stream(), attempt, ticket)
        self.reached("pass.epoch-raised")
        make_room(context.stores.ledger, stream_id, self.stream.spec.ledger_retention)
        if context.place.in_pod():
            return self._launch_in_pod(status, version, raised, plan, ticket)
        request = request_of(
            self.stream, context.place.owner, records_of(limit), too_large_of(limit), number_of(poison)
        )
        seen = observe(
            context.stores,
            replace(request, bisects=bisects(poison)),
            attempt,
            predecessor_of(raised.before, status, context.attempts.launcher),
            context.place.owner_is_gone,
            known_of(status),
        )
        decision = decide(seen)
        self.reached("pass.observed")
        gone_back = None if seen.ledger is None else went_back(seen, seen.ledger)
        if gone_back is not None:
            context.reporter.report("LedgerWentBack", f"Attempt {attempt}: {gone_back.words}.")
        starts_over = isinstance(decision.verdict, FirstStart)
        life = life_after(decision, seen.ledger, status, self.stream.spec.source.spec.takes_over)
        chosen = checkpoint_after(decision, seen.ledger, context.stores.checkpoints.location)
        driver: dict[str, object] = {
            "driver": DriverStatus(attempt=attempt, landed_at_start=landed_after(decision, seen.ledger), plan=plan),
            "checkpoint": chosen,
            **life,
        }
        # One write for both, unless an act that fails would leave the next pass without what is known of the driver before.
        at_once = not decision.halts and (status.driver is None or decision.actions == (Launch(),))
        told = driver if at_once else life if starts_over else {}
        status, version = self._record_verdict(status, version, decision, attempt, told)
        self.reached("pass.verdict-recorded")
        for action in decision.actions:
            act(context.stores, stream_id, attempt, action)
            self.reached("pass.acted")
        if decision.halts:
            self.write(status, version, TransitionReason.VERDICT_HALTS, phase=Phase.HALTED)
            return Halted(decision.verdict.message)
        if not at_once:
            status, version = self.write(status, version, **driver)
        self.write_changed(status, version, {"landed_shown": self.landed_shown(seen.ledger, status)})
        self.reached("pass.driver-recorded")
        orders = Orders(
            ticket,
            limit=order_of(status.batch_limit),
            quarantine=quarantine_of(status.poison_batch),
            checkpoint_path=None if chosen is None else chosen.location,
        )
        context.attempts.launcher.start(attempt, orders)
        return Watching(attempt)

    def _leave_to_its_owner(self, status: StreamStatus, version: str, decision: Decision) -> PassResult:
        """Halt without a raise, which would fence the driver of whom the stream belongs to."""
        halted = {"phase": Phase.HALTED}
        self._record_verdict(status, version, decision, Epoch(status.attempt), halted, TransitionReason.VERDICT_HALTS)
        return Halted(decision.verdict.message)

    def _launch_in_pod(
        self, status: StreamStatus, version: str, raised: Raised, plan: str | None, ticket: str
    ) -> PassResult:
        """The driver's pod reconciles, which reaches the checkpoint, and starts the driver or not; its word follows."""
        context, attempt, row = self.context, Epoch(status.attempt), raised.before
        is_gone = row is not None and row.owner != context.place.owner and context.place.owner_is_gone(row.owner)
        brief = Brief(
            self.stream,
            context.place.owner,
            row.owner if row is not None and is_gone else None,
            predecessor_of(row, status, context.attempts.launcher),
            ticket,
            known_of(status),
            records_of(status.batch_limit),
            too_large_of(status.batch_limit),
            number_of(status.poison_batch),
            bisects(status.poison_batch),
        )
        landed = None if row is None else row.landed_batch
        takes_over = self.stream.spec.source.spec.takes_over
        driver = DriverStatus(attempt=attempt, landed_at_start=landed, plan=plan, takes_over=takes_over)
        message = f"Attempt {attempt} reconciles in its pod, which reaches the checkpoint."
        self.write(status, version, driver=driver, message=message)
        self.reached("pass.driver-recorded")
        limit, quarantine = order_of(status.batch_limit), quarantine_of(status.poison_batch)
        context.attempts.launcher.start(attempt, Orders(ticket, brief.render(), limit, quarantine))
        return Watching(attempt)

    def _new_stream(self) -> NewStream:
        """What the stream's row says when the raise makes it; the token is this very pass's."""
        context = self.context
        return NewStream(
            self.stream.stream_id, new_token(), context.place.owner, context.stores.ledger.database_identity()
        )

    def _record_verdict(
        self,
        status: StreamStatus,
        version: str,
        decision: Decision,
        attempt: Epoch,
        told: Mapping[str, object],
        reason: TransitionReason = TransitionReason.VERDICT_RECORDED,
    ) -> tuple[StreamStatus, str]:
        verdict = verdict_of(decision, attempt, self.context.timing.now())
        changes = {"phase": Phase.LAUNCHING, "message": verdict.message, "verdict": verdict, **told}
        written = self.write(status, version, reason, **changes)
        self.context.reporter.report(verdict.kind, f"Attempt {attempt}: {verdict.message}")
        return written


def predecessor_of(row: StreamRow | None, status: StreamStatus, launcher: Launcher) -> Predecessor:
    """Return who last wrote the published checkpoint of a stream, and whether its death is proven."""
    if row is None or row.writer is None:
        return NoPredecessor()
    if row.writer_released:
        return ProvenDead(f"the driver of attempt {row.writer} said that it has stopped")
    state = launcher.state_of(row.writer)
    if isinstance(state, Ended):
        return ProvenDead(state.proof)
    known = status.driver
    if known is not None and known.attempt == row.writer and known.proof is not None:
        return ProvenDead(known.proof)
    why = state.message if isinstance(state, Gone) else f"nothing proves that the driver of attempt {row.writer} ended"
    return MayLive(why)
