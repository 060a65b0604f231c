"""The loop of one stream: one level-triggered pass, the same for processes and pods.

Every wake-up runs the whole pass; a missed one costs time, never truth. What is about to be done is in the status
before it is done. A crash between any two lines leads to the same end: docs/adr/0003 goes through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from exactlyonce.api.resource import Stream
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus, Trouble
from exactlyonce.crash_points import reached
from exactlyonce.errors import ExactlyOnceError, OutcomeUnknown, Refused, RefusedOutside, Unreachable
from exactlyonce.launch.last_words import Ending
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, Ended, Gone, Launcher, LaunchFailed, NeverStarted, Running
from exactlyonce.ledger.fence import EpochOvertaken, NewStream, Raised, raise_epoch
from exactlyonce.ledger.publish import PositionsMoved
from exactlyonce.ledger.rows import LedgerView, StreamRow
from exactlyonce.offsets import BatchNumber, Epoch
from exactlyonce.reconcile.act import act
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.identity import before_the_raise
from exactlyonce.reconcile.in_pod import Brief
from exactlyonce.reconcile.observation import MayLive, NoPredecessor, Predecessor, ProvenDead
from exactlyonce.reconcile.observe import new_token, observe, request_of
from exactlyonce.reconcile.progress import checkpoint_of, progress_of
from exactlyonce.reconcile.recorded import (
    changes_by_word,
    checkpoint_after,
    has_verdict,
    in_progress_of,
    is_replaced,
    landed_after,
    newer_epoch,
    told_of,
    verdict_of,
    with_pod,
)
from exactlyonce.reconcile.restart import Finished, HaltStream, Restart, after_ending, after_trouble
from exactlyonce.reconcile.verdicts import Decision, Launch
from exactlyonce.reconcile.world import (
    Done,
    Halted,
    PassResult,
    Report,
    StatusConflict,
    StatusStore,
    Waiting,
    Wanted,
    Watching,
    World,
)

__all__ = [
    "Done",
    "Halted",
    "PassResult",
    "Report",
    "StatusConflict",
    "StatusStore",
    "StreamLoop",
    "Waiting",
    "Wanted",
    "Watching",
    "World",
    "predecessor_of",
]


class StreamLoop:
    """The passes of one stream."""

    def __init__(self, stream: Stream, world: World) -> None:
        self._stream = stream
        self._world = world
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
            self._world.troubled(problem)
            return Waiting(self._world.now(), str(problem))
        except (Unreachable, OutcomeUnknown, LaunchFailed) as problem:
            self._world.troubled(problem)
            # An act whose answer was lost may have taken effect; the next pass looks again, with a newer epoch.
            return self._put_off(str(problem))
        except Refused as problem:
            self._world.troubled(problem)
            if isinstance(problem, RefusedOutside) and self._world.asks_again:
                return self._put_off(str(problem))
            return self._halt(str(problem))

    def _pass(self, wanted: Wanted, plan: str | None) -> PassResult:
        status, version = self._world.statuses.read()
        if status.phase is Phase.HALTED:
            return Halted(status.message)
        if status.phase is Phase.COMPLETED:
            return Done(completed=True)
        attempt = Epoch(status.attempt)
        state = self._world.launcher.look(attempt) if attempt else NeverStarted()
        self._is_over = not isinstance(state, Running)
        match state:
            case Running():
                return self._watch(status, version, state, wanted, plan)
            case Ended() | Gone():
                if status.driver is None or status.driver.attempt != attempt or status.driver.ended is None:
                    result = self._record_ending(status, version, state, wanted, plan)
                    self._reached("ending.recorded")
                    return result
            case NeverStarted():
                pass
            case _:
                assert_never(state)
        if wanted is Wanted.REST:
            if status.phase is not Phase.SUSPENDED:
                self._write(
                    status, version, phase=Phase.SUSPENDED, message="The stream is at rest, as it is asked to be."
                )
            return Done(completed=False)
        retry_at = status.trouble.retry_at
        if retry_at is not None and retry_at > self._world.now():
            return Waiting(retry_at, status.message)
        return self._launch(status, version, plan)

    def _watch(
        self, status: StreamStatus, version: str, state: Running, wanted: Wanted, plan: str | None
    ) -> PassResult:
        """A driver runs: let it, or drain it when the stream is to rest or to go on with another plan."""
        status, version = self._take_word(status, version, state.pod)
        attempt, changes = Epoch(status.attempt), self._shown(status, state)
        if wanted is Wanted.REST or is_replaced(status, plan):
            if wanted is Wanted.RUN:
                self._world.check()  # a driver that does its work is not ended for one that cannot be made
            why = "the stream is to rest" if wanted is Wanted.REST else "its resource has changed"
            message = f"Attempt {attempt} ends after the batch in hand: {why}."
            asked_before = status.phase is Phase.DRAINING
            self._write_changed(status, version, {**changes, "phase": Phase.DRAINING, "message": message})
            if not asked_before:
                self._world.report("Draining", message)
            self._reached("drain.recorded")
            self._world.launcher.drain(attempt)
            self._reached("drain.asked")
            return Watching(attempt, state.gives_up_at)
        if not state.started and status.phase is not Phase.DRAINING:
            phase = Phase.LAUNCHING if has_verdict(status) else Phase.RECONCILING
            changes |= {"phase": phase, "message": state.where}
        elif status.phase is not Phase.DRAINING:
            changes |= {"phase": Phase.RUNNING, "message": f"Attempt {attempt} runs."}
        self._write_changed(status, version, changes)
        self._reached("pass.running-recorded")
        return Watching(attempt, state.gives_up_at)

    def _shown(self, status: StreamStatus, state: Running) -> dict[str, object]:
        """What a status shows of a driver that runs: its pod, and from time to time what the ledger says."""
        changes: dict[str, object] = {}
        if status.driver is not None and status.driver.attempt == status.attempt:
            changes["driver"] = with_pod(status.driver, state.pod)
        if self._world.look_is_due():
            try:
                view = (self._world.glance or self._world.stores.ledger.look)(self._stream.stream_id)
            except ExactlyOnceError:
                return changes  # a driver that runs is not touched for what is only shown
            changes |= {"checkpoint": checkpoint_of(view), "progress": progress_of(view, status.progress)}
        return changes

    def _record_ending(
        self, status: StreamStatus, version: str, ending: Ended | Gone, wanted: Wanted, plan: str | None
    ) -> PassResult:
        """Write down how the driver ended and what follows, before anything follows."""
        status, version = self._take_word(status, version, ending.pod)
        if ending.pod is not None and ending.pod.word is not None and ending.pod.word.outcome is not Outcome.LAUNCHES:
            return self._by_word(status, version, ending.pod, ending.pod.word)
        world = self._world
        driver = DriverStatus(attempt=status.attempt)
        if status.driver is not None and status.driver.attempt == status.attempt:
            driver = status.driver
        landed_at_start = driver.landed_at_start
        view = self._ledger_after(ending, wanted)
        step = after_ending(
            ending,
            None if landed_at_start is None else BatchNumber(landed_at_start),
            None if view is None else view.stream.landed_batch,
            in_progress_of(view),
            status.trouble,
            self._stream.spec.recovery,
            world.now(),
        )
        kind, told = told_of(ending)
        self._reached("ending.seen")
        world.report(kind, f"Attempt {status.attempt} ended: {told}")
        proof = ending.proof if isinstance(ending, Ended) else None
        ended = {"ended": kind, "proof": proof, "message": told}
        goes_on = wanted is Wanted.RUN and (world.asks_again or is_replaced(status, plan))
        driver = with_pod(driver, ending.pod).model_copy(update=ended)
        status = status.model_copy(update={"progress": progress_of(view, status.progress)})
        match step:
            case Finished(completed=False) if goes_on:
                # Never Suspended, which would be Ready: what the resource asks for is not yet so.
                self._write(status, version, phase=Phase.PENDING, message=told, driver=driver, trouble=Trouble())
                return Waiting(world.now(), told)
            case Finished(completed=completed):
                phase = Phase.COMPLETED if completed else Phase.SUSPENDED
                self._write(status, version, phase=phase, message=told, driver=driver, trouble=Trouble())
                return Done(completed)
            case HaltStream(reason=reason, trouble=trouble):
                self._write(status, version, phase=Phase.HALTED, message=reason, driver=driver, trouble=trouble)
                world.report("Halted", reason)
                return Halted(reason)
            case Restart(at=at, trouble=trouble):
                self._write(status, version, phase=Phase.BACKING_OFF, message=told, driver=driver, trouble=trouble)
                return Waiting(at, told)
            case _:
                assert_never(step)

    def _ledger_after(self, ending: Ended | Gone, wanted: Wanted) -> LedgerView | None:
        """Look at the ledger, without which a stream rests and a driver that was asked to end has ended well all the same."""
        try:
            return self._world.stores.ledger.look(self._stream.stream_id)
        except ExactlyOnceError:
            words = ending.words if isinstance(ending, Ended) else None
            has_drained = words is not None and words.ending is Ending.DRAINED
            if wanted is Wanted.REST or has_drained:
                return None
            raise

    def _launch(self, status: StreamStatus, version: str, plan: str | None) -> PassResult:
        """Choose, record, raise, observe, decide, act: in this order."""
        world, stream_id = self._world, self._stream.stream_id
        world.check()
        world.stores.ledger.prepare()
        before = world.stores.ledger.look(stream_id)
        if before is not None:
            row, request = before.stream, request_of(self._stream, world.owner)
            is_gone = row.owner != world.owner and world.owner_is_gone(row.owner)
            foreign = before_the_raise(request, row, is_gone)
            if foreign is not None:
                return self._leave_to_its_owner(status, version, Decision(foreign))
        known = Epoch(0) if before is None else before.stream.epoch
        # A status that is lost and a ledger that went back may both have forgotten an attempt whose last words are still there.
        attempt = Epoch(max(status.attempt, known, world.launcher.latest()) + 1)
        if known > status.attempt:
            world.report("NewerEpoch", newer_epoch(stream_id, known, status.attempt, attempt))
        status, version = self._write(status, version, attempt=attempt, phase=Phase.RECONCILING)
        self._reached("pass.attempt-recorded")
        raised = raise_epoch(world.stores.ledger, self._new_stream(), attempt)
        self._reached("pass.epoch-raised")
        if world.in_pod:
            return self._launch_in_pod(status, version, raised, plan)
        seen = observe(
            world.stores,
            request_of(self._stream, world.owner),
            attempt,
            predecessor_of(raised.before, status, world.launcher),
            world.owner_is_gone,
        )
        decision = decide(seen)
        self._reached("pass.observed")
        driver = {
            "driver": DriverStatus(attempt=attempt, landed_at_start=landed_after(decision, seen.ledger), plan=plan),
            "checkpoint": checkpoint_after(decision, seen.ledger, world.stores.checkpoints.location),
            "progress": progress_of(seen.ledger, status.progress),
        }
        # One write for both, unless an act that fails would leave the next pass without what is known of the driver before.
        at_once = not decision.halts and (status.driver is None or decision.actions == (Launch(),))
        status, version = self._record_verdict(status, version, decision, attempt, driver if at_once else {})
        self._reached("pass.verdict-recorded")
        for action in decision.actions:
            act(world.stores, stream_id, attempt, action)
            self._reached("pass.acted")
        if decision.halts:
            self._write(status, version, phase=Phase.HALTED)
            return Halted(decision.verdict.reason)
        if not at_once:
            self._write(status, version, **driver)
        self._reached("pass.driver-recorded")
        world.launcher.start(attempt)
        return Watching(attempt)

    def _leave_to_its_owner(self, status: StreamStatus, version: str, decision: Decision) -> PassResult:
        """Halt without a raise, which would fence the driver of whom the stream belongs to."""
        status, version = self._record_verdict(status, version, decision, Epoch(status.attempt), {})
        self._write(status, version, phase=Phase.HALTED)
        return Halted(decision.verdict.reason)

    def _launch_in_pod(self, status: StreamStatus, version: str, raised: Raised, plan: str | None) -> PassResult:
        """The driver's pod reconciles, where the checkpoint's volume is, and starts the driver or not; its word follows."""
        world, attempt, row = self._world, Epoch(status.attempt), raised.before
        is_gone = row is not None and row.owner != world.owner and world.owner_is_gone(row.owner)
        brief = Brief(
            self._stream,
            world.owner,
            row.owner if row is not None and is_gone else None,
            predecessor_of(row, status, world.launcher),
        )
        landed = None if row is None else row.landed_batch
        driver = DriverStatus(attempt=attempt, landed_at_start=landed, plan=plan)
        message = f"Attempt {attempt} reconciles in its pod, which has the checkpoint's volume."
        self._write(status, version, driver=driver, message=message)
        self._reached("pass.driver-recorded")
        world.launcher.start(attempt, brief.render())
        return Watching(attempt)

    def _take_word(self, status: StreamStatus, version: str, pod: DriverPod | None) -> tuple[StreamStatus, str]:
        """Write down, once, what the reconciliation in a driver's pod has decided."""
        if pod is None or pod.word is None or pod.word.kind is None or has_verdict(status):
            return status, version
        word, kind = pod.word, pod.word.kind
        phase = Phase.LAUNCHING if status.phase is Phase.RECONCILING else status.phase
        changes = changes_by_word(status, word, self._world.now())
        written = self._write(status, version, **changes, phase=phase, message=word.reason)
        self._reached("pass.verdict-recorded")
        self._world.report(kind, f"Attempt {status.attempt}: {word.reason}")
        return written

    def _by_word(self, status: StreamStatus, version: str, pod: DriverPod, word: PodVerdict) -> PassResult:
        """The reconciliation in the pod did not let the driver start: do as for the operator's own."""
        world, driver = self._world, status.driver or DriverStatus(attempt=status.attempt)
        driver = with_pod(driver, pod).model_copy(update={"ended": str(word.outcome), "message": word.reason})
        match word.outcome:
            case Outcome.HALTS | Outcome.REFUSED:
                self._write(status, version, phase=Phase.HALTED, message=word.reason, driver=driver)
                if word.outcome is Outcome.REFUSED:
                    world.report("Halted", word.reason)
                return Halted(word.reason)
            case Outcome.OVERTAKEN:
                self._write(status, version, phase=Phase.BACKING_OFF, message=word.reason, driver=driver)
                return Waiting(world.now(), word.reason)
            case Outcome.UNREACHABLE | Outcome.LAUNCHES:
                step = after_trouble(status.trouble, self._stream.spec.recovery, world.now())
                changes = {
                    "phase": Phase.BACKING_OFF,
                    "message": word.reason,
                    "driver": driver,
                    "trouble": step.trouble,
                }
                self._write(status, version, **changes)
                world.report("PutOff", word.reason)
                return Waiting(step.at, word.reason)
            case _:
                assert_never(word.outcome)

    def _new_stream(self) -> NewStream:
        """What the stream's row says when the raise makes it; the token is this very pass's."""
        world = self._world
        return NewStream(self._stream.stream_id, new_token(), world.owner, world.stores.ledger.database_identity())

    def _record_verdict(
        self, status: StreamStatus, version: str, decision: Decision, attempt: Epoch, driver: Mapping[str, object]
    ) -> tuple[StreamStatus, str]:
        verdict = verdict_of(decision, attempt, self._world.now())
        changes = {"phase": Phase.LAUNCHING, "message": verdict.reason, "verdict": verdict, **driver}
        written = self._write(status, version, **changes)
        self._world.report(verdict.kind, f"Attempt {attempt}: {verdict.reason}")
        return written

    def _put_off(self, reason: str) -> PassResult:
        """Something did not answer: nothing is known, so nothing is decided; try again later."""
        try:
            status, version = self._world.statuses.read()
            step = after_trouble(status.trouble, self._stream.spec.recovery, self._world.now())
            runs = status.phase is Phase.RUNNING and not self._is_over
            phase = Phase.RUNNING if runs else Phase.BACKING_OFF
            self._write(status, version, phase=phase, message=reason, trouble=step.trouble)
        except StatusConflict as problem:
            return Waiting(self._world.now(), str(problem))
        self._world.report("PutOff", reason)
        return Waiting(step.at, reason)

    def _halt(self, reason: str) -> PassResult:
        try:
            status, version = self._world.statuses.read()
            self._write(status, version, phase=Phase.HALTED, message=reason)
        except StatusConflict as problem:
            return Waiting(self._world.now(), str(problem))
        self._world.report("Halted", reason)
        return Halted(reason)

    def _reached(self, point: str) -> None:
        reached(point, self._stream.metadata.namespace, self._stream.metadata.name)

    def _write_changed(self, status: StreamStatus, version: str, changes: dict[str, object]) -> None:
        if any(getattr(status, name) != value for name, value in changes.items()):
            self._write(status, version, **changes)

    def _write(self, status: StreamStatus, version: str, **changes: object) -> tuple[StreamStatus, str]:
        changed = status.model_copy(update=changes)
        return changed, self._world.statuses.write(changed, version)


def predecessor_of(row: StreamRow | None, status: StreamStatus, launcher: Launcher) -> Predecessor:
    """Return who last wrote the published checkpoint of a stream, and whether its death is proven."""
    if row is None or row.writer is None:
        return NoPredecessor()
    if row.writer_released:
        return ProvenDead(f"the driver of attempt {row.writer} said that it has stopped")
    state = launcher.look(row.writer)
    if isinstance(state, Ended):
        return ProvenDead(state.proof)
    known = status.driver
    if known is not None and known.attempt == row.writer and known.proof is not None:
        return ProvenDead(known.proof)
    why = state.why if isinstance(state, Gone) else f"nothing proves that the driver of attempt {row.writer} ended"
    return MayLive(why)
