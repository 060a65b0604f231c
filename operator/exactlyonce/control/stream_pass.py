"""One pass over one stream of the cluster: read it, assemble its ports, run the loop, say what follows. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, assert_never

from exactlyonce.api.advice import advice_of
from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.resource import ResourceInvalid, Stream
from exactlyonce.api.status import ConsecutiveFailures, Phase, StreamStatus
from exactlyonce.control.cluster import Cluster, ResourceNotAccepted
from exactlyonce.control.deletion import FINALIZER
from exactlyonce.control.incomplete import Lack, StreamIncomplete
from exactlyonce.control.invalid_spec import watch_driver
from exactlyonce.control.last_finish import LastFinish
from exactlyonce.control.lease import NotLeading, require_lease
from exactlyonce.control.next_pass import AT_REST, WATCH_SECONDS, Next, next_pass, wanted_of
from exactlyonce.control.observer import Observer
from exactlyonce.control.pass_ports import Leaving, Making, PassPorts, Writing
from exactlyonce.control.resource_hashes import is_last_valid, what_a_person_asks
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.control.rollback import InForce, Rollback, RunsOn
from exactlyonce.control.wakeups import Key
from exactlyonce.crash_points import reached
from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.launch.port import Launcher
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.bad_update import after_rehearsal, is_to_be_settled
from exactlyonce.reconcile.loop import (
    Halted,
    StatusConflict,
    StreamLoop,
    Wanted,
    Watching,
)

log = logging.getLogger("exactlyonce.operator")

REFUSED_SECONDS = 30.0
_NOT_LEADING_SECONDS = 2.0
_MISSING_SECONDS = 15.0
_SETTLED = (Phase.HALTED, Phase.COMPLETED, Phase.SUSPENDED)
_EXPECTED = {
    "FirstStart", "Resume", "ReplayBatch", "ReplanBatch", "SkipLanded", "FinishBatch", "FinishCommit", "FinishFirst",
    "OffsetsReset", "Draining", "Drained", "Completed", "Finished", "Fenced",
}  # fmt: skip
"""What happens in the life of a stream that needs nobody; every other event is a warning."""


@dataclass(frozen=True)
class StreamPasses:
    """Runs passes; safe to use from several threads, one per stream.

    Streams without the labels of `selector` are another operator's, whatever has woken them: a pod, or a timer.
    """

    cluster: Cluster
    making: Making
    writing: Writing
    leaving: Leaving
    observer: Observer
    rollback: Rollback = field(default_factory=Rollback)
    selector: str = ""
    lacking: dict[Key, str] = field(default_factory=dict)
    cleaned: dict[Key, tuple[str, Epoch, int]] = field(default_factory=dict)

    def run(self, key: Key) -> Next:
        """Run one pass over a stream. Never raises for what the outside world does."""
        try:
            document = self.cluster.stream(key, self.selector)
            if document is None:
                self.cleaned.pop(key, None)
                self.lacking.pop(key, None)
                self.observer.gone(key)
                self.leaving.forget(key)
                self.leaving.orphans(key)
                return Next(None, "gone")
            return self._run(key, document)
        except StatusConflict:
            return Next(0.0, "conflict")
        except NotLeading:
            return Next(_NOT_LEADING_SECONDS, "not_leading")  # it may lead again a moment later, and nothing would tell
        except Unreachable as problem:
            return self._back_off(key, problem, 5.0)
        except ExactlyOnceError as problem:
            return self._back_off(key, problem, REFUSED_SECONDS)

    def _run(self, key: Key, document: dict[str, Any]) -> Next:
        try:
            return self._pass(key, document)
        except ResourceNotAccepted as problem:
            self.cluster.tell(document, "NotAccepted", str(problem), warning=True)
            raise

    def _back_off(self, key: Key, problem: ExactlyOnceError, after_seconds: float) -> Next:
        """The API server did not answer, or says that the operator may not: there is no status to tell it in."""
        log.warning("%s", problem, extra={"stream": str(key), "reason": "BackingOff"})
        self.observer.metrics.note_problem(problem)
        return Next(after_seconds, "unreachable" if isinstance(problem, Unreachable) else "refused")

    def _pass(self, key: Key, document: dict[str, Any]) -> Next:
        metadata = document["metadata"]
        deleting = "deletionTimestamp" in metadata
        if not deleting and FINALIZER not in metadata.get("finalizers", []):
            require_lease(self.writing.may_act)
            document = self.cluster.put_finalizers(document, [*metadata.get("finalizers", []), FINALIZER])
            reached("pass.finalizer-set", metadata["namespace"], metadata["name"])

        def written(before: StreamStatus, after: StreamStatus) -> None:
            self.observer.written(key, before, after)

        statuses = ResourceStatus(self.cluster, document, self.writing.rendered, self.writing.may_act, written)
        if deleting:
            again = LastFinish(self.making).run(document, statuses, self._reporter(statuses))
            return Next(self.leaving.deletion(statuses.document) if again is None else again, "deleting")
        try:
            stream = self.making.parse(document)
        except ResourceInvalid as problem:
            return self._invalid(key, document, statuses, problem)
        self._start_over_if_asked(statuses, stream)
        return self._in_force(key, document, statuses, stream)

    def _in_force(
        self, key: Key, document: Mapping[str, Any], statuses: ResourceStatus, stream: Stream, plan: str | None = None
    ) -> Next:
        """Run the loop over a stream as its spec asks, or as the last good one does where that one cannot be started."""
        launcher = self._launcher(document)
        found = self.rollback.in_force(document, statuses, stream, launcher, self._reporter(statuses))
        match found:
            case InForce(stream=made, plan=plan_of_good):
                return self._looped(key, document, statuses, made, plan_of_good or plan)
            case RunsOn():
                self._seen(
                    statuses, has_driver=watch_driver(statuses, launcher, rests=wanted_of(document) is Wanted.REST)
                )
                return Next(WATCH_SECONDS, "watching")
            case _:
                assert_never(found)

    def _looped(
        self, key: Key, document: Mapping[str, Any], statuses: ResourceStatus, stream: Stream, plan: str | None = None
    ) -> Next:
        """Run the loop over a stream as its spec asks, or as its last valid spec does, whose `plan` is known."""
        wanted = wanted_of(document)
        ports = self.making.ports_of(stream, document, statuses, self._reporter(statuses))
        loop = StreamLoop(stream, ports.context)
        try:
            result = loop.run_pass(wanted, plan or ports.plan)
        except StreamIncomplete as told:
            if loop.driver_is_over:  # what it has left may be what fills the quota that refuses the next one
                self._clean_up_once(statuses, ports, stream.spec.history)
            status = statuses.read()[0]
            refused = after_rehearsal(status, plan or ports.plan, told.problem, ports.context.timing.now())
            if refused:
                statuses.carry(status.model_copy(update=refused))
            return self._not_put_together(statuses, told.problem, wanted, has_driver=not loop.driver_is_over)
        self._clean_up_once(statuses, ports, stream.spec.history)
        self._show_lag(key, statuses)
        statuses.flush()
        lacks = self._lacks(key, ports, statuses)
        self._seen(statuses, has_driver=isinstance(result, Watching), lacks=lacks)
        following = next_pass(result, wanted)
        if isinstance(result, Halted) and is_to_be_settled(statuses.read()[0], stream.spec.recovery):
            following = Next(0.0, following.outcome)  # what was refused for good may be rolled back
        return following if lacks is None else Next(_MISSING_SECONDS, following.outcome)

    def _lacks(self, key: Key, ports: PassPorts, statuses: ResourceStatus) -> Lack | None:
        """Return what the stream lacks to be measured; it is an event, once, and leaves the status as it is."""
        try:
            ports.introduce()
        except StreamIncomplete as told:
            self.observer.metrics.note_problem(told.problem)
            if self.lacking.get(key) != str(told.problem):
                self.lacking[key] = str(told.problem)
                self._reporter(statuses)("BackingOff", str(told.problem))
            return told.problem
        self.lacking.pop(key, None)
        return None

    def _show_lag(self, key: Key, statuses: ResourceStatus) -> None:
        """Write the lag as it was measured last into the status, where it is another by now."""
        status, version = statuses.read()
        shown = self.observer.with_lag(key, status)
        if shown is not status:
            statuses.write(shown, version)

    def _clean_up_once(self, statuses: ResourceStatus, ports: PassPorts, keep: int) -> None:
        """Let go of the attempts whose endings are recorded; a process that did so need not look again until the next one."""
        metadata = statuses.document["metadata"]
        recorded = recorded_attempt(statuses.read()[0])
        key = Key(metadata["namespace"], metadata["name"])
        if not recorded or self.cleaned.get(key) == (metadata["uid"], recorded, keep):
            return  # before the first ending there is nothing to let go
        ports.clean_up(recorded, keep)
        self.cleaned[key] = (metadata["uid"], recorded, keep)
        reached("ending.cleaned-up", *key)

    def _invalid(
        self, key: Key, document: Mapping[str, Any], statuses: ResourceStatus, problem: ResourceInvalid
    ) -> Next:
        """A spec that cannot be used: the last one that could is kept to, and the resource says what is wrong."""
        status, version = statuses.read()
        told = " ".join(problem.problems)
        statuses.write(status.model_copy(update={"spec_problem": told}), version)
        if status.spec_problem != told:
            self._reporter(statuses)("SpecInvalid", told)
        before = self.rollback.last_good(document, status)
        if before is not None:
            return self._looped(key, document, statuses, before.stream, before.plan)
        if status.driver is not None:
            stream = self.making.last_made(document)
            if stream is not None and is_last_valid(stream, status):
                return self._in_force(key, document, statuses, stream, status.driver.plan)
        has_driver = watch_driver(statuses, self._launcher(document), rests=wanted_of(document) is Wanted.REST)
        self._seen(statuses, has_driver=has_driver)
        return Next(WATCH_SECONDS, "invalid")

    def _launcher(self, document: Mapping[str, Any]) -> Launcher | None:
        return None if self.making.launcher_of is None else self.making.launcher_of(document)

    def _not_put_together(self, statuses: ResourceStatus, problem: Lack, wanted: Wanted, *, has_driver: bool) -> Next:
        """Something is missing, such as a secret or room in a quota: no attempt is made without it; a running driver stays."""
        self.observer.metrics.note_problem(problem)
        status, version = statuses.read()
        if status.phase in _SETTLED and not (status.phase is Phase.SUSPENDED and wanted is Wanted.RUN):
            statuses.flush()
            self._seen(statuses, has_driver=has_driver, lacks=problem)
            return Next(AT_REST, "not_put_together")  # what a person has to know, or was told, is not written over
        phase = Phase.BACKING_OFF if status.attempt else Phase.PENDING
        told = status.model_copy(update={"message": str(problem), "phase": status.phase if has_driver else phase})
        if told != status:
            statuses.write(told, version, TransitionReason.SOMETHING_MISSING)
            self._reporter(statuses)("BackingOff", str(problem))
        statuses.flush()
        self._seen(statuses, has_driver=has_driver, lacks=problem)
        return Next(_MISSING_SECONDS, "not_put_together")

    def _seen(self, statuses: ResourceStatus, *, has_driver: bool, lacks: Lack | None = None) -> None:
        metadata = statuses.document["metadata"]
        created = metadata.get("creationTimestamp")
        self.observer.seen(
            Key(metadata["namespace"], metadata["name"]),
            statuses.read()[0],
            has_driver=has_driver,
            created_at=None if created is None else datetime.fromisoformat(created),
            lacks=lacks,
        )

    def _start_over_if_asked(self, statuses: ResourceStatus, stream: Stream) -> None:
        """A person has acted since the stream halted or completed: what they changed is tried."""
        status, version = statuses.read()
        asked = what_a_person_asks(stream)
        if (status.acted_on, status.spec_problem) == (asked, None):
            return
        for sentence in advice_of(stream):
            self._reporter(statuses)("Advice", sentence)
        changes: dict[str, object] = {"acted_on": asked, "spec_problem": None}
        if status.phase in (Phase.HALTED, Phase.COMPLETED, Phase.BACKING_OFF):
            changes |= {"phase": Phase.PENDING, "consecutive_failures": ConsecutiveFailures()}
        changed = status.model_copy(update=changes)
        if "phase" in changes:
            statuses.write(changed, version, TransitionReason.PERSON_ACTED)
        else:
            statuses.carry(changed)  # it goes with what the pass writes next

    def _reporter(self, statuses: ResourceStatus) -> Callable[[str, str], None]:
        metadata = statuses.document["metadata"]

        def report(kind: str, words: str) -> None:
            warning = kind not in _EXPECTED
            about = {"stream": f"{metadata['namespace']}/{metadata['name']}", "attempt": statuses.read()[0].attempt}
            log.log(logging.WARNING if warning else logging.INFO, "%s", words, extra={**about, "reason": kind})
            self.cluster.tell(statuses.document, kind, words, warning=warning)

        return report


def recorded_attempt(status: StreamStatus) -> Epoch:
    """Return the latest attempt whose ending is in the status; 0 before the first."""
    if status.driver is None:
        return Epoch(max(status.attempt - 1, 0))
    over = status.driver.ended is not None
    return Epoch(status.driver.attempt if over else status.driver.attempt - 1)
