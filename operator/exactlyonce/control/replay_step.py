"""The next step of one StreamReplay: look at its pod, then begin, start, follow or end an attempt. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, assert_never

from exactlyonce.api.replay import Replayed, ReplayRefused, require_replayable
from exactlyonce.api.resource import ResourceInvalid, Stream
from exactlyonce.api.stream_replay import StreamReplay, parse_replay
from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.connectors.specs import TakesReplays
from exactlyonce.control.backfill_work import work_of
from exactlyonce.control.next_pass import Next, wanted_of
from exactlyonce.control.replay_ledger import ReplayLedger
from exactlyonce.control.replay_refusals import FINAL, DryRunTooLong, StreamUnfit
from exactlyonce.control.replay_resource import ReplayResource
from exactlyonce.control.replay_stores import ReplayStores
from exactlyonce.control.replay_watch import is_being_ended, watch
from exactlyonce.control.replay_work import Found, Subject, Work
from exactlyonce.control.wakeups import Key
from exactlyonce.crash_points import reached
from exactlyonce.errors import ExactlyOnceError, PassTooLong
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.port import DriverState, Ended, Gone, NeverStarted, Running
from exactlyonce.launch.replay_pod import sink_of
from exactlyonce.launch.replay_pods import ReplayPods
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Wanted
from exactlyonce.reconcile.replay_choice import MOST_SHOWN
from exactlyonce.reconcile.stream_replay import (
    NOT_STARTED,
    SINK_CHANGED,
    SUSPENDED,
    AttemptEnd,
    after,
    finished,
    moved,
    recorded,
)

_WATCH_SECONDS, _LEAVING_SECONDS = 30.0, 5.0


@dataclass(frozen=True)
class StepPorts:
    """What a step works with. `parse` makes a stream of its resource, or says why that may not be."""

    stores: ReplayStores
    parse: Callable[[Mapping[str, Any]], Stream]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def for_a_pass(self) -> StepPorts:
        """Return the same for a pass that begins now."""
        return replace(self, stores=self.stores.for_a_pass())


@dataclass(frozen=True)
class Step:
    """The next step of one replay."""

    ports: StepPorts
    resource: ReplayResource
    key: Key
    stream: Mapping[str, Any] | None

    def take(self) -> Next:
        """Look at the replay's pod, then do what follows.

        Raises:
            Refused, Unreachable, LaunchFailed: by situation; the step is taken again then.
        """
        replay = _parsed(self.resource.document)
        pods = self.ports.stores.pods(replay, self.resource.document, None)
        try:
            return self._next(replay, pods)
        except FINAL as problem:
            if not is_being_ended(self.resource, pods, problem):
                raise
            return Next(_LEAVING_SECONDS, "waiting")

    def _next(self, replay: StreamReplay, pods: ReplayPods) -> Next:
        self._require_stream()
        status = self.resource.status
        if status.phase is ReplayPhase.PENDING:
            if self._is_suspended and not replay.spec.dry_run:
                return self._defer(SUSPENDED)
            if status.retry_at is not None and status.retry_at > self.ports.now():
                return Next((status.retry_at - self.ports.now()).total_seconds(), "waiting")
            return self._begin(replay)
        attempt = Epoch(status.attempt)
        state, off = pods.state_of(attempt), self._why_called_off(pods, attempt)
        match state:
            case NeverStarted():
                return self._start(replay, attempt) if off is None else self._defer(off)
            case Running():
                return self._watch(pods, state) if off is None else self._call_off(pods, attempt, off)
            case Ended() | Gone():
                if _was_never_created(state) and status.pod_name is None:
                    return self._start(replay, attempt) if off is None else self._defer(off)
                return self._end(pods, attempt, state, off)
            case _:
                assert_never(state)

    def _require_stream(self) -> None:
        uid = self.resource.status.stream_uid
        if self.stream is None:
            gone = "it was deleted" if uid else "name one of this namespace in another StreamReplay"
            raise StreamUnfit(f"There is no ExactlyOnceStream {self.key}; {gone}.")
        if "deletionTimestamp" in self.stream["metadata"]:
            raise StreamUnfit(f"The stream {self.key} is being deleted, so nothing more is replayed into its sink.")
        if uid is not None and uid != self.stream["metadata"]["uid"]:
            raise StreamUnfit(f"The stream {self.key} was deleted and created again since the replay began.")

    @property
    def _is_suspended(self) -> bool:
        assert self.stream is not None, "a step requires the stream first"
        return wanted_of(self.stream) is Wanted.REST

    def _why_called_off(self, pods: ReplayPods, attempt: Epoch) -> str | None:
        """Return why an attempt is to land nothing more; it has the stream's spec of when it was created."""
        assert self.stream is not None, "a step requires the stream first"
        sink = pods.sink(attempt)
        try:
            is_left = sink is not None and sink != sink_of(self.ports.parse(self.stream))
        except ExactlyOnceError:
            is_left = False  # what is invalid now was not taken for the stream's sink by anybody
        if is_left:
            return SINK_CHANGED
        return SUSPENDED if self._is_suspended else None

    def _defer(self, words: str) -> Next:
        """Wait without a pod. An attempt that was recorded, and of which no pod is there, is over: the next has a new spec."""
        waiting = moved(self.resource.status, ReplayPhase.PENDING, words, self.ports.now(), progressed_at=None)
        self.resource.write(waiting)
        return Next(_WATCH_SECONDS if self._is_suspended or words == NOT_STARTED else 0.0, "waiting")

    def _call_off(self, pods: ReplayPods, attempt: Epoch, words: str) -> Next:
        """End the pod of an attempt: at once where it lands into a sink that the stream has left, else after its chunk."""
        if words == SINK_CHANGED:
            pods.kill(attempt)
        else:
            pods.drain(attempt)
        self.resource.write(self.resource.status.model_copy(update={"message": f"{words} The pod is being ended."}))
        return Next(_LEAVING_SECONDS, "waiting")

    def _is_ahead(self, replay: StreamReplay, stream: Stream) -> bool:
        """Whether the stream has another sink by now and has not been started with it: its ledger would take no replay."""
        if replay.spec.into is not None:
            return False
        sink = stream.spec.sink.spec
        assert isinstance(sink, TakesReplays), "others are refused"
        return self._ledger(stream).sink(stream.stream_id) not in (None, sink.landing_place)

    def _parsed_stream(self, replay: StreamReplay) -> Stream:
        assert self.stream is not None, "a step requires the stream first"
        stream = self.ports.parse(self.stream)
        require_replayable(stream.spec, stream.stream_id, _asked_of(replay))
        return stream

    def _begin(self, replay: StreamReplay) -> Next:
        """Choose what is replayed, and record the next attempt where any of it is left."""
        stream = self._parsed_stream(replay)
        work = self._work(replay, stream)
        status, now = self.resource.status, self.ports.now()
        if replay.spec.dry_run:
            return self._show(work)
        if self._is_ahead(replay, stream):
            return self._defer(NOT_STARTED)
        found = work.found()
        if found.nothing is not None:
            self.resource.write(moved(status, ReplayPhase.SUCCEEDED, found.nothing, now))
            return Next(None, "replay")
        if found.counted.is_done:
            self.resource.write(finished(status, found.counted, now))
            return Next(None, "replay")
        assert self.stream is not None
        self.resource.write(recorded(status, self.stream["metadata"]["uid"], found.counted, now))
        reached("replay.attempt-recorded", *self.key)
        return self._started(replay, stream, found)

    def _start(self, replay: StreamReplay, attempt: Epoch) -> Next:
        """Start an attempt that was recorded, and of which nothing or its ConfigMap alone is there."""
        stream = self._parsed_stream(replay)
        if self._is_ahead(replay, stream):
            return self._defer(NOT_STARTED)
        found = self._work(replay, stream).found()
        if found.counted.is_done or found.nothing is not None:
            self.resource.write(finished(self.resource.status, found.counted, self.ports.now()))
            return Next(None, "replay")
        return self._started(replay, stream, found)

    def _started(self, replay: StreamReplay, stream: Stream, found: Found) -> Next:
        pods = self.ports.stores.pods(replay, self.resource.document, stream)
        pods.start(Epoch(self.resource.status.attempt), found.orders)
        return Next(_WATCH_SECONDS, "replay")

    def _watch(self, pods: ReplayPods, state: Running) -> Next:
        is_ended = watch(self.resource, pods, state, lambda: self._recorded_work().running(), self.ports.now)
        return Next(_LEAVING_SECONDS if is_ended else _WATCH_SECONDS, "replay")

    def _recorded_work(self) -> Work:
        """Return the work of an attempt that was recorded, also where the stream takes no replay any more."""
        assert self.stream is not None, "a step requires the stream first"
        return self._work(_parsed(self.resource.document), self.ports.parse(self.stream))

    def _end(self, pods: ReplayPods, attempt: Epoch, state: Ended | Gone, off: str | None) -> Next:
        """Count what became of the ranges, and say so; a pod that was given up is ended first, so that it takes no more."""
        report = pods.report(attempt) if isinstance(state, Ended) else None
        if isinstance(state, Gone):
            pods.kill(attempt)
        reached("replay.ending-seen", *self.key)
        counted = self._recorded_work().ended(report)
        detail = state.detail if isinstance(state, Ended) else state.message
        end = AttemptEnd(report, self.resource.status.no_progress_message or detail, off)
        status = after(self.resource.status, end, counted, self.ports.now())
        self.resource.write(status)
        reached("replay.ending-recorded", *self.key)
        return Next(None if status.phase.is_final else 0.0, "replay")

    def _show(self, work: Work) -> Next:
        """Show what would be replayed, and change nothing."""
        try:
            found = work.dry_run()
        except PassTooLong as problem:
            raise DryRunTooLong.of_slow_stores() from problem
        status = finished(self.resource.status, found.counted, self.ports.now())
        changes = {
            "phase": ReplayPhase.SUCCEEDED if found.is_whole else ReplayPhase.FAILED,
            "message": found.message,
            "shown": tuple(it.rendered() for it in found.shown[:MOST_SHOWN]),
        }
        self.resource.write(status.model_copy(update=changes))
        return Next(None, "replay")

    def _ledger(self, stream: Stream) -> ReplayLedger:
        """Return the stream's ledger, once it knows the stream as this very resource.

        Raises:
            StreamUnfit: if the ledger's rows belong to another resource.
        """
        assert self.stream is not None
        ledger = self.ports.stores.ledger(stream)
        row, owner = ledger.row(stream.stream_id), self.ports.stores.owner(self.stream)
        if row is None and self.resource.status.attempt:
            raise StreamUnfit(
                f"The ledger has no row of {stream.stream_id} any more, so nothing tells what became of its ranges: it was "
                "moved or emptied since the replay began. Create another StreamReplay once the stream has run."
            )
        if row is not None and row.owner != owner:
            raise StreamUnfit(
                f"The ledger has {stream.stream_id} as the stream of {row.owner}, and not of this resource; start the stream, "
                "which takes it over or says why it may not, and create another StreamReplay."
            )
        return ledger

    def _work(self, replay: StreamReplay, stream: Stream) -> Work:
        document, status = self.resource.document, self.resource.status
        pods = self.ports.stores.pods(replay, document, None)
        uid, has_begun = document["metadata"]["uid"], status.attempt > 1 or status.pod_name is not None
        ledger, now = self._ledger(stream), self.ports.now()
        return work_of(Subject(replay, uid, stream, ledger, self.ports.stores, pods, has_begun, now))


def _was_never_created(state: DriverState) -> bool:
    """Whether the record of a pod is missing: its ConfigMap was created, and then an operator died, or the pod was deleted."""
    return isinstance(state, Gone) and state.pod is None and state.reason == Reason.RECORD_LOST


def _parsed(document: Mapping[str, Any]) -> StreamReplay:
    try:
        return parse_replay(document, "the resource")
    except ResourceInvalid as problem:
        raise ReplayRefused(str(problem)) from problem


def _asked_of(replay: StreamReplay) -> Replayed:
    asked = replay.spec.from_
    if asked.ranges is not None:
        between, named = asked.ranges.by_timestamp is not None, asked.ranges.named is not None
        return Replayed.of_ranges(between=between, into_other=replay.spec.into is not None, named=named)
    return Replayed.FAILURES if asked.dead_letters is None else Replayed.DEAD_LETTERS
