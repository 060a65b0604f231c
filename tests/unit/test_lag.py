"""How far a stream is behind: counted from positions, dated by records, and never less while nothing lands."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from exactlyonce.ledger.connector import Landed
from exactlyonce.monitor.lag import (
    Movement,
    PartitionLag,
    dated,
    measured,
    positions_to_date,
    total,
)
from exactlyonce.monitor.snapshot import (
    Snapshot,
    after_dating,
    after_ledger,
    after_source,
    after_source_problem,
)
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.source.port import Bounds

ZERO, ONE = Partition("orders", 0), Partition("orders", 1)
NOON = 1_790_000_000.0
DOWN = "Kafka at kafka:9092 does not answer."


def landed(zero: int, one: int = 0, **more: int) -> Landed:
    return Landed(BatchNumber(7), NOON, BatchNumber(7), {ZERO: zero, ONE: one}, **more)


def bounds(zero: int, one: int = 0, earliest: int = 0) -> dict[Partition, Bounds]:
    return {ZERO: Bounds(earliest, zero), ONE: Bounds(0, one)}


def looked(zero: int, one: int, latest: tuple[int, int], at: float = NOON, before: Snapshot | None = None) -> Snapshot:
    """A round in which both stores answer."""
    known = after_ledger(before or Snapshot(), landed(zero, one))
    return after_source(known, landed(zero, one).positions, bounds(*latest), at)


def lag(snapshot: Snapshot, at: float = NOON) -> int:
    found = snapshot.lag(at)
    assert found is not None
    assert found.records is not None
    return found.records


def test_lag_is_counted_from_where_the_ledger_stands_to_where_the_source_ends() -> None:
    snapshot = looked(40, 5, (100, 5))
    assert {key: it.lag_records for key, it in snapshot.partitions.items()} == {ZERO: 60, ONE: 0}
    assert lag(snapshot) == 60


def test_a_partition_that_the_ledger_does_not_know_has_landed_nothing() -> None:
    found = measured({ZERO: 9}, bounds(9, 12), {}, NOON)
    assert total(found, NOON).records == 12


def test_records_that_retention_took_before_they_landed_have_not_landed() -> None:
    found = measured({ZERO: 10}, {ZERO: Bounds(50, 80)}, {}, NOON)
    assert total(found, NOON).records == 70
    assert positions_to_date(found) == {ZERO: 50}, "the oldest one that can be fetched"


def test_a_record_is_fetched_only_where_records_wait_and_once_a_position() -> None:
    snapshot = looked(40, 5, (100, 5))
    assert positions_to_date(snapshot.partitions) == {ZERO: 40}
    snapshot = after_dating(snapshot, {ZERO: NOON - 60})
    assert positions_to_date(snapshot.partitions) == {}
    grown = looked(40, 5, (900, 5), before=snapshot)
    assert positions_to_date(grown.partitions) == {}, "the source has more, and the oldest is the same"
    moved = looked(41, 5, (900, 5), before=snapshot)
    assert positions_to_date(moved.partitions) == {ZERO: 41}


def test_where_no_record_was_found_it_is_looked_for_again_when_the_source_has_more() -> None:
    snapshot = after_dating(looked(40, 5, (41, 5)), {ZERO: None})
    assert snapshot.oldest_timestamp(NOON) is None, "a transaction's marker is an offset and no record"
    assert positions_to_date(looked(40, 5, (41, 5), before=snapshot).partitions) == {}
    assert positions_to_date(looked(40, 5, (42, 5), before=snapshot).partitions) == {ZERO: 40}


def test_the_oldest_record_of_all_partitions_counts() -> None:
    snapshot = after_dating(looked(1, 1, (2, 2)), {ZERO: NOON - 5, ONE: NOON - 90})
    assert snapshot.oldest_timestamp(NOON) == NOON - 90
    assert looked(2, 2, (2, 2), before=snapshot).oldest_timestamp(NOON) is None, "nothing waits"


def test_an_older_timestamp_stands_until_the_record_at_the_new_position_was_fetched() -> None:
    snapshot = after_dating(looked(1, 0, (9, 0)), {ZERO: NOON - 90})
    moved = looked(5, 0, (9, 0), before=snapshot)
    assert moved.oldest_timestamp(NOON) == NOON - 90, "too old, never too young"
    assert after_dating(moved, {ZERO: NOON - 10}).oldest_timestamp(NOON) == NOON - 10


def test_an_unreachable_source_leaves_the_lag_as_it_was_and_is_told() -> None:
    snapshot = after_source_problem(after_dating(looked(40, 5, (100, 5)), {ZERO: NOON - 60}), DOWN)
    assert (snapshot.source_up, snapshot.problem) == (False, DOWN)
    assert (lag(snapshot), snapshot.oldest_timestamp(NOON + 600)) == (60, NOON - 60)


def test_an_unreachable_source_is_never_a_lag_of_zero() -> None:
    caught_up = after_source_problem(looked(100, 5, (100, 5)), DOWN)
    assert caught_up.lag(NOON) is None
    landed_since = after_ledger(after_source_problem(looked(40, 5, (100, 5)), DOWN), landed(100, 5))
    assert landed_since.lag(NOON) is None, (
        "what it held when it last answered has landed; what it holds now is not known"
    )
    assert after_source_problem(Snapshot(), DOWN).lag(NOON) is None


def test_what_has_landed_while_the_source_was_unreachable_counts() -> None:
    snapshot = after_ledger(after_source_problem(looked(40, 5, (100, 5)), DOWN), landed(70, 5))
    assert lag(snapshot) == 30


def test_an_unreachable_ledger_lets_the_lag_grow_with_the_source() -> None:
    snapshot = after_dating(looked(40, 5, (40, 5)), {})
    silent = after_ledger(snapshot, "The database does not answer.")
    later = after_source(silent, landed(40, 5).positions, bounds(55, 5), NOON + 30)
    assert (later.source_up, later.ledger_up, lag(later)) == (True, False, 15)
    assert positions_to_date(later.partitions) == {ZERO: 40}
    assert later.measured_at == NOON


def test_a_stream_that_the_ledger_does_not_know_has_no_lag() -> None:
    snapshot = after_source(after_ledger(Snapshot(), None), None, bounds(9, 9), NOON)
    assert (snapshot.lag(NOON), snapshot.problem, snapshot.source_up, snapshot.ledger_up) == (None, None, True, True)


def test_more_landed_than_the_source_holds_is_told_and_no_lag_of_zero() -> None:
    snapshot = looked(40, 5, (100, 5))
    replaced = looked(40, 5, (3, 5), before=snapshot)
    assert replaced.problem == (
        "More has landed than the source holds (orders-0 at 40): the topic was recreated or has lost records."
    )
    assert lag(replaced) == 60


def test_what_another_operator_saw_waiting_stands_until_this_one_has_measured() -> None:
    taken_over = after_source_problem(Snapshot(remembered_timestamp=NOON - 500), DOWN)
    assert taken_over.oldest_timestamp(NOON) == NOON - 500
    assert looked(9, 9, (9, 9), before=taken_over).oldest_timestamp(NOON) is None


def test_records_landed_only_count_up() -> None:
    snapshot = after_ledger(Snapshot(), landed(5, batches=0))
    snapshot = after_ledger(snapshot, landed(9, batches=2, records=4, rows=3, dead_letters=1))
    snapshot = after_ledger(after_ledger(snapshot, "The database does not answer."), landed(9, batches=1, records=2))
    counts = snapshot.counts
    assert (counts.batches, counts.records, counts.rows, counts.dead_letters) == (3, 6, 3, 1)


def test_the_time_until_retention_reaches_the_landed_position_comes_from_how_earliest_moves() -> None:
    first = measured({ZERO: 1000}, {ZERO: Bounds(0, 5000)}, {}, NOON)
    assert first[ZERO].retention_seconds(NOON) is None, "it has not been seen to move"
    second = measured({ZERO: 1000}, {ZERO: Bounds(200, 5000)}, first, NOON + 100)
    assert second[ZERO].retention_seconds(NOON + 100) == pytest.approx(400.0), "800 offsets at 2 a second"
    passed = measured({ZERO: 1000}, {ZERO: Bounds(1200, 5000)}, second, NOON + 200)
    assert passed[ZERO].retention_seconds(NOON + 200) == 0.0
    caught_up = measured({ZERO: 5000}, {ZERO: Bounds(1200, 5000)}, passed, NOON + 200)
    assert caught_up[ZERO].retention_seconds(NOON + 200) is None, "what has landed cannot be eaten"


def test_the_speed_of_earliest_falls_while_it_stands_and_is_forgotten_after_a_day() -> None:
    movement = Movement().seen(0, NOON).seen(600, NOON + 60)
    assert movement.offsets_per_second(NOON + 60) == 10.0
    assert movement.seen(600, NOON + 600).offsets_per_second(NOON + 600) == 1.0
    assert movement.seen(600, NOON + 200_000).offsets_per_second(NOON + 200_000) == 0.0


def test_a_topic_made_again_begins_a_new_movement() -> None:
    assert Movement().seen(500, NOON).seen(900, NOON + 10).seen(0, NOON + 20).offsets_per_second(NOON + 20) == 0.0


def test_marks_of_movement_are_bounded() -> None:
    movement = Movement()
    for number in range(1000):
        movement = movement.seen(number, NOON + number)
    assert len(movement.marks) == 16
    assert movement.offsets_per_second(NOON + 999) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(300))
def test_lag_never_decreases_while_nothing_lands(seed: int) -> None:
    """Any mix of silent stores, new records, passing retention, new partitions and failed fetches."""
    chance = random.Random(seed)
    stands = {ZERO: chance.randrange(50), ONE: chance.randrange(50)}
    edges = {key: Bounds(0, at + chance.randrange(20)) for key, at in stands.items()}
    written = {key: [NOON + chance.randrange(10_000) for _ in range(200)] for key in (ZERO, ONE)}
    snapshot, now, seen_records, seen_age = Snapshot(), NOON + 20_000, 0, 0.0
    counted = Landed(BatchNumber(3), NOON, BatchNumber(3), stands)
    for _ in range(40):
        now += chance.randrange(1, 60)
        edges = {
            key: Bounds(min(it.latest, it.earliest + chance.randrange(3)), min(199, it.latest + chance.randrange(6)))
            for key, it in edges.items()
        }
        snapshot = after_ledger(snapshot, counted if chance.random() < 0.7 else "The database does not answer.")
        if chance.random() < 0.3:
            snapshot = after_source_problem(snapshot, DOWN)
        elif snapshot.landed is not None:
            snapshot = after_source(snapshot, snapshot.landed.positions, edges, now)
            if chance.random() < 0.7:
                wanted = positions_to_date(snapshot.partitions)
                snapshot = after_dating(snapshot, {key: written[key][at] for key, at in wanted.items()})
        found, oldest = snapshot.lag(now), snapshot.oldest_timestamp(now)
        assert seen_records == 0 or found is not None, "what was known to wait is not forgotten"
        records, age = (0 if found is None else found.records or 0), (0.0 if oldest is None else now - oldest)
        assert records >= seen_records
        assert age >= seen_age
        seen_records, seen_age = records, age


def test_the_property_above_can_fail() -> None:
    """A lag that took what is left of a partition for its whole lag would fall when retention passes."""
    wrong = PartitionLag(10, Bounds(50, 80))
    waiting, left = wrong.lag_records, replace(wrong, landed=max(wrong.landed, wrong.bounds.earliest)).lag_records
    assert waiting is not None
    assert left is not None
    assert left < waiting


def test_a_partition_without_an_answer_keeps_its_age() -> None:
    lags = dated(measured({ZERO: 1, ONE: 1}, bounds(5, 5), {}, NOON), {ZERO: NOON})
    assert (lags[ZERO].oldest_timestamp, lags[ONE].oldest_timestamp) == (NOON, None)
    assert positions_to_date(lags) == {ONE: 1}


def test_what_an_open_transaction_holds_back_is_lag_and_dated_where_nothing_else_waits() -> None:
    held = {ZERO: Bounds(0, 9, held_back=4), ONE: Bounds(0, 7, held_back=2)}
    before = replace(after_ledger(Snapshot(), landed(5, 3)), asked_ledger=True)
    found = after_source(before, landed(5, 3).positions, held, NOON)
    found = replace(found, partitions=dated(found.partitions, {ZERO: NOON - 90, ONE: NOON - 300}))
    known = found.lag(NOON)
    assert known is not None
    assert (known.records, known.held_back_records, known.is_caught_up) == (8, 6, False)
    assert known.held_back_since == NOON - 90, "in the other one, records wait that the stream may read"
