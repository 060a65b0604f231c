"""The batch loop where something goes wrong beside the landing, over the simulation's ledger."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.errors import CommitOutcomeUnknown, ExactlyOnceError, LedgerRefused, LedgerUnreachable
from exactlyonce.ledger.fence import Fenced, raise_epoch
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings, Landing, PlanUnfit
from exactlyonce_spark.planned import LandingRefused, OriginReplaced
from exactlyonce_spark.source_check import RecordsLost
from exactlyonce_spark.spark_port import ExecutedPlan
from exactlyonce_spark.target import DeadLetter, TaskRange
from tests.ledgers import IDS, P0, P1, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger, MemoryTransaction
from tests.simulation.source import MemoryTopic
from tests.simulation.target import MemoryTarget

SOURCE = MemoryTopic({P0: 100, P1: 0}, topic_id=IDS["orders"])


class Target(MemoryTarget):
    """A target that keeps dead letters as rows, and whose staging cannot be cleared where `uncleared` says why."""

    uncleared: ExactlyOnceError | None = None

    def write_dead_letters(
        self,
        transaction: MemoryTransaction,
        batch: BatchNumber,
        letters: Sequence[DeadLetter],
        origin_ids: Mapping[str, str],
    ) -> int:
        assert origin_ids == IDS
        return transaction.append([("letter", letter.offset) for letter in letters])

    def clear_staging(self, batch: BatchNumber) -> None:
        if self.uncleared is not None:
            raise self.uncleared


@dataclass
class Batch:
    """Five records of one task, the last one malformed; `meanwhile` happens after the rows were read."""

    ledger: MemoryLedger
    target: Target
    number: BatchNumber
    meanwhile: Callable[[], object] = lambda: None
    rows: list[Hashable] = field(default_factory=list)
    one_range_each: bool = False
    stateful: bool = False

    def plan(self) -> ExecutedPlan:
        first = 5 * (self.number - 1)
        self.rows = [("row", offset) for offset in range(first, first + 4)]
        read = Ranges({P0: OffsetRange(first, first + 5), P1: OffsetRange(0, 0)})
        ranges = (TaskRange(P0, read[P0]),) if self.one_range_each else None
        return ExecutedPlan(read, ranges, self.stateful)

    def collect(self) -> None:
        raise AssertionError("no batch is small enough here")

    def pieces(self) -> Any:
        raise AssertionError("no driver of these prepares rows piece by piece")

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        tools = tasks.TaskTools(self.ledger, self.target, SOURCE)
        return [job.run(tools, tasks.TaskPlace(0, 0), self.rows)]

    def unread(self) -> list[Hashable]:
        return self.rows

    def run_without_rows(self) -> None:
        raise AssertionError("the query keeps no state")

    def records_read(self) -> int | None:
        return 5

    def malformed(self, ranges: Ranges, *, before_run: bool) -> Sequence[DeadLetter]:
        self.meanwhile()
        return [DeadLetter(P0, ranges[P0].until_offset - 1, None, None, b"x", "malformed")]


@dataclass
class Scenario:
    """A stream at its start and what runs it."""

    database: MemoryDatabase = field(default_factory=MemoryDatabase)

    def __post_init__(self) -> None:
        self.ledger = MemoryLedger(self.database)
        self.permit = started(self.ledger)
        self.target = Target(self.database, 1)

    def loop(self, delivery: Delivery = Delivery.EXACTLY_ONCE, *, deletes: bool = False) -> BatchLoop:
        settings = BatchSettings(delivery, dead_letters=True, small_batch_records=0, deletes=deletes)
        return BatchLoop(self.ledger, self.permit, self.target, SOURCE, settings)

    def batch(self, number: int, meanwhile: Callable[[], object] = lambda: None) -> Batch:
        return Batch(self.ledger, self.target, BatchNumber(number), meanwhile)

    def counts(self, kind: str) -> list[int]:
        """The offsets that are in the table as rows or as letters, each as often as it is there."""
        return [offset for offset in range(100) for _ in range(self.database.tables.target[(kind, offset)])]


@pytest.mark.parametrize(
    "problem",
    [LedgerUnreachable("it does not answer"), LedgerRefused("no right"), CommitOutcomeUnknown("lost at COMMIT")],
    ids=lambda problem: type(problem).__name__,
)
def test_a_batch_that_has_landed_does_not_fail_for_staging_that_stays(
    problem: ExactlyOnceError, caplog: pytest.LogCaptureFixture
) -> None:
    scenario = Scenario()
    scenario.target.uncleared = problem
    loop = scenario.loop()
    for number in (1, 2):
        loop.run(scenario.batch(number))
        assert loop.in_hand is None, "nothing is blamed on it by what comes after"
    assert scenario.counts("row") == [0, 1, 2, 3, 5, 6, 7, 8]
    assert scenario.counts("letter") == [4, 9]
    assert str(problem) in caplog.text


@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_batch_tells_once_what_it_landed(delivery: Delivery) -> None:
    scenario = Scenario()
    loop = scenario.loop(delivery)
    assert loop.run(scenario.batch(1)) == Landing(records=5, rows=4)
    assert loop.run(scenario.batch(1)) is None, "it has landed before"
    assert scenario.counts("row") == [0, 1, 2, 3]


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize(
    ("one_range_each", "stateful"), [(False, False), (True, True)], ids=["rows are shuffled", "the query keeps state"]
)
def test_a_batch_whose_rows_delete_lands_in_the_order_of_the_log_or_not_at_all(
    delivery: Delivery, one_range_each: bool, stateful: bool
) -> None:
    """After a shuffle the last row of a key need not be of the last record, and the wrong one would decide."""
    scenario = Scenario()
    batch = scenario.batch(1)
    batch.one_range_each, batch.stateful = one_range_each, stateful
    with pytest.raises(PlanUnfit, match="onTombstone: Delete needs a query that keeps the order of the records"):
        scenario.loop(delivery, deletes=True).run(batch)
    assert scenario.counts("row") == []
    batch.one_range_each, batch.stateful = True, False
    assert scenario.loop(delivery, deletes=True).run(batch) == Landing(records=5, rows=4)


def test_dead_letters_of_at_most_once_are_written_while_the_driver_may_land() -> None:
    scenario = Scenario()
    scenario.loop(Delivery.AT_MOST_ONCE).run(scenario.batch(1))
    assert (scenario.counts("row"), scenario.counts("letter")) == ([0, 1, 2, 3], [4])


def test_a_driver_with_a_successor_writes_no_dead_letters_of_at_most_once() -> None:
    scenario = Scenario()

    def succeeded() -> None:
        raise_epoch(scenario.ledger, new_stream(scenario.ledger), Epoch(2), "ticket")

    with pytest.raises(Fenced):
        scenario.loop(Delivery.AT_MOST_ONCE).run(scenario.batch(1, meanwhile=succeeded))
    assert scenario.counts("letter") == []


def test_a_driver_without_records_to_read_notices_that_retention_took_those_that_had_not_landed() -> None:
    """As where its checkpoint was lost just before it started: then its query begins at what is left, and waits."""
    scenario = Scenario()
    topic = MemoryTopic({P0: 10, P1: 0})
    loop = BatchLoop(scenario.ledger, scenario.permit, scenario.target, topic, BatchSettings())
    loop.check_still_valid()
    topic.starts[P0] = 10
    with pytest.raises(RecordsLost, match=r"orders-0 from 0 to 10"):
        loop.check_still_valid()


def test_a_driver_without_records_to_read_notices_that_its_empty_topic_is_another_one() -> None:
    """As where its checkpoint was lost just before it started, and the topic was recreated: nothing may ever come."""
    scenario = Scenario()
    topic = MemoryTopic({P0: 0, P1: 0})
    loop = BatchLoop(scenario.ledger, scenario.permit, scenario.target, topic, BatchSettings())
    loop.check_still_valid()
    topic.recreate(P0.origin)
    with pytest.raises(OriginReplaced, match="orders was recreated"):
        loop.check_still_valid()


def _taken_by_an_earlier_driver(scenario: Scenario) -> None:
    """A database that lost its latest transactions: batch 1 was taken, and nothing says that it was written or lost."""
    never_told = CommitOutcomeUnknown("lost at COMMIT")

    def die() -> None:
        raise never_told

    with pytest.raises(CommitOutcomeUnknown):
        scenario.loop(Delivery.AT_MOST_ONCE).run(scenario.batch(1, meanwhile=die))


def test_a_batch_that_was_taken_and_not_written_is_not_recognised_as_landed() -> None:
    scenario = Scenario()
    _taken_by_an_earlier_driver(scenario)
    with pytest.raises(LandingRefused, match="batch 1 was taken and not written"):
        scenario.loop(Delivery.AT_MOST_ONCE).run(scenario.batch(1))


def test_a_driver_without_records_to_read_ends_where_the_ledger_lost_how_the_latest_batch_ended() -> None:
    scenario = Scenario()
    loop = scenario.loop(Delivery.AT_MOST_ONCE)
    loop.run(scenario.batch(1))
    loop.check_still_valid()
    scenario = Scenario()
    _taken_by_an_earlier_driver(scenario)
    with pytest.raises(LandingRefused, match="the database lost its latest transactions"):
        scenario.loop(Delivery.AT_MOST_ONCE).check_still_valid()
