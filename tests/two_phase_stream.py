"""A stream into a sink of two phases, over the simulation's ledger and store, whose drivers die at named points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark import crash_points, tasks
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.spark_port import ExecutedPlan
from exactlyonce_spark.target import LoadState, TaskRange, TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import RowsAgain, finish_decided
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.source import MemoryTopic
from tests.simulation.two_phase_store import StoreTarget, TwoPhaseStore

READS = Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 3)})
ALL = Counter({("orders", key.key, offset): 1 for key, span in READS.items() for offset in range(span.until_offset)})

Watch = Callable[[Callable[[str], None]], None]
"""What `crash_points.watch` is; the fixture `passed` gives it to a test, and ends the watching."""

OF_A_BATCH = (
    "task.prepared",
    "batch.rows-written",
    "batch.source-checked",
    "land.fenced",
    "land.rows-moved",
    "land.positions-advanced",
    "land.before-commit",
    "batch.decided",
    "commit.answered",
    "batch.committed",
    "batch.landed",
)
OF_A_FINISH = (
    "finish.read",
    "commit.answered",
    "finish.written-again",
    "finish.recorded",
    "finish.landed",
    "finish.aborted",
)


class Killed(BaseException):
    """The process dies here."""


@dataclass
class World:
    """One stream, its ledger and its sink; `fates` are those of the next requests to the sink."""

    ledger: MemoryLedger = field(default_factory=lambda: MemoryLedger(MemoryDatabase()))
    topic: MemoryTopic = field(default_factory=lambda: MemoryTopic({P0: 9, P1: 9}, topic_id=IDS["orders"]))
    visible: Counter[Hashable] = field(default_factory=Counter)
    asked: list[str] = field(default_factory=list)
    fates: dict[str, list[str]] = field(default_factory=dict)
    read_again: list[Ranges] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = TwoPhaseStore(self.asked.append, self._fate, self.visible.update)
        self.permit = started(self.ledger)

    def target(self, permit: Permit | None = None) -> TwoPhaseTarget:
        return StoreTarget(self.store, LoadLabels(STREAM, "token-1"), (permit or self.permit).epoch)

    def land(self, small: int = 0, **changes: Any) -> None:
        settings = BatchSettings(small_batch_records=small)
        BatchLoop(self.ledger, self.permit, self.target(), self.topic, settings).run(Batch(self, **changes))

    def next_driver(self) -> None:
        raise_epoch(self.ledger, new_stream(self.ledger), Epoch(self.permit.epoch + 1), "ticket")
        epoch = Epoch(self.permit.epoch + 1)
        self.permit = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")[0]
        self.finish()

    def finish(self, permit: Permit | None = None) -> None:
        again = RowsAgain(self.topic, self._run_again)
        finish_decided(self.ledger, permit or self.permit, self.target(permit), again)

    def rows(self, ranges: Ranges) -> Sequence[Any]:
        return [("orders", key.key, at) for key, span in ranges.items() for at in range(*span_of(span))]

    def decided_labels(self) -> list[str]:
        view = self.ledger.view(STREAM)
        return [] if view is None or view.decided is None else [one.label for one in view.decided.committables]

    def status(self) -> BatchStatus:
        view = self.ledger.view(STREAM)
        assert view is not None
        return view.batches[-1].status

    def states(self) -> list[LoadState]:
        return [load.state for load in self.store.loads.values()]

    def _run_again(self, ranges: Ranges, job: tasks.Job) -> list[tasks.TaskReport]:
        self.read_again.append(ranges)
        tools = tasks.TaskTools(None, self.target(), self.topic)
        return [job.run(tools, tasks.TaskPlace(0, 0), self.rows(ranges))]

    def _fate(self) -> str:
        kind = self.asked[-1].split()[0]
        left = self.fates.get(kind, [])
        return left.pop(0) if left else "answered"


def span_of(span: OffsetRange) -> tuple[int, int]:
    return span.from_offset, span.until_offset


@dataclass
class Batch:
    """Two tasks of one range each. `runs` says how often each of them is run; the last two are of its plan."""

    world: World
    runs: Sequence[int] = (1, 1)
    one_range_each: bool = True
    stateful: bool = False
    number: BatchNumber = field(default=BatchNumber(1), init=False)

    def plan(self) -> ExecutedPlan:
        pieces = tuple(TaskRange(key, span) for key, span in READS.items())
        return ExecutedPlan(READS, pieces if self.one_range_each else None, self.stateful)

    def collect(self) -> Sequence[Any]:
        return self.world.rows(READS)

    def pieces(self) -> Iterator[Any]:
        return iter(self.world.rows(READS))

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        tools = tasks.TaskTools(None, self.world.target(), self.world.topic)
        reports = []
        for index, (key, span) in enumerate(READS.items()):
            rows = self.world.rows(Ranges({key: span}))
            tries = [job.run(tools, tasks.TaskPlace(index, attempt), rows) for attempt in range(self.runs[index])]
            reports.append(tries[-1])
        return reports

    def unread(self) -> Any:
        raise AssertionError("no sink's own writer writes here")

    def run_without_rows(self) -> None:
        raise AssertionError("the query keeps no state")

    def records_read(self) -> int:
        return 8

    def malformed(self, ranges: Ranges, *, before_run: bool) -> tuple[()]:
        return ()


def killed_at(point: str, watch: Watch, times: int = 1) -> None:
    left = iter(range(times - 1))

    def die(reached: str) -> None:
        if reached == point and next(left, None) is None:
            crash_points.watch(lambda point: None)
            raise Killed(point)

    watch(die)


def aborted_by_the_sink(world: World, number: int) -> None:
    assert world.store.loads[number].state is LoadState.PREPARED
    world.store._abort(number)


def aborted_after_the_decision(world: World, number: int, watch: Watch) -> None:
    """Let the driver die once it has decided the first batch, and the sink abort a load of it."""
    killed_at("batch.decided", watch)
    with pytest.raises(Killed):
        world.land()
    aborted_by_the_sink(world, number)


def decided_and_dead(world: World, watch: Watch) -> None:
    killed_at("batch.committed", watch)
    with pytest.raises(Killed):
        world.land()
