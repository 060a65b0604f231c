"""The loop of one stream: one level-triggered pass, the same for processes and pods.

Every wake-up runs the whole pass; a missed one costs time, never truth. What is about to be done is in the status
before it is done. A crash between any two lines leads to the same end: docs/adr/0003 goes through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from exactlyonce.api.conditions import NO_EXECUTOR, NO_PROGRESS, STANDINGS
from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.resource import Stream
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus
from exactlyonce.errors import ExactlyOnceError, OutcomeUnknown, Refused, RefusedOutside, Unreachable
from exactlyonce.launch.port import Ended, Gone, LaunchFailed, NeverStarted, Running
from exactlyonce.ledger.fence import EpochOvertaken
from exactlyonce.ledger.publish import PositionsMoved
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.at_rest import AtRest
from exactlyonce.reconcile.bad_update import after_refusal, after_running, was_up
from exactlyonce.reconcile.batch_limit import still_needed
from exactlyonce.reconcile.ending import Endings
from exactlyonce.reconcile.finish_first import finishes
from exactlyonce.reconcile.finishing import Finishing
from exactlyonce.reconcile.launching import Launching
from exactlyonce.reconcile.pass_context import (
    Done,
    Halted,
    PassContext,
    PassResult,
    Report,
    StatusConflict,
    StatusStore,
    Waiting,
    Wanted,
    Watching,
)
from exactlyonce.reconcile.pass_operations import PassOperations
from exactlyonce.reconcile.progress import checkpoint_of, progress_of
from exactlyonce.reconcile.quarantine import still_to_be_quarantined
from exactlyonce.reconcile.recorded import has_verdict, is_replaced, with_pod
from exactlyonce.reconcile.restart import after_failure, still_failing

__all__ = [
    "Done",
    "Halted",
    "PassContext",
    "PassResult",
    "Report",
    "StatusConflict",
    "StatusStore",
    "StreamLoop",
    "Waiting",
    "Wanted",
    "Watching",
]


class StreamLoop:
    """The passes of one stream."""

    def __init__(self, stream: Stream, context: PassContext) -> None:
        self._operations = PassOperations(stream, context)
        self._launching, self._endings = Launching(stream, context), Endings(stream, context)
        self._resting, self._finishing = AtRest(stream, context), Finishing(stream, context)
        self._is_over = False

    @property
    def driver_is_over(self) -> bool:
        """Whether the latest pass has seen that no driver runs."""
        return self._is_over

    def run_pass(self, wanted: Wanted = Wanted.RUN, plan: str | None = None) -> PassResult:
        """Look, and do what is to be done now. Never raises for what the outside world does.

        `plan` stands for what the next driver would be made of; a driver made of something else is drained and replaced.
        None leaves every driver as it is.
        """
        try:
            return self._pass(wanted, plan)
        except (EpochOvertaken, PositionsMoved, StatusConflict) as problem:
            self._operations.context.reporter.note_problem(problem)
            return Waiting(self._operations.context.timing.now(), str(problem))
        except (Unreachable, OutcomeUnknown, LaunchFailed) as problem:
            self._operations.context.reporter.note_problem(problem)
            # An act whose answer was lost may have taken effect; the next pass looks again, with a newer epoch.
            return self._back_off(problem)
        except Refused as problem:
            self._operations.context.reporter.note_problem(problem)
            if isinstance(problem, RefusedOutside) and self._operations.context.place.asks_again:
                return self._back_off(problem)
            return self._halt(problem)

    def _pass(self, wanted: Wanted, plan: str | None) -> PassResult:
        status, version = self._operations.context.statuses.read()
        if status.phase is Phase.HALTED:
            return Halted(status.message)
        if status.phase is Phase.COMPLETED:
            return self._resting.rest(status, version, completed=True)
        attempt = Epoch(status.attempt)
        state = self._operations.context.attempts.launcher.state_of(attempt) if attempt else NeverStarted()
        self._is_over = not isinstance(state, Running)
        match state:
            case Running():
                return self._watch(status, version, state, wanted, plan)
            case Ended() | Gone():
                if status.current_driver is None or status.current_driver.ended is None:
                    result = self._endings.record(status, version, state, wanted, plan)
                    self._operations.reached("ending.recorded")
                    return result
            case NeverStarted():
                pass
            case _:
                assert_never(state)
        if wanted is Wanted.REST:
            return self._rest(status, version, plan)
        retry_at = status.consecutive_failures.retry_at
        if retry_at is not None and retry_at > self._operations.context.timing.now():
            return Waiting(retry_at, status.message)
        return self._launching.launch(status, version, plan)

    def _rest(self, status: StreamStatus, version: str, plan: str | None) -> PassResult:
        """No driver runs and none is wanted; but one without a query is, while something is decided."""
        finishing = self._finishing.at_rest(status, version, plan)
        if finishing is not None:
            return finishing
        if status.phase is not Phase.SUSPENDED:
            at_rest = STANDINGS[Phase.SUSPENDED].message
            status, version = self._operations.write(
                status, version, TransitionReason.AT_REST, phase=Phase.SUSPENDED, message=at_rest
            )
        return self._resting.rest(status, version, completed=False)

    def _watch(
        self, status: StreamStatus, version: str, state: Running, wanted: Wanted, plan: str | None
    ) -> PassResult:
        """A driver runs: let it, or drain it when the stream is to be suspended or its resource has changed."""
        status, version = self._endings.take_word(status, version, state.pod)
        attempt, changes = Epoch(status.attempt), self._shown(status, state)
        is_finishing = finishes(status.current_driver)
        if not is_finishing and (wanted is Wanted.REST or is_replaced(status, plan)):
            if wanted is Wanted.RUN:
                self._operations.context.attempts.check()  # a working driver is not ended for one that cannot be made
            why = "the stream is to be suspended" if wanted is Wanted.REST else "its resource has changed"
            message = f"Attempt {attempt} ends after the current batch: {why}."
            asked_before = status.phase is Phase.DRAINING
            changes |= {"phase": Phase.DRAINING, "message": message}
            self._operations.write_changed(status, version, changes, TransitionReason.DRAIN_REQUESTED)
            if not asked_before:
                self._operations.context.reporter.report("Draining", message)
            self._operations.reached("drain.recorded")
            self._operations.context.attempts.launcher.drain(attempt)
            self._operations.reached("drain.asked")
            return Watching(attempt, state.gives_up_at)
        hangs = state.hangs or _known_to_hang(status)
        if hangs is not None:
            return self._end_hung(status, version, state, hangs, changes)
        is_up = state.started and not is_finishing  # one without a query ends soon, and the stream does not run by it
        reason = TransitionReason.DRIVER_RUNS if is_up else TransitionReason.DRIVER_STARTS
        if not is_up and status.phase is not Phase.DRAINING:
            phase = Phase.LAUNCHING if has_verdict(status) else Phase.RECONCILING
            finishing = f"Attempt {attempt} finishes what earlier drivers have left, and runs no query."
            changes |= {"phase": phase, "message": finishing if state.started else state.where}
        elif status.phase is not Phase.DRAINING:
            changes |= {"phase": Phase.RUNNING, "message": state.idle_message or f"Attempt {attempt} runs."}
            if state.idle_message is not None and not _is_idle(status):
                self._operations.context.reporter.report(NO_EXECUTOR, state.idle_message)
        self._operations.write_changed(status, version, changes, reason)
        self._operations.reached("pass.running-recorded")
        return Watching(attempt, state.gives_up_at)

    def _end_hung(
        self, status: StreamStatus, version: str, state: Running, why: str, changes: Mapping[str, object]
    ) -> PassResult:
        """Record that a driver hangs, then kill it; once that is recorded it is killed, whatever it shows by then.

        With proof of its death it is replaced as one that died, without proof as a lost one; the fence holds either way.
        """
        attempt, told_before = Epoch(status.attempt), _known_to_hang(status) is not None
        driver = changes.get("driver")
        known = driver if isinstance(driver, DriverStatus) else DriverStatus(attempt=status.attempt)
        told = {"driver": known.model_copy(update={"no_progress_message": why}), "phase": Phase.RUNNING, "message": why}
        self._operations.write_changed(status, version, {**changes, **told}, TransitionReason.DRIVER_HANGS)
        if not told_before:
            self._operations.context.reporter.report(NO_PROGRESS, why)
        self._operations.reached("hang.recorded")
        self._operations.context.attempts.launcher.kill(attempt)
        self._operations.reached("hang.killed")
        return Watching(attempt, state.gives_up_at)

    def _shown(self, status: StreamStatus, state: Running) -> dict[str, object]:
        """What a status shows of a driver that runs: its pod, and from time to time what the ledger says."""
        changes: dict[str, object] = {}
        if status.current_driver is not None:
            shown = with_pod(status.current_driver, state.pod)
            changes["driver"] = shown.model_copy(update={"idle_message": state.idle_message})
        if self._operations.context.timing.view_is_due():
            try:
                view = (self._operations.context.timing.glance or self._operations.context.stores.ledger.view)(
                    self._operations.stream.stream_id
                )
            except ExactlyOnceError:
                return changes  # a driver that runs is not touched for what is only shown
            changes["landed_shown"] = self._operations.landed_shown(view, status)
            changes |= {"checkpoint": checkpoint_of(view), "progress": progress_of(view, status.progress)}
            changes |= self._grown_back(status, view)
            changes["consecutive_failures"] = still_failing(status.consecutive_failures, view)
            driver = changes.get("driver")
            if isinstance(driver, DriverStatus) and was_up(status.attempt, view):
                changes |= after_running(status, driver)
        return changes

    def _grown_back(self, status: StreamStatus, view: LedgerView | None) -> dict[str, object]:
        """A smaller limit, and a quarantine, are over when the batch has landed; its driver has found that out by itself."""
        limit = still_needed(status.batch_limit, view, self._operations.stream.spec.recovery)
        poison = still_to_be_quarantined(status.poison_batch, view, self._operations.stream.spec.recovery)
        grown: dict[str, object] = {} if limit == status.batch_limit else {"batch_limit": limit}
        return grown if poison == status.poison_batch else {**grown, "poison_batch": poison}

    def _back_off(self, problem: Exception) -> PassResult:
        """Something did not answer: nothing is known, so nothing is decided; try again later."""
        message = str(problem)
        try:
            status, version = self._operations.context.statuses.read()
            step = after_failure(
                status.consecutive_failures,
                self._operations.stream.spec.recovery,
                self._operations.context.timing.now(),
            )
            runs = status.phase is Phase.RUNNING and not self._is_over
            phase = Phase.RUNNING if runs else Phase.BACKING_OFF
            changes = {"phase": phase, "message": message, "consecutive_failures": step.consecutive_failures}
            changes |= after_refusal(status, problem, self._operations.context.timing.now())
            self._operations.write(status, version, TransitionReason.NO_ANSWER, **changes)
        except StatusConflict as conflict:
            return Waiting(self._operations.context.timing.now(), str(conflict))
        self._operations.context.reporter.report("BackingOff", message)
        return Waiting(step.at, message)

    def _halt(self, problem: Exception) -> PassResult:
        message = str(problem)
        try:
            status, version = self._operations.context.statuses.read()
            told = after_refusal(status, problem, self._operations.context.timing.now())
            told |= {"halt_reason": type(problem).__name__}
            refused = TransitionReason.REFUSED
            self._operations.write(status, version, refused, phase=Phase.HALTED, message=message, **told)
        except StatusConflict as conflict:
            return Waiting(self._operations.context.timing.now(), str(conflict))
        self._operations.context.reporter.report("Halted", message)
        return Halted(message)


def _is_idle(status: StreamStatus) -> bool:
    """Whether the status says already that the driver has no executor."""
    return status.driver is not None and status.driver.idle_message is not None


def _known_to_hang(status: StreamStatus) -> str | None:
    """Why the status says already that the driver is to be killed."""
    return None if status.current_driver is None else status.current_driver.no_progress_message
