"""The step of a pass that starts the next driver: choose, record, raise, observe, decide, act."""

from __future__ import annotations

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.port import Orders
from exactlyonce.ledger.expiry import make_room
from exactlyonce.ledger.fence import Raised
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.act import act
from exactlyonce.reconcile.bad_update import after_proof
from exactlyonce.reconcile.batch_limit import order_of, records_of, still_needed, too_large_of
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.finish_first import finished_by
from exactlyonce.reconcile.finishing import NO_QUERY_NOW, Finishing
from exactlyonce.reconcile.identity import before_the_raise
from exactlyonce.reconcile.in_pod import Brief
from exactlyonce.reconcile.known_checks import went_back
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.observe import observe, request_of
from exactlyonce.reconcile.pass_context import (
    Halted,
    PassResult,
    Waiting,
    Watching,
)
from exactlyonce.reconcile.pass_operations import PassOperations
from exactlyonce.reconcile.predecessor import next_attempt, predecessor_of
from exactlyonce.reconcile.progress import known_of
from exactlyonce.reconcile.quarantine import bisects, number_of, quarantine_of, still_to_be_quarantined
from exactlyonce.reconcile.recorded import (
    checkpoint_after,
    landed_after,
    life_after,
    newer_epoch,
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
        instead = self._in_its_place(status, version, plan, before)
        if instead is not None:
            return instead
        known = Epoch(0) if before is None else before.stream.epoch
        attempt = next_attempt(status, before, context.attempts.launcher)
        if known > status.attempt:
            context.reporter.report("NewerEpoch", newer_epoch(stream_id, known, status.attempt, attempt))
        limit = still_needed(status.batch_limit, before, self.stream.spec.recovery)
        poison = still_to_be_quarantined(status.poison_batch, before, self.stream.spec.recovery)
        begun = self.begin_attempt(status, version, attempt, batch_limit=limit, poison_batch=poison)
        status, version, ticket, raised = begun
        make_room(context.stores.ledger, stream_id, self.stream.spec.ledger_retention)
        if context.place.in_pod():
            return self._launch_in_pod(status, version, raised, plan, ticket)
        request = request_of(
            self.stream,
            context.place.owner,
            records_of(limit),
            too_large_of(limit),
            number_of(poison),
            bisects=bisects(poison),
            finished_by=finished_by(status),
        )
        predecessor = predecessor_of(raised.before, status, context.attempts.launcher)
        try:
            seen = observe(context.stores, request, attempt, predecessor, context.place.owner_is_gone, known_of(status))
        except ExactlyOnceError as problem:
            return self._finish_all_the_same(status, version, plan, ticket, problem)
        decision = decide(seen)
        self.reached("pass.observed")
        if decision.finishes:
            return Finishing(self.stream, context).start(status, version, decision, seen.ledger, plan, ticket)
        return self._carry_out(status, version, decision, seen, plan, ticket)

    def _in_its_place(
        self, status: StreamStatus, version: str, plan: str | None, before: LedgerView | None
    ) -> PassResult | None:
        """Do what comes in place of an attempt with a query; None where that is next. `before` is the ledger, unraised."""
        context = self.context
        if status.driver is not None and status.driver.finish_first:
            first = Finishing(self.stream, context).first(status, version, plan, before, NO_QUERY_NOW)
            if first is not None:
                return first
        if before is not None:
            row, request = before.stream, request_of(self.stream, context.place.owner)
            foreign = before_the_raise(request, row, self.owner_is_gone(row))
            if foreign is not None:
                return self._leave_to_its_owner(status, version, Decision(foreign))
        proven = after_proof(status, before)
        if not proven:
            return None
        # It was given up before Spark was up, and came up before it was fenced: its image and spec are not a bad update.
        status, version = self.write(status, version, **proven)
        return Waiting(
            context.timing.now(),
            f"Attempt {status.attempt} ran Spark after all; a later bad update is rolled back to its spec.",
        )

    def _carry_out(
        self, status: StreamStatus, version: str, decision: Decision, seen: Observation, plan: str | None, ticket: str
    ) -> PassResult:
        """Write down what was decided, act on it, and start the driver or halt the stream."""
        context, stream_id, attempt = self.context, self.stream.stream_id, Epoch(status.attempt)
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
        status, version = self.record_verdict(status, version, decision, attempt, told)
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

    def _finish_all_the_same(
        self, status: StreamStatus, version: str, plan: str | None, ticket: str, problem: ExactlyOnceError
    ) -> PassResult:
        """Source or checkpoint cannot be looked at, so no query follows for now: what is decided is finished meanwhile.

        Raises:
            ExactlyOnceError: the problem, if nothing is decided.
        """
        finishing = Finishing(self.stream, self.context)
        view = self.context.stores.ledger.view(self.stream.stream_id)
        decision = None if view is None or view.decided is None else finishing.decided(status, view, str(problem))
        if decision is None:
            raise problem
        self.context.reporter.note_problem(problem)
        return finishing.start(status, version, decision, view, plan, ticket)

    def _leave_to_its_owner(self, status: StreamStatus, version: str, decision: Decision) -> PassResult:
        """Halt without a raise, which would fence the driver of whom the stream belongs to."""
        halted = {"phase": Phase.HALTED}
        self.record_verdict(status, version, decision, Epoch(status.attempt), halted, TransitionReason.VERDICT_HALTS)
        return Halted(decision.verdict.message)

    def _launch_in_pod(
        self, status: StreamStatus, version: str, raised: Raised, plan: str | None, ticket: str
    ) -> PassResult:
        """The driver's pod reconciles, which reaches the checkpoint, and starts the driver or not; its word follows."""
        context, attempt, row = self.context, Epoch(status.attempt), raised.before
        brief = Brief(
            self.stream,
            context.place.owner,
            row.owner if row is not None and self.owner_is_gone(row) else None,
            predecessor_of(row, status, context.attempts.launcher),
            ticket,
            known_of(status),
            records_of(status.batch_limit),
            too_large_of(status.batch_limit),
            number_of(status.poison_batch),
            bisects(status.poison_batch),
            finished_by(status),
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
