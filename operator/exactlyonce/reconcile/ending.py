"""A driver has ended, or the reconciliation in its pod has spoken: write down how, and what follows, before it does."""

from __future__ import annotations

from typing import assert_never

from exactlyonce.api.status import BatchLimit, ConsecutiveFailures, DriverStatus, Phase, StreamStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_words import Ending
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, Ended, Gone
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.at_rest import AtRest
from exactlyonce.reconcile.bad_update import after_end
from exactlyonce.reconcile.batch_limit import AsItIs, after_too_large, still_needed
from exactlyonce.reconcile.pass_context import (
    Halted,
    PassResult,
    Waiting,
    Wanted,
)
from exactlyonce.reconcile.pass_step import PassStep
from exactlyonce.reconcile.progress import progress_of
from exactlyonce.reconcile.recorded import (
    changes_by_word,
    hang_of,
    has_verdict,
    in_progress_of,
    is_replaced,
    told_of,
    with_pod,
)
from exactlyonce.reconcile.restart import Finished, HaltStream, Restart, after_ending, after_failure, after_shrinking
from exactlyonce.reconcile.shown import tried


class Endings(PassStep):
    """The steps of a pass over a driver that has ended."""

    def record(
        self, status: StreamStatus, version: str, ending: Ended | Gone, wanted: Wanted, plan: str | None
    ) -> PassResult:
        """Write down how the driver ended and what follows, before anything follows."""
        status, version = self.take_word(status, version, ending.pod)
        if ending.pod is not None and ending.pod.word is not None and ending.pod.word.outcome is not Outcome.LAUNCHES:
            return self._by_word(status, version, ending.pod, ending.pod.word)
        context = self.context
        driver = DriverStatus(attempt=status.attempt)
        if status.driver is not None and status.driver.attempt == status.attempt:
            driver = status.driver
        landed_at_start = driver.landed_at_start
        view = self._ledger_after(ending, wanted)
        shown = self.landed_shown(view, status, is_last=True)
        limit = still_needed(status.batch_limit, view, self.stream.spec.recovery)
        smaller = after_too_large(ending, view, limit, self.stream.spec, context.timing.now())
        note = smaller.why if isinstance(smaller, AsItIs) else ""
        step = after_ending(
            ending,
            None if landed_at_start is None else BatchNumber(landed_at_start),
            None if view is None else view.stream.landed_batch,
            in_progress_of(view),
            status.consecutive_failures,
            self.stream.spec.recovery,
            context.timing.now(),
            note or hang_of(ending, driver),
        )
        kind, told = told_of(ending, driver)
        told = f"{told} {note}".strip()
        self.reached("ending.seen")
        context.telling.report(kind, f"Attempt {status.attempt} ended: {told}")
        proof = ending.proof if isinstance(ending, Ended) else None
        ended = {"ended": kind, "proof": proof, "message": told, "idle_because": None}
        goes_on = wanted is Wanted.RUN and (context.place.asks_again or is_replaced(status, plan))
        driver = with_pod(driver, ending.pod).model_copy(update=ended)
        known = {"progress": progress_of(view, status.progress), "batch_limit": limit, "landed_shown": shown}
        status = status.model_copy(update={**known, **after_end(status, driver, ending, view, context.timing.now())})
        if isinstance(smaller, BatchLimit) and isinstance(step, Restart | HaltStream):
            step, told = after_shrinking(status.consecutive_failures, context.timing.now()), f"{told} {smaller.why}"
            status = status.model_copy(update={"batch_limit": smaller})
            context.telling.report("BatchShrunk", smaller.why)
        match step:
            case Finished(completed=False) if goes_on:
                # Never Suspended, which would be Ready: what the resource asks for is not yet so.
                self.write(
                    status,
                    version,
                    phase=Phase.PENDING,
                    message=told,
                    driver=driver,
                    consecutive_failures=ConsecutiveFailures(),
                )
                return Waiting(context.timing.now(), told)
            case Finished(completed=completed):
                phase = Phase.COMPLETED if completed else Phase.SUSPENDED
                changes = {"landed_shown": tried(shown, 0, context.timing.now()), "driver": driver}
                none = ConsecutiveFailures()
                status, version = self.write(
                    status, version, phase=phase, message=told, consecutive_failures=none, **changes
                )
                return AtRest(self.stream, context).rest(status, version, completed=completed)
            case HaltStream(reason=reason, consecutive_failures=failures):
                self.write(
                    status, version, phase=Phase.HALTED, message=reason, driver=driver, consecutive_failures=failures
                )
                context.telling.report("Halted", reason)
                return Halted(reason)
            case Restart(at=at, consecutive_failures=failures):
                self.write(
                    status, version, phase=Phase.BACKING_OFF, message=told, driver=driver, consecutive_failures=failures
                )
                return Waiting(at, told)
            case _:
                assert_never(step)

    def take_word(self, status: StreamStatus, version: str, pod: DriverPod | None) -> tuple[StreamStatus, str]:
        """Write down, once, what the reconciliation in a driver's pod has decided."""
        if pod is None or pod.word is None or pod.word.kind is None or has_verdict(status):
            return status, version
        word, kind = pod.word, pod.word.kind
        phase = Phase.LAUNCHING if status.phase is Phase.RECONCILING else status.phase
        takes_over = self.stream.spec.source.spec.takes_over
        changes = changes_by_word(status, word, self.context.timing.now(), takes_over)
        written = self.write(status, version, **changes, phase=phase, message=word.reason)
        self.reached("pass.verdict-recorded")
        self.context.telling.report(kind, f"Attempt {status.attempt}: {word.reason}")
        return written

    def _by_word(self, status: StreamStatus, version: str, pod: DriverPod, word: PodVerdict) -> PassResult:
        """The reconciliation in the pod did not let the driver start: do as for the operator's own."""
        context, driver = self.context, status.driver or DriverStatus(attempt=status.attempt)
        driver = with_pod(driver, pod).model_copy(update={"ended": str(word.outcome), "message": word.reason})
        match word.outcome:
            case Outcome.HALTS | Outcome.REFUSED:
                self.write(status, version, phase=Phase.HALTED, message=word.reason, driver=driver)
                if word.outcome is Outcome.REFUSED:
                    context.telling.report("Halted", word.reason)
                return Halted(word.reason)
            case Outcome.OVERTAKEN:
                self.write(status, version, phase=Phase.BACKING_OFF, message=word.reason, driver=driver)
                return Waiting(context.timing.now(), word.reason)
            case Outcome.UNREACHABLE | Outcome.LAUNCHES:
                step = after_failure(status.consecutive_failures, self.stream.spec.recovery, context.timing.now())
                changes = {
                    "phase": Phase.BACKING_OFF,
                    "message": word.reason,
                    "driver": driver,
                    "consecutive_failures": step.consecutive_failures,
                }
                self.write(status, version, **changes)
                context.telling.report("BackingOff", word.reason)
                return Waiting(step.at, word.reason)
            case _:
                assert_never(word.outcome)

    def _ledger_after(self, ending: Ended | Gone, wanted: Wanted) -> LedgerView | None:
        """Look at the ledger, without which a stream rests and a driver that was asked to end has ended well all the same."""
        try:
            return self.context.stores.ledger.view(self.stream.stream_id)
        except ExactlyOnceError:
            words = ending.words if isinstance(ending, Ended) else None
            has_drained = words is not None and words.ending is Ending.DRAINED
            if wanted is Wanted.REST or has_drained:
                return None
            raise
