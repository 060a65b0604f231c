"""The loop of one stream: one level-triggered pass, the same for processes and pods.

Every wake-up runs the whole pass; a missed one costs time, never truth. What is about to be done is in the status
before it is done. A crash between any two lines leads to the same end: docs/adr/0003 goes through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from exactlyonce.api.conditions import NO_EXECUTOR, NO_PROGRESS
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
from exactlyonce.reconcile.pass_step import PassStep
from exactlyonce.reconcile.progress import checkpoint_of, progress_of
from exactlyonce.reconcile.recorded import has_verdict, is_replaced, with_pod
from exactlyonce.reconcile.restart import after_failure

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
        self._step = PassStep(stream, context)
        self._launching, self._endings = Launching(stream, context), Endings(stream, context)
        self._resting = AtRest(stream, context)
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
            self._step.context.telling.troubled(problem)
            return Waiting(self._step.context.timing.now(), str(problem))
        except (Unreachable, OutcomeUnknown, LaunchFailed) as problem:
            self._step.context.telling.troubled(problem)
            # An act whose answer was lost may have taken effect; the next pass looks again, with a newer epoch.
            return self._back_off(problem)
        except Refused as problem:
            self._step.context.telling.troubled(problem)
            if isinstance(problem, RefusedOutside) and self._step.context.place.asks_again:
                return self._back_off(problem)
            return self._halt(problem)

    def _pass(self, wanted: Wanted, plan: str | None) -> PassResult:
        status, version = self._step.context.statuses.read()
        if status.phase is Phase.HALTED:
            return Halted(status.message)
        if status.phase is Phase.COMPLETED:
            return self._resting.rest(status, version, completed=True)
        attempt = Epoch(status.attempt)
        state = self._step.context.attempts.launcher.state_of(attempt) if attempt else NeverStarted()
        self._is_over = not isinstance(state, Running)
        match state:
            case Running():
                return self._watch(status, version, state, wanted, plan)
            case Ended() | Gone():
                if status.driver is None or status.driver.attempt != attempt or status.driver.ended is None:
                    result = self._endings.record(status, version, state, wanted, plan)
                    self._step.reached("ending.recorded")
                    return result
            case NeverStarted():
                pass
            case _:
                assert_never(state)
        if wanted is Wanted.REST:
            if status.phase is not Phase.SUSPENDED:
                at_rest = "The stream is at rest, as it is asked to be."
                status, version = self._step.write(status, version, phase=Phase.SUSPENDED, message=at_rest)
            return self._resting.rest(status, version, completed=False)
        retry_at = status.consecutive_failures.retry_at
        if retry_at is not None and retry_at > self._step.context.timing.now():
            return Waiting(retry_at, status.message)
        return self._launching.launch(status, version, plan)

    def _watch(
        self, status: StreamStatus, version: str, state: Running, wanted: Wanted, plan: str | None
    ) -> PassResult:
        """A driver runs: let it, or drain it when the stream is to rest or to go on with another plan."""
        status, version = self._endings.take_word(status, version, state.pod)
        attempt, changes = Epoch(status.attempt), self._shown(status, state)
        if wanted is Wanted.REST or is_replaced(status, plan):
            if wanted is Wanted.RUN:
                self._step.context.attempts.check()  # a driver that does its work is not ended for one that cannot be made
            why = "the stream is to rest" if wanted is Wanted.REST else "its resource has changed"
            message = f"Attempt {attempt} ends after the batch in hand: {why}."
            asked_before = status.phase is Phase.DRAINING
            self._step.write_changed(status, version, {**changes, "phase": Phase.DRAINING, "message": message})
            if not asked_before:
                self._step.context.telling.report("Draining", message)
            self._step.reached("drain.recorded")
            self._step.context.attempts.launcher.drain(attempt)
            self._step.reached("drain.asked")
            return Watching(attempt, state.gives_up_at)
        hangs = state.hangs or _known_to_hang(status)
        if hangs is not None:
            return self._end_hung(status, version, state, hangs, changes)
        if not state.started and status.phase is not Phase.DRAINING:
            phase = Phase.LAUNCHING if has_verdict(status) else Phase.RECONCILING
            changes |= {"phase": phase, "message": state.where}
        elif status.phase is not Phase.DRAINING:
            changes |= {"phase": Phase.RUNNING, "message": state.idle_because or f"Attempt {attempt} runs."}
            if state.idle_because is not None and not _is_idle(status):
                self._step.context.telling.report(NO_EXECUTOR, state.idle_because)
        self._step.write_changed(status, version, changes)
        self._step.reached("pass.running-recorded")
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
        told = {"driver": known.model_copy(update={"no_progress": why}), "phase": Phase.RUNNING, "message": why}
        self._step.write_changed(status, version, {**changes, **told})
        if not told_before:
            self._step.context.telling.report(NO_PROGRESS, why)
        self._step.reached("hang.recorded")
        self._step.context.attempts.launcher.kill(attempt)
        self._step.reached("hang.killed")
        return Watching(attempt, state.gives_up_at)

    def _shown(self, status: StreamStatus, state: Running) -> dict[str, object]:
        """What a status shows of a driver that runs: its pod, and from time to time what the ledger says."""
        changes: dict[str, object] = {}
        if status.driver is not None and status.driver.attempt == status.attempt:
            shown = with_pod(status.driver, state.pod)
            changes["driver"] = shown.model_copy(update={"idle_because": state.idle_because})
        if self._step.context.timing.view_is_due():
            try:
                view = (self._step.context.timing.glance or self._step.context.stores.ledger.view)(
                    self._step.stream.stream_id
                )
            except ExactlyOnceError:
                return changes  # a driver that runs is not touched for what is only shown
            changes["landed_shown"] = self._step.landed_shown(view, status)
            changes |= {"checkpoint": checkpoint_of(view), "progress": progress_of(view, status.progress)}
            changes |= self._grown_back(status, view)
            driver = changes.get("driver")
            if isinstance(driver, DriverStatus) and was_up(status.attempt, view):
                changes |= after_running(status, driver)
        return changes

    def _grown_back(self, status: StreamStatus, view: LedgerView | None) -> dict[str, object]:
        """The smaller limit of a batch is over when what was too large has landed; its driver has found that out by itself."""
        limit = still_needed(status.batch_limit, view, self._step.stream.spec.recovery)
        return {} if limit == status.batch_limit else {"batch_limit": limit}

    def _back_off(self, problem: Exception) -> PassResult:
        """Something did not answer: nothing is known, so nothing is decided; try again later."""
        reason = str(problem)
        try:
            status, version = self._step.context.statuses.read()
            step = after_failure(
                status.consecutive_failures, self._step.stream.spec.recovery, self._step.context.timing.now()
            )
            runs = status.phase is Phase.RUNNING and not self._is_over
            phase = Phase.RUNNING if runs else Phase.BACKING_OFF
            changes = {"phase": phase, "message": reason, "consecutive_failures": step.consecutive_failures}
            self._step.write(
                status, version, **changes, **after_refusal(status, problem, self._step.context.timing.now())
            )
        except StatusConflict as conflict:
            return Waiting(self._step.context.timing.now(), str(conflict))
        self._step.context.telling.report("BackingOff", reason)
        return Waiting(step.at, reason)

    def _halt(self, problem: Exception) -> PassResult:
        reason = str(problem)
        try:
            status, version = self._step.context.statuses.read()
            told = after_refusal(status, problem, self._step.context.timing.now())
            self._step.write(status, version, phase=Phase.HALTED, message=reason, **told)
        except StatusConflict as conflict:
            return Waiting(self._step.context.timing.now(), str(conflict))
        self._step.context.telling.report("Halted", reason)
        return Halted(reason)


def _is_idle(status: StreamStatus) -> bool:
    """Whether the status says already that the driver has no executor."""
    return status.driver is not None and status.driver.idle_because is not None


def _known_to_hang(status: StreamStatus) -> str | None:
    """Why the status says already that the driver is to be killed."""
    driver = status.driver
    return None if driver is None or driver.attempt != status.attempt else driver.no_progress
