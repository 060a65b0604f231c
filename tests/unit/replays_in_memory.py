"""The replays of one stream with everything in memory: each effect has a name, and the operator may die before any of them.

The table counts how often each record has landed: the oracle, which asks neither status nor ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.stream_replay import AskedLetters, StreamReplay
from exactlyonce.api.stream_replay_status import ReplayStatus
from exactlyonce.control.next_pass import Next
from exactlyonce.control.replay_keys import replays_of
from exactlyonce.control.replay_pass import ReplayPasses
from exactlyonce.control.replay_resource import replay_status_of, stream_named_by
from exactlyonce.control.replay_step import StepPorts
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.launch.asked_letters import WAITING, LettersLookedAt
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.launch.backfill import BackfillOrder, Span
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.port import DriverPod, DriverState, Ended, Gone, LaunchFailed, NeverStarted, Running
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.launch.replay_pod import ReplayOrders, sink_of
from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.given_ranges import Standing
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import (
    FailureSummary,
    Overlap,
    RecordedFailure,
    RecordedLetter,
    overlaps_within,
    parts_within,
)
from exactlyonce.ledger.letters import LetterStatus
from exactlyonce.ledger.planned_backfills import BackfillDiffers
from exactlyonce.ledger.replay_rules import Held, Piece, RangeKey, parted
from exactlyonce.ledger.rows import FailureRow, FailureStatus, Owner, StreamRow
from exactlyonce.monitor.replays import ReplaysView
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions, Ranges
from exactlyonce.reconcile.between_times import FoundBetween
from exactlyonce.reconcile.loop import StatusConflict
from exactlyonce.reconcile.replay_choice import Shown
from tests.resource_documents import changed, document
from tests.unit.passes import Died
from tests.unit.replay_documents import BEGIN, KEY, OWNER, ROW, WHOLE, failed, summed


@dataclass
class Pod:
    """One attempt: its orders, and its pod where that was created."""

    orders: ReplayOrders
    state: DriverState | None = None
    report: ReplayReport | None = None
    sink: Mapping[str, Any] | None = None


@dataclass
class World:
    """One stream with its quarantine, its replays and their pods; `operator` is new in each pass and remembers nothing."""

    rows: list[FailureRow]
    replays: dict[str, dict[str, Any]]
    stream: dict[str, Any] | None = field(
        default_factory=lambda: document(
            {"metadata.uid": "u-1", "metadata.generation": 1, "metadata.resourceVersion": "1"}
        )
    )
    row: StreamRow | None = ROW
    now: datetime = BEGIN
    effects: list[str] = field(default_factory=list)
    dies_before: int | None = None
    table: Counter[tuple[Partition, int]] = field(default_factory=Counter)
    landed_into: Counter[str] = field(default_factory=Counter)
    pods: dict[tuple[str, Epoch], Pod] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    asked_of_ledger: int = 0
    forgotten: list[Key] = field(default_factory=list)
    is_forgetful: bool = False
    broken: Exception | None = None
    problem: Exception | None = None
    letters: list[RecordedLetter] = field(default_factory=list)
    sink: str | None = None
    backfills: dict[str, Backfill] = field(default_factory=dict)
    positions: Positions = field(default_factory=Positions)
    between: Ranges = field(default_factory=Ranges)
    noted: Callable[[Key, ReplaysView | None], None] = lambda _key, _view: None
    looked_up_in: str = "t-1"

    def step(self, effect: str) -> None:
        """Tell of an effect that is next; the operator may die instead."""
        if self.dies_before == len(self.effects):
            self.dies_before = None
            raise Died(effect)
        self.effects.append(effect)

    @property
    def has_died(self) -> bool:
        """Whether the operator has died where it was to."""
        return self.dies_before is None

    def run_pass(self, selector: str = "") -> Next:
        """Let a new operator do one pass."""
        ports = StepPorts(Stores(self), lambda found: parse_stream(found, "the resource"), lambda: self.now)
        return ReplayPasses(Server(self), ports, lambda: True, selector, self.noted).run(replays_of(KEY))

    def status(self, name: str = "mend") -> ReplayStatus:
        """Return the status of a replay."""
        return replay_status_of(self.replays[name])

    def pod(self, attempt: int = 1, name: str = "mend") -> Pod:
        """Return an attempt."""
        return self.pods[name, Epoch(attempt)]

    def land(self, pod: Pod, most: int = WHOLE, fails: Collection[int] = ()) -> int:
        """Be the process of an attempt: claim its ranges and land at most so many records; those that fail are put back."""
        wanted = {RangeKey.of(row) for row in self.rows if row.status in HELD} & set(pod.orders.ranges)
        self.rows = [
            replace(row, status=FailureStatus.REPLAYING, replay="it") if RangeKey.of(row) in wanted else row
            for row in self.rows
        ]
        landed = 0
        for row in [row for row in self.rows if RangeKey.of(row) in wanted]:
            rest = row
            for offset in range(row.from_offset, row.until_offset):
                if landed == most:
                    return landed
                is_bad = offset in fails
                status = FailureStatus.QUARANTINED if is_bad else FailureStatus.REPLAYED
                self.rows.remove(rest)
                made = parted(Piece(rest, offset + 1), status)
                self.rows += made
                rest = made[-1]
                if not is_bad:
                    self.table[row.partition, offset] += 1
                    self.landed_into[str((pod.sink or {})["postgres"]["table"])] += 1
                    landed += 1
        return landed

    def end(self, pod: Pod, report: ReplayReport | None = None, detail: str = "It was killed.") -> None:
        """End the pod of an attempt; without a report it was killed."""
        pod.state, pod.report = Ended("the test says so", None, detail), report

    def until_final(self, passes: int = 40, name: str = "mend") -> ReplayStatus:
        """Pass, with time going by and each pod doing all of its work, until the replay has come to its end."""
        for _ in range(passes):
            self.run_pass_or_die()
            for pod in self.pods.values():
                if isinstance(pod.state, Running):
                    self.end(pod, ReplayReport(landed=self.land(pod)))
            self.now += timedelta(minutes=5)
            if self.status(name).phase.is_final:
                return self.status(name)
        raise AssertionError(self.status(name))

    def run_pass_or_die(self) -> None:
        """Let a new operator do one pass, which it may not come to the end of."""
        try:
            self.run_pass()
        except Died:
            return


@dataclass
class Server:
    """The resources, with optimistic concurrency."""

    world: World

    def stream(self, key: Key, selector: str = "") -> dict[str, Any] | None:
        """Return the stream; with a selector it is another operator's."""
        if self.world.problem is not None:
            raise self.world.problem
        return None if self.world.stream is None or selector else changed(self.world.stream, {})

    def replays(self, stream: Key) -> list[dict[str, Any]]:
        """Return the replays of a stream."""
        return [changed(it, {}) for it in self.world.replays.values() if stream_named_by(it) == stream.name]

    def put_status(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a status."""
        name = sent["metadata"]["name"]
        self.world.step(f"record {sent['status']['phase']}")
        found = self.world.replays.get(name)
        if found is None or found["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"]:
            raise StatusConflict("it has changed")
        version = str(int(found["metadata"]["resourceVersion"]) + 1)
        self.world.replays[name] = changed(found, {"status": sent["status"], "metadata.resourceVersion": version})
        return changed(self.world.replays[name], {})

    def put_stream_status(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the stream."""
        self.world.step("record schedule")
        assert self.world.stream is not None
        self.world.stream = changed(self.world.stream, {"status": sent["status"]})
        return self.world.stream

    def create(self, made: Mapping[str, Any]) -> bool:
        """Create a replay, unless its name is taken."""
        name = made["metadata"]["name"]
        self.world.step(f"create {name}")
        is_new = name not in self.world.replays
        if is_new:
            created = f"{self.world.now:%Y-%m-%dT%H:%M:%SZ}"
            metadata = {"uid": f"uid-{name}", "generation": 1, "resourceVersion": "1", "creationTimestamp": created}
            self.world.replays[name] = {**made, "metadata": {**made["metadata"], **metadata}}
        return is_new

    def delete(self, found: Mapping[str, Any]) -> None:
        """Remove a replay."""
        self.world.step(f"delete {found['metadata']['name']}")
        self.world.replays.pop(found["metadata"]["name"], None)

    def tell(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Record an event."""
        self.world.step(f"tell {reason}")
        self.world.events.append((reason, message))


@dataclass
class Stores:
    """Ledger, source and pods of the world."""

    world: World

    def for_a_pass(self) -> Stores:
        """Return the same."""
        return self

    def ledger(self, stream: Stream) -> Stores:
        """Return the ledger."""
        return self

    def row(self, stream_id: str) -> StreamRow | None:
        """Return the stream's row."""
        if self.world.broken is not None and not isinstance(self.world.broken, LaunchFailed):
            raise self.world.broken
        return self.world.row

    def parts_of(
        self, stream_id: str, statuses: Collection[FailureStatus], asked: Sequence[AskedRange]
    ) -> tuple[FailureRow, ...]:
        """Return what became of the ranges that were asked for."""
        return parts_within((it.row for it in self.choice(stream_id, statuses, {it.batch for it in asked})), asked)

    def choice(
        self, stream_id: str, statuses: Collection[FailureStatus], batches: Collection[BatchNumber] | None
    ) -> tuple[RecordedFailure, ...]:
        """Return failed ranges; those of a higher batch got their status later."""
        if isinstance(self.world.broken, LedgerUnreachable):
            raise self.world.broken
        self.world.asked_of_ledger += 1
        return tuple(
            RecordedFailure(row, BEGIN + timedelta(minutes=row.batch))
            for row in self.world.rows
            if row.status in statuses and (batches is None or row.batch in batches)
        )

    def overlaps_of(
        self, stream_id: str, statuses: Collection[FailureStatus], given: Sequence[AskedRange], by: str
    ) -> tuple[Overlap, ...]:
        """Return how many records of the given ranges are in failed ranges."""
        return overlaps_within((it.row for it in self.choice(stream_id, statuses, None)), given, by)

    def letters(self, stream_id: str, asked: AskedLetters) -> LettersLookedAt:
        """Return the dead letters that are asked for, as the process finds them, too."""
        found = [it for it in self.world.letters if it.status in WAITING or it.identifier in asked.ids]
        asked_for = [it for it in found if not asked.ids or it.identifier in asked.ids]
        return LettersLookedAt(tuple(it for it in asked_for if asked.admits(it.landed_at, it.row.error)), len(found))

    def replayed_records(self, stream_id: str, by: str) -> int:
        """Return how many records a replay has landed."""
        landed = [it for it in self.world.rows if it.status is FailureStatus.REPLAYED and it.replay.startswith(by)]
        return sum(it.offset_count for it in landed)

    def replayed_letters(self, stream_id: str, by: str) -> int:
        """Return how many letters a replay has landed."""
        landed = [it for it in self.world.letters if it.status is LetterStatus.REPLAYED]
        return sum(it.row.replay.startswith(by) for it in landed)

    def sink(self, stream_id: str) -> str | None:
        """Return what the stream lands into."""
        return self.world.sink

    def standing(self, stream_id: str) -> Standing:
        """Return how the stream stands."""
        return Standing(ROW.life, self.world.positions, tuple(self.world.rows), ())

    def positions(self, stream_id: str) -> Positions:
        """Return where the stream stands."""
        return self.world.positions

    def summed(
        self, stream_id: str, statuses: Collection[FailureStatus], moments: Sequence[datetime]
    ) -> FailureSummary:
        """Return what is in quarantine."""
        return summed(self.choice(stream_id, statuses, None), moments)

    def shown(self, stream: Stream, kept: Sequence[RecordedFailure], life: str) -> tuple[Shown, ...]:
        """Say that the source holds all."""
        return tuple(Shown(it, Held()) for it in kept)

    def backfill(self, stream_id: str, order: BackfillOrder, *, was_compared: bool = False) -> Backfill | None:
        """Return what is recorded of a backfill."""
        found = self.world.backfills.get(order.name)
        if found is not None and found.definition != order.definition and not was_compared:
            raise BackfillDiffers("it asks for something else")
        return found

    def parts(self, stream: Stream, spans: Sequence[Span]) -> tuple[FailureRow, ...]:
        """Return ranges as the source has them, which holds all."""
        return tuple(failed(0, int(key.key), span.from_offset, span.until_offset) for key, span in spans)

    def between(self, stream: Stream, begin: datetime, until: datetime, landed: Positions | None) -> FoundBetween:
        """Return what the source says now; retention may have taken a part the next time."""
        return FoundBetween(self.world.between, {"orders": self.world.looked_up_in} if landed is None else {})

    def pods(self, replay: StreamReplay, document: Mapping[str, Any], stream: Stream | None) -> Pods:
        """Return the attempts of a replay."""
        return Pods(self.world, document["metadata"]["name"], None if stream is None else sink_of(stream))

    def owner(self, stream: Mapping[str, Any]) -> Owner:
        """Return whose the stream is."""
        return OWNER

    def forget(self, stream: Key) -> None:
        """Remember that nothing is to be remembered."""
        self.world.forgotten.append(stream)


@dataclass
class Pods:
    """The attempts of one replay, as Kubernetes would have them."""

    world: World
    name: str
    sink_now: Mapping[str, Any] | None = None

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the pod of an attempt is."""
        found = self.world.pods.get((self.name, attempt))
        if found is None:
            return NeverStarted()
        return found.state or Gone("The record of the pod is gone.", str(Reason.RECORD_LOST))

    def report(self, attempt: Epoch) -> ReplayReport | None:
        """Return its report."""
        return self.world.pods[self.name, attempt].report

    def asked(self) -> tuple[AskedRange, ...] | None:
        """Return what the latest attempt was given, unless somebody has deleted its ConfigMap."""
        if self.world.is_forgetful:
            return None
        attempts = [attempt for name, attempt in self.world.pods if name == self.name]
        return self.world.pods[self.name, max(attempts)].orders.asked if attempts else None

    def sink(self, attempt: Epoch) -> Mapping[str, Any] | None:
        """Return the sink that it was started for."""
        found = self.world.pods.get((self.name, attempt))
        return None if found is None else found.sink

    def start(self, attempt: Epoch, orders: ReplayOrders) -> None:
        """Create an attempt's ConfigMap and its pod, each unless it is there."""
        if isinstance(self.world.broken, LaunchFailed):
            raise self.world.broken
        self.world.step("create ConfigMap")
        pod = self.world.pods.setdefault((self.name, attempt), Pod(orders, sink=self.sink_now))
        self.world.step("create pod")
        if pod.state is None:
            pod.state = Running("in memory", pod=DriverPod(f"{self.name}-replay-{attempt}", None))

    def kill(self, attempt: Epoch) -> None:
        """Delete the pod at once."""
        self.world.step("kill pod")

    def drain(self, attempt: Epoch) -> None:
        """Delete the pod."""
        self.world.step("drain pod")


def held(world: World) -> int:
    """Return how many records are in quarantine."""
    return sum(row.offset_count for row in world.rows if row.status in HELD)
