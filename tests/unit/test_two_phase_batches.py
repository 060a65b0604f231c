"""A batch into a sink of two phases, over the simulation's ledger and store; its driver dies, and the next one finishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark import crash_points, tasks
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings, PlanUnfit
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.spark_port import ExecutedPlan
from exactlyonce_spark.target import LoadState, TaskRange, TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import LoadsInDoubt, RowsAgain, RowsNotThere, finish_decided, is_undecided
from exactlyonce_spark.two_phase_landing import NotCommitted
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.source import MemoryTopic
from tests.simulation.two_phase_store import SinkSilent, StoreTarget, TwoPhaseStore

READS = Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 3)})
ALL = Counter({("orders", key.key, offset): 1 for key, span in READS.items() for offset in range(span.until_offset)})


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
        raise_epoch(self.ledger, new_stream(self.ledger), Epoch(self.permit.epoch + 1))
        epoch = Epoch(self.permit.epoch + 1)
        self.permit = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}")[0]
        self.finish()

    def finish(self, permit: Permit | None = None) -> None:
        again = RowsAgain(self.topic, self._run_again)
        finish_decided(self.ledger, permit or self.permit, self.target(permit), again)

    def rows(self, ranges: Ranges) -> Sequence[Any]:
        return [("orders", key.key, at) for key, span in ranges.items() for at in range(*span_of(span))]

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

    def malformed(self, ranges: Ranges, *, certain: bool) -> tuple[()]:
        return ()


@pytest.fixture
def passed() -> Iterator[Callable[[Callable[[str], None]], None]]:
    yield crash_points.watch
    crash_points.watch(lambda point: None)


def killed_at(point: str, watch: Callable[[Callable[[str], None]], None], times: int = 1) -> None:
    left = iter(range(times - 1))

    def die(reached: str) -> None:
        if reached == point and next(left, None) is None:
            crash_points.watch(lambda point: None)
            raise Killed(point)

    watch(die)


def test_rows_are_visible_once_the_ledger_has_decided_and_the_batch_lands_once_they_are(
    passed: Callable[[Callable[[str], None]], None],
) -> None:
    world, seen = World(), []
    passed(lambda point: seen.append((point, world.visible.total(), str(world.status()))))
    world.land()
    steps = [step for step in seen if step[0].startswith(("batch.", "commit.", "task.prepared"))][2:]
    assert steps == [
        ("task.prepared", 0, "InProgress"),
        ("task.prepared", 0, "InProgress"),
        ("batch.rows-written", 0, "InProgress"),
        ("batch.source-checked", 0, "InProgress"),
        ("batch.decided", 0, "Decided"),
        ("commit.answered", 5, "Decided"),
        ("commit.answered", 8, "Decided"),
        ("batch.committed", 8, "Decided"),
        ("batch.landed", 8, "Landed"),
    ]
    assert world.visible == ALL


def test_a_small_batch_is_one_load_of_the_driver() -> None:
    world = World()
    world.land(small=100)
    assert world.visible == ALL
    assert len(world.store.loads) == 1


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


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", OF_A_BATCH)
def test_a_batch_whose_driver_dies_takes_effect_once(
    point: str, times: int, passed: Callable[[Callable[[str], None]], None]
) -> None:
    world = World()
    killed_at(point, passed, times)
    comes_twice = point in ("task.prepared", "commit.answered")
    with pytest.raises(Killed) if times == 1 or comes_twice else nullcontext():
        world.land()
    world.next_driver()
    assert LoadState.PREPARED not in world.states(), "what nobody decided is aborted"
    world.land()
    assert world.visible == ALL
    assert world.status() is BatchStatus.LANDED


OF_A_FINISH = (
    "finish.read",
    "commit.answered",
    "finish.written-again",
    "finish.recorded",
    "finish.landed",
    "finish.aborted",
)


@pytest.mark.parametrize("point", OF_A_FINISH)
def test_a_driver_that_dies_while_it_finishes_is_followed_by_one_that_does(
    point: str, passed: Callable[[Callable[[str], None]], None]
) -> None:
    world = World()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land(runs=(2, 1))
    aborted_by_the_sink(world, 2)
    killed_at(point, passed)
    with pytest.raises(Killed):
        world.next_driver()
    world.next_driver()
    world.land()
    assert world.visible == ALL
    assert LoadState.PREPARED not in world.states()


def aborted_by_the_sink(world: World, number: int) -> None:
    assert world.store.loads[number].state is LoadState.PREPARED
    world.store._abort(number)


def test_what_a_second_run_of_a_task_prepared_is_aborted_and_never_committed() -> None:
    world = World()
    world.land(runs=(3, 1))
    assert world.visible == ALL
    assert world.states().count(LoadState.PREPARED) == 2
    world.finish()
    assert world.states().count(LoadState.PREPARED) == 2, "a driver does not judge what its own tasks prepare"
    world.next_driver()
    assert world.states().count(LoadState.ABORTED) == 2
    assert world.visible == ALL


@pytest.mark.parametrize("fate", ["applied", "lost", "late"])
def test_a_lost_answer_to_a_prepare_is_settled_under_the_same_label(fate: str) -> None:
    world = World(fates={"prepare": [fate]})
    world.land()
    for act in world.store.under_way:
        with pytest.raises(ExactlyOnceError):
            act()
    assert world.visible == ALL
    assert len(world.store.loads) == 2


@pytest.mark.parametrize("fate", ["applied", "lost", "late"])
def test_a_lost_answer_to_a_commit_ends_the_driver_and_the_next_one_finishes_the_batch(fate: str) -> None:
    world = World(fates={"commit": [fate]})
    with pytest.raises(SinkSilent):
        world.land()
    assert issubclass(SinkSilent, Unreachable), "it is no failure of the batch"
    world.next_driver()
    for act in world.store.under_way:
        act()
    assert (world.visible, world.status()) == (ALL, BatchStatus.LANDED)
    world.land()
    assert world.visible == ALL


def test_rows_that_the_sink_aborts_after_the_decision_are_written_again_from_exactly_their_range(
    passed: Callable[[Callable[[str], None]], None],
) -> None:
    world = World()
    passed(lambda point: aborted_by_the_sink(world, 2) if point == "batch.decided" else None)
    with pytest.raises(NotCommitted, match=r"is aborted; the next driver finishes the batch"):
        world.land()
    passed(lambda point: None)
    world.next_driver()
    assert world.visible == ALL
    assert world.read_again == [Ranges({P1: READS[P1]})]
    labels = [load.label for load in world.store.loads.values() if load.state is LoadState.COMMITTED]
    assert [LoadLabels(STREAM, "token-1").epoch_of(label) for label in labels] == [1, 2]


def decided_and_dead(world: World, watch: Callable[[Callable[[str], None]], None]) -> None:
    killed_at("batch.committed", watch)
    with pytest.raises(Killed):
        world.land()


def test_a_load_that_the_sink_has_forgotten_halts_the_stream_with_its_label_and_its_range(
    passed: Callable[[Callable[[str], None]], None],
) -> None:
    world = World()
    decided_and_dead(world, passed)
    world.store.forget(keep=1)
    label = next(iter(world.store.labels))
    for _ in range(2):
        with pytest.raises(LoadsInDoubt) as doubt:
            world.next_driver()
        assert "Batch 1 is decided" in str(doubt.value)
        assert "orders-0 [0, 5)" in str(doubt.value)
        assert label not in str(doubt.value), (
            "of the other load the sink has said that it is committed, and that is kept"
        )
        world.store.forget()
    assert world.visible == ALL
    assert not world.read_again


def test_a_label_that_names_another_transaction_by_now_leaves_a_doubt(
    passed: Callable[[Callable[[str], None]], None],
) -> None:
    world = World()
    decided_and_dead(world, passed)
    labels = list(world.store.labels)
    world.store.forget()
    for label in labels:
        world.store._prepare(label, ("a request that was late",))
    with pytest.raises(LoadsInDoubt):
        world.next_driver()
    assert world.visible == ALL


def test_rows_whose_records_are_gone_halt_the_stream(passed: Callable[[Callable[[str], None]], None]) -> None:
    world = World()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    aborted_by_the_sink(world, 2)
    world.topic.starts[P1] = 1
    with pytest.raises(RowsNotThere, match=r"orders-1 \[0, 3\).*of the decided batch 1.*Retention took records"):
        world.next_driver()
    assert world.visible.total() == 5
    assert not world.read_again


def test_a_driver_that_was_forgotten_leaves_the_loads_of_its_successor_alone(
    passed: Callable[[Callable[[str], None]], None],
) -> None:
    world = World()
    forgotten = world.permit
    raise_epoch(world.ledger, new_stream(world.ledger), Epoch(2))
    world.permit = claim_epoch(world.ledger, STREAM, Epoch(2), "claim-2")[0]
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    for load in world.target(forgotten).open_loads():
        assert not is_undecided(load, (), forgotten)
    assert world.states() == [LoadState.PREPARED, LoadState.PREPARED]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"stateful": True}, "keeps state"), ({"one_range_each": False}, "every task reads exactly one range")],
)
def test_a_query_whose_rows_could_not_be_made_again_is_refused(changes: dict[str, Any], words: str) -> None:
    world = World()
    with pytest.raises(PlanUnfit, match=words):
        world.land(**changes)
    assert not world.store.loads


def test_a_batch_without_rows_lands_without_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(World, "rows", lambda self, ranges: [])
    world.land()
    assert (world.status(), world.store.loads) == (BatchStatus.LANDED, {})
