"""The steps of a pass for a driver without a query: it finishes what is decided, and the stream is decided again after it."""

from __future__ import annotations

from typing import assert_never

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.conditions import STANDINGS
from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.port import Ended, Gone, Orders
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.act import act
from exactlyonce.reconcile.bad_update import after_end
from exactlyonce.reconcile.finish_first import finish_without_a_look, finished_by, has_finished
from exactlyonce.reconcile.observation import MayLive, ProvenDead
from exactlyonce.reconcile.observe import request_of
from exactlyonce.reconcile.pass_context import PassResult, Waiting, Watching
from exactlyonce.reconcile.pass_operations import PassOperations
from exactlyonce.reconcile.predecessor import next_attempt, predecessor_of
from exactlyonce.reconcile.recorded import told_of, with_pod
from exactlyonce.reconcile.restart import Finished, HaltStream, Restart, after_ending, after_failure
from exactlyonce.reconcile.verdicts import Decision

AT_REST = "No query follows, because the stream is suspended or deleted."
"""Why a stream that is suspended or deleted has no query."""

NO_QUERY_NOW = "Then the stream is decided again."
"""Why none follows yet where the latest one has ended so that the stream halts, or its pod has decided so."""


class Finishing(PassOperations):
    """The steps of a pass that start such a driver, and record how it has ended."""

    def at_rest(self, status: StreamStatus, version: str, plan: str | None) -> PassResult | None:
        """Start one for a stream that wants no driver, if anything is to be finished; None where it rests.

        A ledger that does not answer is asked again later: the stream is at rest meanwhile.
        """
        request = request_of(self.stream, self.context.place.owner)
        if not (request.two_phases or request.shows_landed):
            return None  # rows are in the sink as soon as a batch has landed
        try:
            view = self.context.stores.ledger.view(self.stream.stream_id)
            if view is None or self.decided(status, view, AT_REST) is None:
                return None
        except ExactlyOnceError as problem:
            self.context.reporter.note_problem(problem)
            if not self.context.place.asks_again:
                return None
            told = STANDINGS[Phase.SUSPENDED].message
            self.write_changed(status, version, {"phase": Phase.SUSPENDED, "message": told}, TransitionReason.AT_REST)
            return Waiting(self.context.timing.now() + self.stream.spec.recovery.backoff.max, str(problem))
        retry_at = status.consecutive_failures.retry_at
        if retry_at is not None and retry_at > self.context.timing.now():
            return Waiting(retry_at, status.message)
        return self._begin(status, version, plan, view, AT_REST)

    def first(
        self, status: StreamStatus, version: str, plan: str | None, view: LedgerView | None, why: str
    ) -> PassResult | None:
        """Start one in place of a driver with a query; None where nothing is to be finished.

        `why` is a sentence that says why no query follows.
        """
        if view is None or self.decided(status, view, why) is None:
            return None
        return self._begin(status, version, plan, view, why)

    def _begin(self, status: StreamStatus, version: str, plan: str | None, view: LedgerView, why: str) -> PassResult:
        """Record an attempt, raise, look at the ledger again, and start the driver if anything is left by then."""
        context = self.context
        context.attempts.check()
        context.attempts.rehearse()
        attempt = next_attempt(status, view, context.attempts.launcher)
        status, version, ticket, _ = self.begin_attempt(status, version, attempt)
        seen = context.stores.ledger.view(self.stream.stream_id)
        decision = None if seen is None else self.decided(status, seen, why)
        if decision is None:
            return Waiting(context.timing.now(), status.message)  # a driver of another pass has finished it meanwhile
        return self.start(status, version, decision, seen, plan, ticket)

    def start(
        self,
        status: StreamStatus,
        version: str,
        decision: Decision,
        view: LedgerView | None,
        plan: str | None,
        ticket: str,
    ) -> PassResult:
        """Write down what was decided for the attempt that is recorded and raised, act, and start its driver."""
        assert view is not None, "what is to be finished is in the ledger"
        context, attempt, row = self.context, Epoch(status.attempt), view.stream
        before = predecessor_of(row, status, context.attempts.launcher)
        driver = DriverStatus(
            attempt=attempt,
            task=DriverTask.FINISH_ONLY,
            landed_at_start=row.landed_batch,
            plan=plan,
            # The status may be all that has it, and it names this driver from now on.
            writer_proof=before.proof if isinstance(before, ProvenDead) else None,
        )
        status, version = self.record_verdict(status, version, decision, attempt, {"driver": driver})
        self.reached("pass.verdict-recorded")
        for action in decision.actions:
            act(context.stores, self.stream.stream_id, attempt, action)
            self.reached("pass.acted")
        self.reached("pass.driver-recorded")
        orders = Orders(
            ticket,
            checkpoint_path=row.checkpoint_path,
            task=DriverTask.FINISH_ONLY,
            writer_is_dead=not isinstance(before, MayLive),
        )
        context.attempts.launcher.start(attempt, orders)
        return Watching(attempt)

    def record(self, status: StreamStatus, version: str, ending: Ended | Gone, driver: DriverStatus) -> PassResult:
        """Write down how such a driver has ended; what follows is decided again, or it will be retried, or the stream halts."""
        now, failures = self.context.timing.now(), status.consecutive_failures
        kind, told = told_of(ending, driver)
        self.reached("ending.seen")
        self.context.reporter.report(kind, f"Attempt {status.attempt} ended: {told}")
        words = ending.words if isinstance(ending, Ended) else None
        proof = ending.proof if isinstance(ending, Ended) else None
        case = None if words is None else words.case or None
        ended = {"ended": kind, "case": case, "proof": proof, "message": told, "idle_message": None}
        driver = with_pod(driver, ending.pod).model_copy(update={**ended, "task": DriverTask.FINISH_ONLY})
        if has_finished(ending):
            kept = failures.model_copy(update={"endings": 0, "retry_at": None})
            changes = {"message": told, "driver": driver, "consecutive_failures": kept}
            self.write(status, version, TransitionReason.DRIVER_FINISHED, phase=Phase.PENDING, **changes)
            return Waiting(now, told)
        if words is None:  # what it says of itself is of the decided batch, and not of what it was made of
            status = status.model_copy(update=after_end(status, driver, ending, None, now))
        step = after_ending(ending, None, None, None, failures, self.stream.spec.recovery, now)
        match step:
            case HaltStream():
                return self.halt_after_driver(status, version, step, driver)
            case Restart() | Finished():  # one that says it ran a query has finished nothing
                again = step if isinstance(step, Restart) else after_failure(failures, self.stream.spec.recovery, now)
                changes = {"message": told, "driver": driver, "consecutive_failures": again.consecutive_failures}
                self.write(status, version, TransitionReason.DRIVER_FAILED, phase=Phase.BACKING_OFF, **changes)
                return Waiting(again.at, told)
            case _:
                assert_never(step)

    def decided(self, status: StreamStatus, view: LedgerView, why: str) -> Decision | None:
        """Return the decision to finish what is left, by the ledger alone; None where there is nothing."""
        context, row = self.context, view.stream
        request = request_of(self.stream, context.place.owner, finished_by=finished_by(status))
        database = context.stores.ledger.database_identity()
        return finish_without_a_look(view, database, request, why, owner_is_gone=self.owner_is_gone(row))
