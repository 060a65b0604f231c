"""Which records of a batch fail by themselves: parts are tried and halved, and the batch lands without what is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from exactlyonce.errors import LedgerUnreachable, Refused
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.port import Quarantine
from exactlyonce.ledger.fence import Fenced, raise_epoch
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.bisection import (
    Bisection,
    divided,
    failing_parts,
    parts_of,
    rolled_back,
    trying,
)
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.landing import begin_batch, record_failure
from exactlyonce_spark.left_out import FailingRecords, NotToBeQuarantined, last_of_each
from exactlyonce_spark.planned import PlannedBatch
from exactlyonce_spark.source_check import RecordNotShown, RecordsReplaced
from tests.ledgers import IDS, P0, P1, new_stream
from tests.simulation.source import MemoryReading, MemoryTopic
from tests.unit.test_batch_loop import SOURCE, Batch, Scenario

WIDE = Ranges({P0: OffsetRange(0, 1000), P1: OffsetRange(200, 1200)})
ORDER = Quarantine(1, '{"orders":{"0":5,"1":0}}', "division by zero", bisect=True)
READ = Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)})


class Poison:
    """Fails for these records, and counts how often it was asked; `tried` are the numbers of records."""

    def __init__(self, *places: tuple[Partition, int]) -> None:
        self.places = places
        self.tried: list[int] = []

    def __call__(self, ranges: Ranges) -> str | None:
        self.tried.append(ranges.record_count)
        for key, offset in self.places:
            if key in ranges and ranges[key].from_offset <= offset < ranges[key].until_offset:
                return f"{key} at {offset}"
        return None


def found(poison: Poison, **bounds: int) -> set[tuple[Partition, int, int]]:
    parts = failing_parts(WIDE, poison, **bounds)
    spans = [(key, offsets) for part in parts for key, offsets in part.ranges.items()]
    return {(key, offsets.from_offset, offsets.until_offset) for key, offsets in spans}


# The search.


@pytest.mark.parametrize(
    "places",
    [
        [(P0, 0)],
        [(P0, 999), (P1, 200)],
        [(P0, 500), (P0, 501), (P1, 1199)],
        [(key, at) for key, at in ((P0, n) for n in range(3, 1000, 97))],
        [],
    ],
    ids=["the first", "both sides of a border", "neighbours", "many", "none"],
)
def test_exactly_the_records_that_fail_are_found(places: list[tuple[Partition, int]]) -> None:
    assert found(Poison(*places)) == {(key, at, at + 1) for key, at in places}


def test_a_record_costs_about_as_many_tries_as_the_batch_can_be_halved() -> None:
    poison = Poison((P0, 777))
    found(poison)
    assert len(poison.tried) <= 1 + 2 * 11


def test_no_part_has_more_records_than_are_read_at_once() -> None:
    poison = Poison((P1, 300))
    assert found(poison, most_at_once=300) == {(P1, 300, 301)}
    assert max(poison.tried) == 300


def test_what_the_tries_do_not_suffice_to_divide_is_left_out_as_it_is_and_nothing_that_was_tried_well() -> None:
    poison = Poison((P0, 3), (P1, 1100))
    spans = found(poison, most_tries=7)
    assert len(poison.tried) <= 7
    for key, offset in poison.places:
        assert any(partition == key and start <= offset < until for partition, start, until in spans)
    assert sum(until - start for _, start, until in spans) <= 1000, "half of the batch was tried and is well"


def test_where_the_tries_end_at_a_first_half_that_fails_the_other_half_is_not_taken_for_well() -> None:
    ranges = Ranges({P0: OffsetRange(0, 8)})
    parts = failing_parts(ranges, lambda _: "it fails", most_at_once=8, most_tries=2)
    assert [part.ranges for part in parts] == [Ranges({P0: OffsetRange(0, 4)}), Ranges({P0: OffsetRange(4, 8)})]


def test_records_that_fail_only_together_are_not_taken_for_such_that_fail_by_themselves() -> None:
    def fails(ranges: Ranges) -> str | None:
        return "too many" if ranges.record_count > 100 else None

    spans = [offsets for part in failing_parts(WIDE, fails) for offsets in part.ranges.values()]
    assert all(span.record_count == 1 for span in spans), "the last try is of single records, which do not fail"


def test_parts_are_the_ranges_again() -> None:
    parts = list(parts_of(WIDE, 300))
    assert [part.record_count for part in parts] == [300] * 6 + [200]
    assert sum((part.record_count for part in parts), 0) == WIDE.record_count
    first, rest = divided(WIDE, 1500)
    assert (first[P0], first[P1], rest) == (WIDE[P0], OffsetRange(200, 700), Ranges({P1: OffsetRange(700, 1200)}))


# The driver that has the order.


def waiting(scenario: Scenario, ranges: Ranges = READ) -> Scenario:
    """The batch was begun and has failed."""
    batch = PlannedBatch(BatchNumber(1), ranges, IDS)
    begin_batch(scenario.ledger, scenario.permit, batch)
    record_failure(scenario.ledger, scenario.permit, batch, "brokers", "division by zero")
    return scenario


def searching(scenario: Scenario, poison: Poison, source: MemoryTopic = SOURCE) -> Bisection:
    return Bisection(scenario.ledger, scenario.permit, source, poison)


def test_the_records_that_fail_are_found_with_their_errors_and_what_tells_them_from_others() -> None:
    scenario = waiting(Scenario())
    (one,) = searching(scenario, Poison((P0, 3))).find(ORDER, Delivery.EXACTLY_ONCE)
    assert (one.partition, one.offsets, one.error) == (P0, OffsetRange(3, 4), "orders-0 at 3")
    assert one.fingerprint == last_of_each(SOURCE, [(P0, OffsetRange(3, 4))])[0]
    assert one.fingerprint is not None


@pytest.mark.parametrize(
    ("order", "delivery"),
    [
        (None, Delivery.EXACTLY_ONCE),
        (replace(ORDER, bisect=False), Delivery.EXACTLY_ONCE),
        (replace(ORDER, batch=2), Delivery.EXACTLY_ONCE),
        (replace(ORDER, until='{"orders":{"0":6,"1":0}}'), Delivery.EXACTLY_ONCE),
        (ORDER, Delivery.AT_MOST_ONCE),
    ],
    ids=["no order", "the whole batch", "another batch", "other ranges", "a batch that is lost where it fails"],
)
def test_nothing_is_tried_that_no_order_is_about(order: Quarantine | None, delivery: Delivery) -> None:
    poison = Poison((P0, 3))
    assert searching(waiting(Scenario()), poison).find(order, delivery) == ()
    assert not poison.tried


def test_a_record_that_fails_once_and_then_no_more_is_not_left_out() -> None:
    class Flaky(Poison):
        def __call__(self, ranges: Ranges) -> str | None:
            self.places = self.places if len(self.tried) < 3 else ()
            return super().__call__(ranges)

    assert searching(waiting(Scenario()), Flaky((P0, 3))).find(ORDER, Delivery.EXACTLY_ONCE) == ()


def test_only_what_has_not_landed_is_tried() -> None:
    scenario = Scenario()
    waiting(scenario, Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 4)}))
    scenario.database.tables.rows[("position", "shop/orders", P1)] = (4, "id-1", None)
    poison = Poison((P0, 3), (P1, 1))
    order = replace(ORDER, until='{"orders":{"0":5,"1":4}}')
    (one,) = searching(scenario, poison).find(order, Delivery.EXACTLY_ONCE)
    assert one.partition == P0
    assert max(poison.tried) == 5


def test_a_driver_that_may_not_land_any_more_stops_and_a_store_that_does_not_answer_is_no_fault_of_a_record() -> None:
    scenario = waiting(Scenario())
    raise_epoch(scenario.ledger, new_stream(scenario.ledger), Epoch(2), "ticket")
    with pytest.raises(Fenced):
        searching(scenario, Poison()).find(ORDER, Delivery.EXACTLY_ONCE)

    def away(rows: object) -> None:
        raise LedgerUnreachable("it does not answer")

    with pytest.raises(LedgerUnreachable):
        trying(lambda ranges: ranges, away)(READ)


def test_a_driver_that_is_to_end_stops_trying() -> None:
    poison = Poison((P0, 3))
    search = replace(searching(waiting(Scenario()), poison), is_to_end=lambda: len(poison.tried) == 2)
    assert search.find(ORDER, Delivery.EXACTLY_ONCE) == ()
    assert len(poison.tried) == 2


def test_records_that_cannot_be_tried_one_by_one_leave_it_to_the_whole_batch() -> None:
    def refuse(ranges: Ranges) -> str | None:
        raise Refused("the transform does not resolve over a batch")

    search = replace(searching(waiting(Scenario()), Poison()), fails=refuse)
    assert search.find(ORDER, Delivery.EXACTLY_ONCE) == ()


def test_what_is_tried_in_the_sink_is_not_there_afterwards() -> None:
    scenario = Scenario()
    rolled_back(scenario.ledger, scenario.permit, scenario.target)([("row", 1)])
    assert scenario.counts("row") == []


# What its batches record.

FOUND = FailingRecords(P0, OffsetRange(2, 3), "it fails")


class BatchWithout(Batch):
    """A batch of whose records the query leaves some out."""

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        self.rows = [row for row in self.rows if row != ("row", 2)]
        return super().run_tasks(job)


class Slow(MemoryTopic):
    """Shows the last record of a whole range in time, and none of a record that is to be left out."""

    def last_records(self, ranges: Ranges) -> MemoryReading:
        return super().last_records(Ranges({key: it for key, it in ranges.items() if it.record_count != 1}))


def leaving_out(
    scenario: Scenario, *found: FailingRecords, most: int = 1000, source: MemoryTopic = SOURCE, **changes: object
) -> BatchLoop:
    settings = replace(BatchSettings(small_batch_records=0, left_out=found, most_quarantined=most), **changes)  # type: ignore[arg-type]
    return BatchLoop(scenario.ledger, scenario.permit, scenario.target, source, settings)


def batch_without(scenario: Scenario, *, one_range_each: bool = False) -> BatchWithout:
    return BatchWithout(scenario.ledger, scenario.target, BatchNumber(1), one_range_each=one_range_each)


def held(scenario: Scenario) -> list[FailureRow]:
    rows = scenario.database.tables.rows.values()
    return [row for row in rows if isinstance(row, FailureRow) and row.status is FailureStatus.QUARANTINED]


@pytest.mark.parametrize("delivery", list(Delivery))
def test_the_batch_lands_without_the_record_and_its_landing_says_so(delivery: Delivery) -> None:
    scenario = Scenario()
    leaving_out(scenario, FOUND, delivery=delivery).run(batch_without(scenario))
    assert scenario.counts("row") == [0, 1, 3]
    view = scenario.ledger.view("shop/orders")
    assert view is not None
    assert view.landed.positions == Positions({P0: 5, P1: 0})
    batch = view.batch(BatchNumber(1))
    assert batch is not None
    assert (batch.status, batch.ranges) == (BatchStatus.LANDED, READ)
    if delivery is not Delivery.AT_MOST_ONCE:  # whose row is written again once its rows are
        assert batch.note == "It landed without 1 of its records, which are in quarantine."
    (row,) = held(scenario)
    assert (row.batch, row.from_offset, row.until_offset, row.error) == (1, 2, 3, "it fails")
    assert (row.origin_id, row.life) == ("id-1", view.stream.life)
    assert row.fingerprint is not None


@pytest.mark.parametrize(
    ("delivery", "commit", "small"),
    [
        (Delivery.EXACTLY_ONCE, Commit.BATCH, 0),
        (Delivery.EXACTLY_ONCE, Commit.BATCH, 1000),
        (Delivery.EXACTLY_ONCE, Commit.PARTITION, 0),
        (Delivery.AT_LEAST_ONCE, Commit.BATCH, 0),
        (Delivery.AT_MOST_ONCE, Commit.BATCH, 0),
    ],
    ids=["staged", "few rows", "a partition each", "at least once", "at most once"],
)
@pytest.mark.parametrize(("start", "letters"), [(2, [4]), (3, [])], ids=["beside it", "in it"])
def test_a_malformed_record_is_a_dead_letter_or_in_quarantine_and_never_both(
    delivery: Delivery, commit: Commit, small: int, start: int, letters: list[int]
) -> None:
    scenario = Scenario()
    part = replace(FOUND, offsets=OffsetRange(start, start + 2))
    batch = batch_without(scenario, one_range_each=commit is Commit.PARTITION)
    batch.collect = lambda: [("row", 0)]  # type: ignore[assignment,method-assign]
    loop = leaving_out(scenario, part, delivery=delivery, commit=commit, dead_letters=True, small_batch_records=small)
    loop.run(batch)
    assert [(row.from_offset, row.until_offset) for row in held(scenario)] == [(start, start + 2)]
    assert scenario.counts("letter") == letters
    view = scenario.ledger.view("shop/orders")
    assert view is not None
    landed = view.batch(BatchNumber(1))
    assert landed is not None
    assert landed.dead_letters == len(letters)


def test_a_record_that_stands_elsewhere_changes_nothing_of_a_batch() -> None:
    scenario = Scenario()
    loop = leaving_out(scenario, replace(FOUND, offsets=OffsetRange(7, 8)))
    loop.run(scenario.batch(1))
    assert held(scenario) == []
    loop.run(scenario.batch(2))
    assert [row.from_offset for row in held(scenario)] == [7], "whatever batch leaves it out records it"


def test_a_range_that_goes_over_the_end_of_a_batch_is_recorded_by_each_with_its_part() -> None:
    scenario = Scenario()
    loop = leaving_out(scenario, replace(FOUND, offsets=OffsetRange(3, 7)))
    loop.run(scenario.batch(1))
    loop.run(scenario.batch(2))
    assert [(row.batch, row.from_offset, row.until_offset) for row in held(scenario)] == [(1, 3, 5), (2, 5, 7)]


def test_another_record_in_the_place_of_the_one_that_failed_is_not_left_out() -> None:
    scenario = Scenario()
    topic = MemoryTopic({P0: 100, P1: 0}, topic_id="id-1")
    (mark,) = last_of_each(topic, [(P0, FOUND.offsets)])
    topic.truncate(P0, 1)
    topic.ends[P0] = 100
    with pytest.raises(RecordsReplaced, match="Another record stands"):
        leaving_out(scenario, replace(FOUND, fingerprint=mark), source=topic).run(batch_without(scenario))
    assert held(scenario) == []
    assert scenario.counts("row") == []


def test_a_source_that_does_not_show_the_record_in_time_is_no_fault_of_the_batch() -> None:
    scenario = Scenario()
    (mark,) = last_of_each(SOURCE, [(P0, FOUND.offsets)])
    assert mark is not None
    loop = leaving_out(scenario, replace(FOUND, fingerprint=mark), source=Slow({P0: 100, P1: 0}, topic_id="id-1"))
    with pytest.raises(RecordNotShown, match="did not show the record") as raised:
        loop.run(batch_without(scenario))
    assert ending_of(raised.value, in_batch=True)[0] is Ending.UNREACHABLE, "no failure of the batch is counted"
    assert held(scenario) == []
    assert scenario.counts("row") == []


@pytest.mark.parametrize("by_partition", [False, True])
def test_no_more_is_left_out_than_the_resource_allows(by_partition: bool) -> None:
    scenario = Scenario()
    found = [FOUND, replace(FOUND, offsets=OffsetRange(4, 5))]
    commit = Commit.PARTITION if by_partition else Commit.BATCH
    loop = leaving_out(scenario, *found, most=1, commit=commit)
    with pytest.raises(NotToBeQuarantined, match=r"2 records would be in quarantine, more than .* \(1\)"):
        loop.run(batch_without(scenario, one_range_each=by_partition))
    assert held(scenario) == []
    assert scenario.counts("row") == []


def test_a_query_that_keeps_state_lands_no_batch_without_its_records() -> None:
    scenario = Scenario()
    batch = batch_without(scenario)
    batch.stateful = True
    with pytest.raises(NotToBeQuarantined, match="the query keeps state"):
        leaving_out(scenario, FOUND).run(batch)


def test_what_a_partition_landed_without_stays_in_quarantine_although_its_batch_fails_afterwards() -> None:
    """The row of a failed range may have the very key of the record that was left out: the start of the range."""
    scenario = Scenario()
    first = replace(FOUND, offsets=OffsetRange(0, 1))

    def die() -> None:
        raise LedgerUnreachable("it dies before it closes the batch")

    class Dies(BatchWithout):
        def records_read(self) -> int | None:
            die()
            return None

    batch = Dies(scenario.ledger, scenario.target, BatchNumber(1), one_range_each=True)
    with pytest.raises(LedgerUnreachable):
        leaving_out(scenario, first, commit=Commit.PARTITION).run(batch)
    assert [row.from_offset for row in held(scenario)] == [0], "recorded with the partition, before the batch is closed"
    planned = PlannedBatch(BatchNumber(1), READ, IDS)
    record_failure(scenario.ledger, scenario.permit, planned, "brokers", "another partition fails")
    assert [row.from_offset for row in held(scenario)] == [0]
