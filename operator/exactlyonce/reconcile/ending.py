"""A driver has ended, or the reconciliation in its pod has spoken: write down how, and what follows, before it does."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import BatchLimit, ConsecutiveFailures, DriverStatus, Phase, StreamStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, Ended, Gone
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.at_rest import AtRest
from exactlyonce.reconcile.bad_update import after_end
from exactlyonce.reconcile.batch_limit import AsItIs, after_too_large, still_needed
from exactlyonce.reconcile.finish_first import finishes, has_finished, was_tried
from exactlyonce.reconcile.finishing import NO_QUERY_NOW, Finishing
from exactlyonce.reconcile.pass_context import (
    Halted,
    PassResult,
    Waiting,
    Wanted,
)
from exactlyonce.reconcile.pass_operations import PassOperations
from exactlyonce.reconcile.progress import progress_of
from exactlyonce.reconcile.quarantine import (
    NotQuarantined,
    RunAgain,
    after_too_many_failures,
    quarantine_words,
    still_to_be_quarantined,
    to_blame,
)
from exactlyonce.reconcile.recorded import (
    changes_by_word,
    hang_of,
    has_verdict,
    in_progress_of,
    is_replaced,
    told_of,
    with_pod,
)
from exactlyonce.reconcile.restart import Finished, HaltStream, Restart, after_ending, after_failure, with_another_batch
from exactlyonce.reconcile.shown import tried


class Endings(PassOperations):
    """The steps of a pass over a driver that has ended."""

    def record(
        self, status: StreamStatus, version: str, ending: Ended | Gone, wanted: Wanted, plan: str | None
    ) -> PassResult:
        """Write down how the driver ended and what follows, before anything follows."""
        status, version = self.take_word(status, version, ending.pod)
        if ending.pod is not None and ending.pod.word is not None and ending.pod.word.outcome is not Outcome.LAUNCHES:
            return self._by_word(status, version, ending.pod, ending.pod.word)
        context = self.context
        known = status.current_driver
        driver = known or DriverStatus(attempt=status.attempt)
        if finishes(driver) or (known is None and has_finished(ending)):
            return Finishing(self.stream, context).record(status, version, ending, driver)
        landed_at_start = driver.landed_at_start
        answer = self._ledger_after(ending, wanted)
        shown = self.landed_shown(answer, status, is_last=True)
        view = None if isinstance(answer, ExactlyOnceError) else answer
        limit = still_needed(status.batch_limit, view, self.stream.spec.recovery)
        poison = still_to_be_quarantined(status.poison_batch, view, self.stream.spec.recovery)
        smaller = after_too_large(ending, view, limit, self.stream.spec, context.timing.now())
        note = smaller.message if isinstance(smaller, AsItIs) else ""
        step = after_ending(
            ending,
            None if landed_at_start is None else BatchNumber(landed_at_start),
            None if view is None else view.stream.landed_batch,
            to_blame(in_progress_of(view), poison),
            status.consecutive_failures,
            self.stream.spec.recovery,
            context.timing.now(),
            note or hang_of(ending, driver),
        )
        kind, told = told_of(ending, driver)
        told = f"{told} {note}".strip()
        self.reached("ending.seen")
        context.reporter.report(kind, f"Attempt {status.attempt} ended: {told}")
        proof = ending.proof if isinstance(ending, Ended) else None
        words = ending.words if isinstance(ending, Ended) else None
        case = None if words is None else words.case or None
        ended = {"ended": kind, "case": case, "proof": proof, "message": told, "idle_message": None}
        goes_on = wanted is Wanted.RUN and (context.place.asks_again or is_replaced(status, plan))
        driver = with_pod(driver, ending.pod).model_copy(update=ended)
        shows: dict[str, object] = {"progress": progress_of(view, status.progress), "landed_shown": shown}
        shows |= {"batch_limit": limit, "poison_batch": poison}
        status = status.model_copy(update={**shows, **after_end(status, driver, ending, view, context.timing.now())})
        if isinstance(smaller, BatchLimit) and isinstance(step, Restart | HaltStream):
            step, told = (
                with_another_batch(status.consecutive_failures, context.timing.now()),
                f"{told} {smaller.message}",
            )
            status = status.model_copy(update={"batch_limit": smaller})
            context.reporter.report("BatchShrunk", smaller.message)
        elif isinstance(step, HaltStream) and step.poison is not None:
            status, step, told = self._poisoned(status, step, step.poison, view, told)
        is_decided = view is not None and view.decided is not None
        match step:
            case Finished(completed=False) if goes_on or is_decided:
                # Never Suspended, which would be Ready: what the resource asks for is not yet so.
                self.write(
                    status,
                    version,
                    TransitionReason.DRIVER_DRAINED,
                    phase=Phase.PENDING,
                    message=told,
                    driver=driver,
                    consecutive_failures=ConsecutiveFailures(),
                )
                return Waiting(context.timing.now(), told)
            case Finished(completed=completed):
                phase = Phase.COMPLETED if completed else Phase.SUSPENDED
                reason = TransitionReason.DRIVER_COMPLETED if completed else TransitionReason.DRIVER_DRAINED
                changes: dict[str, object] = {"landed_shown": tried(shown, 0, context.timing.now()), "driver": driver}
                none = ConsecutiveFailures()
                status, version = self.write(
                    status, version, reason, phase=phase, message=told, consecutive_failures=none, **changes
                )
                return AtRest(self.stream, context).rest(status, version, completed=completed)
            case HaltStream():
                return self._halt(status, version, step, driver, view)
            case Restart(at=at, consecutive_failures=failures):
                changes = {"message": told, "driver": driver, "consecutive_failures": failures}
                self.write(status, version, TransitionReason.DRIVER_FAILED, phase=Phase.BACKING_OFF, **changes)
                return Waiting(at, told)
            case _:
                assert_never(step)

    def _halt(
        self, status: StreamStatus, version: str, halt: HaltStream, driver: DriverStatus, view: LedgerView | None
    ) -> PassResult:
        """Halt the stream; where something is decided, once a driver without a query has finished that.

        Then another driver with this query ends as this one did, and nothing is decided any more.
        """
        if not self._finishes_first(status, view, driver.case):
            return self.halt_after_driver(status, version, halt, driver)
        first = driver.model_copy(update={"finish_first": True})
        changes = {"message": driver.message, "driver": first, "consecutive_failures": halt.consecutive_failures}
        self.write(status, version, TransitionReason.DRIVER_FAILED, phase=Phase.BACKING_OFF, **changes)
        return Waiting(self.context.timing.now(), halt.message)

    def _poisoned(
        self, status: StreamStatus, halt: HaltStream, batch: BatchNumber, view: LedgerView | None, told: str
    ) -> tuple[StreamStatus, HaltStream | Restart, str]:
        """A batch has failed too often: have it quarantined, or what fails of it, if the resource asks for that."""
        now, recovery = self.context.timing.now(), self.stream.spec.recovery
        order = after_too_many_failures(batch, view, status.poison_batch, recovery, told, now)
        if order is None:
            return status, halt, told
        if isinstance(order, NotQuarantined):
            return status, replace(halt, message=f"{halt.message} {order.message}"), told
        again = with_another_batch(halt.consecutive_failures, now)
        if isinstance(order, RunAgain):
            return status, again, told
        failures = halt.consecutive_failures.batch_failures
        before = status.poison_batch
        kind, told = quarantine_words(order, failures, told, again=before is not None and before.batch == batch)
        self.context.reporter.report(kind, told)
        return status.model_copy(update={"poison_batch": order}), again, told

    def take_word(self, status: StreamStatus, version: str, pod: DriverPod | None) -> tuple[StreamStatus, str]:
        """Write down, once, what the reconciliation in a driver's pod has decided."""
        if pod is None or pod.word is None or pod.word.kind is None or has_verdict(status):
            return status, version
        word, kind = pod.word, pod.word.kind
        phase = Phase.LAUNCHING if status.phase is Phase.RECONCILING else status.phase
        changes = changes_by_word(status, word, self.context.timing.now())
        recorded = TransitionReason.VERDICT_RECORDED
        written = self.write(status, version, recorded, **changes, phase=phase, message=word.message)
        self.reached("pass.verdict-recorded")
        self.context.reporter.report(kind, f"Attempt {status.attempt}: {word.message}")
        return written

    def _by_word(self, status: StreamStatus, version: str, pod: DriverPod, word: PodVerdict) -> PassResult:
        """The reconciliation in the pod did not let the driver start: do as for the operator's own."""
        context, driver = self.context, status.driver or DriverStatus(attempt=status.attempt)
        driver = with_pod(driver, pod).model_copy(update={"ended": str(word.outcome), "message": word.message})
        outcome = word.outcome
        if outcome in (Outcome.REFUSED, Outcome.UNREACHABLE) and self._finishes_first(status, self._glance(), None):
            outcome = Outcome.FINISHES  # source or checkpoint cannot be looked at, and neither is needed for that
        match outcome:
            case Outcome.HALTS | Outcome.REFUSED:
                halts = TransitionReason.VERDICT_HALTS
                self.write(status, version, halts, phase=Phase.HALTED, message=word.message, driver=driver)
                if word.outcome is Outcome.REFUSED:
                    context.reporter.report("Halted", word.message)
                return Halted(word.message)
            case Outcome.FINISHES:
                finish = TransitionReason.NOT_RECONCILED
                first = driver.model_copy(update={"finish_first": True})
                self.write(status, version, finish, phase=Phase.BACKING_OFF, message=word.message, driver=first)
                return Waiting(context.timing.now(), word.message)
            case Outcome.OVERTAKEN:
                overtaken = TransitionReason.NOT_RECONCILED
                self.write(status, version, overtaken, phase=Phase.BACKING_OFF, message=word.message, driver=driver)
                return Waiting(context.timing.now(), word.message)
            case Outcome.UNREACHABLE | Outcome.LAUNCHES:
                step = after_failure(status.consecutive_failures, self.stream.spec.recovery, context.timing.now())
                changes = {
                    "phase": Phase.BACKING_OFF,
                    "message": word.message,
                    "driver": driver,
                    "consecutive_failures": step.consecutive_failures,
                }
                self.write(status, version, TransitionReason.NOT_RECONCILED, **changes)
                context.reporter.report("BackingOff", word.message)
                return Waiting(step.at, word.message)
            case _:
                assert_never(outcome)

    def _finishes_first(self, status: StreamStatus, view: LedgerView | None, case: str | None) -> bool:
        """Whether a driver without a query follows one whose end would halt the stream; `case` is the error that it named."""
        if view is None or view.decided is None or was_tried(case):
            return False
        return Finishing(self.stream, self.context).decided(status, view, NO_QUERY_NOW) is not None

    def _glance(self) -> LedgerView | None:
        try:
            return self.context.stores.ledger.view(self.stream.stream_id)
        except ExactlyOnceError:
            return None

    def _ledger_after(self, ending: Ended | Gone, wanted: Wanted) -> LedgerView | ExactlyOnceError | None:
        """Return the ledger's view; without an answer a suspended stream stays so, and a drained driver has ended well."""
        try:
            return self.context.stores.ledger.view(self.stream.stream_id)
        except ExactlyOnceError as problem:
            words = ending.words if isinstance(ending, Ended) else None
            has_drained = words is not None and words.ending is Ending.DRAINED
            if wanted is Wanted.REST or has_drained:
                return problem
            raise
