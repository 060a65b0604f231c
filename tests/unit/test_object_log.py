"""The object log: one entry for each batch, who is first, and a crash between any two requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import LogMissing, ObjectLog
from exactlyonce.connectors.object_log.points import POINTS
from exactlyonce.errors import LostRace
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import EpochOvertaken, Fenced, fence, raise_epoch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchStatus, Excess, Owner
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch
from exactlyonce_spark.planned import LandingRefused, PlannedBatch
from tests.ledgers import IDS, P0, P1, STREAM, batch_row, new_stream, started
from tests.object_logs import Crashed, before_create, entries, go_on, land, ledger_on, once, records, visible
from tests.simulation.objects import MemoryObjects
from tests.simulation.resource import KEEPS_NOTHING

LAST = 25
"""So many records that every point is passed seven times."""


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


def test_a_look_before_anything_was_prepared_finds_nothing_and_makes_nothing(store: MemoryObjects) -> None:
    ledger = ObjectLogLedger(ObjectLog(store, "ledger"))
    assert ledger.view(STREAM) is None
    with pytest.raises(LogMissing, match="no ledger at s3a://lake/orders/ledger"), ledger.transaction():
        pass
    assert store.objects == {}


def test_two_processes_that_prepare_one_log_know_it_by_one_identity(store: MemoryObjects) -> None:
    assert ledger_on(store).database_identity() == ledger_on(store).database_identity()


def test_a_batch_in_steady_state_is_one_entry(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    land(ledger, permit, 1)
    before = len(entries(store))
    for number in range(2, 6):
        ranges = Ranges({P0: OffsetRange(number - 1, number), P1: OffsetRange(0, 0)})
        begin_batch(ledger, permit, PlannedBatch(BatchNumber(number), ranges, IDS), follows_own=True)
        land(ledger, permit, number)
    assert len(entries(store)) == before + 4
    assert visible(ledger) == records(5)


def test_the_first_batch_of_a_driver_is_recorded_before_it_lands(store: MemoryObjects) -> None:
    """So a batch that ends its driver without a word is known to whoever has to make it smaller."""
    ledger = ledger_on(store)
    permit = started(ledger)
    ranges = Ranges({P0: OffsetRange(0, 1), P1: OffsetRange(0, 0)})
    begin_batch(ledger, permit, PlannedBatch(BatchNumber(1), ranges, IDS))
    view = ledger_on(store).view(STREAM)
    assert view is not None
    assert [row.status for row in view.batches] == [BatchStatus.SEEDED, BatchStatus.IN_PROGRESS]


def test_a_dispensable_record_is_left_out_and_its_fence_is_not(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    before = dict(store.objects)
    with ledger.transaction(dispensable=True) as transaction:
        fence(transaction, permit, Lock.SHARE)
        transaction.write_batch(STREAM, batch_row(1, BatchStatus.IN_PROGRESS))
    assert store.objects == before
    raise_epoch(ledger_on(store), new_stream(ledger), Epoch(2), "ticket")
    with pytest.raises(Fenced), ledger.transaction(dispensable=True) as transaction:
        fence(transaction, permit, Lock.SHARE)


def test_of_two_transactions_over_one_state_the_later_one_loses_and_leaves_nothing(store: MemoryObjects) -> None:
    ours, theirs = ledger_on(store), ledger_on(store)
    permit = started(ours)

    def both() -> None:
        with ours.transaction() as transaction:
            transaction.write_batch(STREAM, batch_row(7))
            land(theirs, permit, 1)

    with pytest.raises(LostRace):
        both()
    view = ours.view(STREAM)
    assert view is not None
    assert (view.stream.landed_batch, view.batch(BatchNumber(7))) == (1, None)


def test_a_landing_that_loses_to_a_raise_runs_its_rules_again_and_is_fenced(store: MemoryObjects) -> None:
    driver, operator = ledger_on(store), ledger_on(store)
    permit = started(driver)
    store.hooks.step = once(
        lambda label: label.startswith("create"),
        lambda: raise_epoch(operator, new_stream(operator), Epoch(2), "ticket"),
    )
    with pytest.raises(Fenced):
        land(driver, permit, 1)
    assert visible(operator) == []


def test_a_raise_that_loses_to_a_landing_is_run_again_over_what_has_landed(store: MemoryObjects) -> None:
    driver, operator = ledger_on(store), ledger_on(store)
    permit = started(driver)
    store.hooks.step = before_create(lambda: land(driver, permit, 1))
    raised = raise_epoch(operator, new_stream(operator), Epoch(2), "ticket")
    assert raised.before is not None
    assert raised.before.landed_batch == 1
    assert visible(operator) == records(1)


def test_whoever_loses_every_race_is_told_so_in_the_end(store: MemoryObjects) -> None:
    driver, operator = ledger_on(store), ledger_on(store)
    permit = started(driver)
    numbers = iter(range(1, 1000))

    def always_first(label: str) -> None:
        if label.startswith("create"):
            store.hooks.step = lambda _: None
            land(driver, permit, next(numbers))
            store.hooks.step = always_first

    store.hooks.step = always_first
    with pytest.raises(LostRace):
        raise_epoch(operator, new_stream(operator), Epoch(2), "ticket")


def test_a_stream_is_forgotten_by_its_owner_alone_and_others_of_the_log_stay(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    land(ledger, started(ledger), 1)
    with ledger.transaction() as transaction:  # no rule lets a second stream in; a log that has one loses nothing of it
        row = transaction.lock_stream(STREAM, Lock.SHARE)
        assert row is not None
        transaction.update_stream(replace(row, stream_id="shop/other"))
    ledger.forget(STREAM, Owner("cluster-1", "another uid"))
    assert ledger.view(STREAM) is not None
    for _ in range(2):
        ledger.forget(STREAM, Owner("cluster-1", "uid-1"))
    assert ledger.view(STREAM) is None
    assert ledger_on(store).view("shop/other") is not None
    assert visible(ledger) == []


def test_what_is_not_kept_goes_by_the_writers_clock(store: MemoryObjects) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    log = ObjectLog(store, "ledger")
    ledger = ObjectLogLedger(log, lambda: now)
    ledger.prepare()
    permit = started(ledger)
    for number in range(1, 5):
        land(ledger, permit, number)
        now += timedelta(hours=1)
    with ledger.transaction() as transaction:
        old = Excess((BatchStatus.LANDED,), timedelta(hours=2, minutes=30))
        assert transaction.delete_batches(STREAM, old, 1, 100) == 2
    assert visible(ledger) == records(4), "what a batch made visible stays, or readers would lose it"
    assert delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1).batches == 2, "the seed and one more"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("time", [1, 2, 7])
def test_a_process_that_dies_between_any_two_requests_leaves_a_log_its_successor_goes_on_with(
    tmp_path: Path, point: str, time: int
) -> None:
    """On a real disk; every record is counted by its id at the end."""
    unanswered = point == "log.create-unanswered"
    disk = Unanswering(str(tmp_path)) if unanswered else LocalLogStore(str(tmp_path))
    passed = 0

    def reached(at: str) -> None:
        nonlocal passed
        passed += at == point
        if at == point and passed == time:
            raise Crashed

    lives = 0
    while True:
        lives += 1
        try:
            ledger = ledger_on(disk, every=3, reached=reached)
            view = ledger.view(STREAM)
            epoch = lives if view is None else view.stream.epoch + 1
            permit = go_on(ledger, epoch)
            view = ledger.view(STREAM)
            assert view is not None
            for number in range((view.stream.landed_batch or 0) + 1, LAST + 1):
                land(ledger, permit, number)
        except Crashed:
            continue
        break
    crashes = 1 if point != "log.before-origin" or time == 1 else 0
    assert lives == 1 + crashes
    assert visible(ledger_on(LocalLogStore(str(tmp_path)))) == records(LAST)


class Unanswering(LocalLogStore):
    """A disk behind a network: every third create takes effect and its answer is lost."""

    _creates = 0

    def create(self, path: str, content: bytes):  # type: ignore[no-untyped-def]
        from exactlyonce.errors import StoreUnreachable

        outcome = super().create(path, content)
        self._creates += 1
        if self._creates % 3 == 0:
            raise StoreUnreachable("the answer is lost")
        return outcome


def test_who_acts_for_an_older_epoch_is_refused_after_losing_a_race_too(store: MemoryObjects) -> None:
    ours, theirs = ledger_on(store), ledger_on(store)
    permit = started(ours)
    store.hooks.step = before_create(lambda: raise_epoch(theirs, new_stream(theirs), Epoch(9), "ticket"))
    with pytest.raises(EpochOvertaken):
        raise_epoch(ours, new_stream(ours), Epoch(5), "ticket")
    with pytest.raises((Fenced, LandingRefused)):
        land(ours, permit, 1)
