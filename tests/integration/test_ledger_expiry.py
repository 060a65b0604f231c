"""What the ledger no longer keeps goes, and nothing that a decision may need: over all ledgers, then at size in Postgres."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from exactlyonce.api.ledger_retention import LedgerRetention
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.ledger import expiry
from exactlyonce.ledger.expiry import Deleted, delete_expired
from exactlyonce.ledger.fence import Permit, fence, raise_epoch
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.rows import BatchRow, BatchStatus, Excess, FailureRow, FailureStatus, LedgerView
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch, land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from testbed.postgres import Postgres
from tests.ledgers import IDS, P0, P1, PATIENT, STREAM, batch_row, ledger_on, new_stream, started

NOW, NEVER = timedelta(0), timedelta(days=1000)
EVERYTHING: dict[str, Any] = {"batches": {"count": 200, "age": "1h"}}


def with_batches(ledger: Ledger, *rows: BatchRow, landed: int | None = None) -> Permit:
    """A stream whose ledger holds these batches after the seeded 0."""
    permit = started(ledger)
    with ledger.transaction() as transaction:
        for row in rows:
            transaction.write_batch(STREAM, row)
    view = ledger.view(STREAM)
    assert view is not None
    landed = max((row.batch for row in rows if row.status.landed), default=0) if landed is None else landed
    with ledger.transaction() as transaction:
        transaction.update_stream(replace(view.stream, landed_batch=BatchNumber(landed)))
    return permit


def kept(ledger: Ledger) -> dict[int, BatchStatus]:
    with ledger.transaction() as transaction:
        return {row.batch: row.status for row in transaction.read_batches_after(STREAM, None)}


def delete(ledger: Ledger, excess: Excess, fewest: int = 1, most: int = 100) -> int:
    with ledger.transaction() as transaction:
        return transaction.delete_batches(STREAM, excess, fewest, most)


def landed_only(age: timedelta = NEVER, before: int | None = None) -> Excess:
    return Excess((BatchStatus.LANDED,), age, None if before is None else BatchNumber(before))


def test_batches_before_a_number_go_oldest_first_and_a_few_at_a_time(ledger: Ledger) -> None:
    with_batches(ledger, *(batch_row(number) for number in range(1, 10)))
    assert delete(ledger, landed_only(before=6), most=3) == 3
    assert sorted(kept(ledger)) == [0, 4, 5, 6, 7, 8, 9]
    assert delete(ledger, landed_only(before=6), most=3) == 2
    assert delete(ledger, landed_only(before=6), most=3) == 0
    assert sorted(kept(ledger)) == [0, 6, 7, 8, 9]


def test_batches_that_are_too_old_go_and_young_ones_stay(ledger: Ledger) -> None:
    with_batches(ledger, *(batch_row(number) for number in range(1, 5)))
    assert delete(ledger, landed_only(age=NEVER)) == 0
    assert delete(ledger, landed_only(age=NOW)) == 3
    assert sorted(kept(ledger)) == [0, 4]


def test_the_latest_landed_batches_and_the_landed_one_stay_whatever_is_asked(ledger: Ledger) -> None:
    seeded = [batch_row(number, BatchStatus.SEEDED) for number in (7, 8, 9)]
    with_batches(ledger, *(batch_row(number) for number in range(1, 7)), *seeded)
    everything = Excess(tuple(BatchStatus), NOW, BatchNumber(1000))
    assert delete(ledger, everything, fewest=7) == 0, "there are fewer than the fewest"
    assert delete(ledger, everything, fewest=4) == 3
    assert sorted(kept(ledger)) == [3, 4, 5, 6, 7, 8, 9], "the seeds after them did not count"
    assert delete(ledger, everything, fewest=1) == 3
    assert sorted(kept(ledger)) == [6, 7, 8, 9]


def test_only_batches_with_the_statuses_named_go(ledger: Ledger) -> None:
    rows = [batch_row(number, status) for number, status in enumerate(BatchStatus, 1)]
    with_batches(ledger, *rows, batch_row(50))
    retention = LedgerRetention.model_validate({**EVERYTHING, "lostFailures": {"age": "1h"}})
    for excess in expiry.excess_of(retention, BatchNumber(1000)):
        delete(ledger, replace(excess, age=NOW))
    assert set(kept(ledger).values()) == {
        BatchStatus.IN_PROGRESS, BatchStatus.TAKEN, BatchStatus.DECIDED, BatchStatus.FAILED, BatchStatus.LANDED,
        BatchStatus.QUARANTINED,
    }  # fmt: skip
    assert [number for number, status in kept(ledger).items() if status is BatchStatus.LANDED] == [50]


def test_failures_go_by_status_and_age_and_never_those_of_the_landed_batch_or_later_ones(ledger: Ledger) -> None:
    with_batches(ledger, *(batch_row(number) for number in range(1, 5)))
    with ledger.transaction() as transaction:
        for place, status in enumerate(FailureStatus):
            rows = (failure(batch, status, 10 * place + batch) for batch in range(1, 6))
            transaction.write_failures(STREAM, tuple(rows))

    def deleted(status: FailureStatus, age: timedelta, most: int = 100) -> int:
        with ledger.transaction() as transaction:
            return transaction.delete_failures(STREAM, status, age, most)

    assert deleted(FailureStatus.CLOSED, NEVER) == 0
    assert [deleted(FailureStatus.CLOSED, NOW, most=2) for _ in range(3)] == [2, 1, 0]
    assert deleted(FailureStatus.LOST, NOW) == 3
    assert deleted(FailureStatus.SUPERSEDED, NOW) == 3
    assert deleted(FailureStatus.REPLAYED, NOW) == 3
    with ledger.transaction() as transaction:  # what was given up and is forgotten is no obstacle any more
        transaction.write_failures(STREAM, (failure(9, FailureStatus.LOST, 21),))


def test_only_ranges_that_may_still_take_effect_are_kept_for_ever() -> None:
    retention = LedgerRetention.model_validate({**EVERYTHING, "lostFailures": {"age": "1h"}})
    kept_for_ever = [status for status in FailureStatus if expiry.age_of_failures(retention, status) is None]
    assert kept_for_ever == [FailureStatus.OPEN, FailureStatus.QUARANTINED, FailureStatus.REPLAYING]


def failure(batch: int, status: FailureStatus, offset: int) -> FailureRow:
    return FailureRow(BatchNumber(batch), P0, offset, offset + 1, status, "brokers", "error")


def test_whoever_may_not_land_any_more_deletes_nothing(ledger: Ledger) -> None:
    permit = with_batches(ledger, *(batch_row(number) for number in range(1, 400)))
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    assert delete_expired(ledger, permit, LedgerRetention.model_validate(EVERYTHING)) == Deleted()
    assert len(kept(ledger)) == 400


def test_by_default_evidence_of_records_without_effect_is_kept(ledger: Ledger) -> None:
    permit = with_batches(ledger, batch_row(1, BatchStatus.LOST), *(batch_row(number) for number in range(2, 5)))
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (failure(1, FailureStatus.LOST, 0),))
    assert delete_expired(ledger, permit, LedgerRetention(), fewest=1) == Deleted()
    lost_age = expiry.excess_of(LedgerRetention(), BatchNumber(4))
    assert all(BatchStatus.LOST not in excess.statuses for excess in lost_age)


@pytest.fixture
def large(postgres_18: Postgres, name: str) -> Iterator[tuple[PostgresLedger, Permit, Postgres, str]]:
    """A ledger of 50,000 landed batches, with seeds, failures and dead letters among them."""
    made = ledger_on(postgres_18, name)
    permit = started(made)
    fill = """
    insert into exactlyonce.batches (stream_id, batch, epoch, status, ranges, landed_at)
    select 'shop/orders', n, 1, case when n % 10000 = 0 then 'Seeded' else 'Landed' end,
        jsonb_build_object('orders', jsonb_build_object('0', jsonb_build_array(n - 1, n), '1', jsonb_build_array(0, 0))),
        now() - interval '1 second' * (50000 - n) from generate_series(1, 50000) n;
    insert into exactlyonce.failures (stream_id, batch, topic, partition, from_offset, until_offset, status, brokers, error,
        changed_at) select 'shop/orders', n * 10, 'orders', 0, n, n + 1,
        case when n % 10 = 0 then 'Open' else 'Closed' end, 'b', 'e', now() - interval '100 days'
        from generate_series(1, 3000) n;
    insert into exactlyonce.dead_letters (stream_id, topic, topic_id, partition, record_offset, batch, error, life, created_at)
    select 'shop/orders', 'orders', 'id-1', p, n, n, 'e', 'life', now() - interval '1 hour' * (2000 - n)
        from generate_series(1, 2000) n, generate_series(0, 4) p;
    update exactlyonce.streams set landed_batch = 50000;
    update exactlyonce.offsets set next_offset = 50000 where partition = 0;
    """
    postgres_18.execute(fill, name)
    yield made, permit, postgres_18, name
    made.close()


def land_next(ledger: PostgresLedger, permit: Permit) -> int:
    """Land one record more, as a driver does, and return the batch."""
    view = ledger.view(STREAM)
    assert view is not None
    assert view.stream.landed_batch is not None
    number, start = BatchNumber(view.stream.landed_batch + 1), view.landed.positions[P0]
    ranges = Ranges({P0: OffsetRange(start, start + 1), P1: OffsetRange(0, 0)})
    batch = PlannedBatch(number, ranges, IDS)

    def write(transaction: Any) -> Written:
        with transaction.cursor() as cursor:
            cursor.execute("insert into target values (%s)", (number,))
        return Written(1)

    begin_batch(ledger, permit, batch)
    land_batch(ledger, permit, batch, write)
    return number


def test_fifty_thousand_batches_go_down_to_the_bound_while_batches_land_and_the_next_decision_sees_the_same(
    large: tuple[PostgresLedger, Permit, Postgres, str],
) -> None:
    ledger, permit, server, database = large
    retention = LedgerRetention.model_validate(
        {"batches": {"count": 300, "age": "720h"}, "deadLetters": {"age": "500h"}}
    )
    landed, stop = [], threading.Event()

    def keep_landing() -> None:
        while not stop.is_set():
            landed.append(land_next(ledger, permit))

    other = threading.Thread(target=keep_landing)
    other.start()
    try:
        rounds = [delete_expired(ledger, permit, retention)]
        while rounds[-1].may_be_more:
            rounds.append(delete_expired(ledger, permit, retention))
    finally:
        stop.set()
        other.join()
    before = ledger.view(STREAM)
    while delete_expired(ledger, permit, retention) != Deleted():
        pass
    after = ledger.view(STREAM)

    assert max(max(part.batches, part.failures, part.dead_letters) for part in rounds) <= expiry.MOST_ROWS
    assert len(rounds) > 49_000 // expiry.MOST_ROWS
    assert landed == list(range(50_001, 50_001 + len(landed)))
    assert (before, isinstance(after, LedgerView)) == (after, True), "what a decision sees is what it saw"
    assert server.execute("select id from target order by id", database) == [(number,) for number in landed]
    last = landed[-1]
    numbers = [row[0] for row in server.execute("select batch from exactlyonce.batches order by batch", database)]
    seeds = [0, 10_000, 20_000, 30_000, 40_000, 50_000]
    assert numbers == sorted({*seeds, *range(last - 300, last + 1)})
    failures = server.execute("select status, count(*) from exactlyonce.failures group by 1 order by 1", database)
    assert failures == [("Open", 300)]
    oldest = "select partition, min(record_offset), count(*) from exactlyonce.dead_letters group by 1 order by 1"
    assert server.execute(oldest, database) == [(partition, 1501, 500) for partition in range(5)]


def test_a_deletion_that_hangs_before_its_commit_holds_up_no_landing_and_waits_for_none(
    large: tuple[PostgresLedger, Permit, Postgres, str],
) -> None:
    ledger, permit, server, database = large
    impatient = PostgresLedger(ledger.address, limits=replace(PATIENT, lock_seconds=1))  # who waits for a lock fails
    excess = Excess((BatchStatus.LANDED,), NEVER, BatchNumber(40_000))
    with ledger.transaction(lasting=False) as hanging:
        assert hanging.delete_batches(STREAM, excess, 200, 1000) == 1000
        assert hanging.delete_failures(STREAM, FailureStatus.CLOSED, timedelta(days=1), 1000) == 1000
        assert hanging.delete_dead_letters(STREAM, timedelta(hours=1), 1000) == 1000
        landed = [land_next(impatient, permit) for _ in range(3)]
        raise_epoch(impatient, new_stream(ledger), Epoch(2), "ticket")
    impatient.close()
    assert landed == [50_001, 50_002, 50_003]
    assert server.execute("select min(batch) from exactlyonce.batches where batch > 0", database) == [(1001,)]


def test_a_deletion_goes_past_a_landing_that_holds_the_stream(
    large: tuple[PostgresLedger, Permit, Postgres, str],
) -> None:
    ledger, permit, _, _ = large
    impatient = PostgresLedger(ledger.address, limits=replace(PATIENT, lock_seconds=1))
    with ledger.transaction() as landing:
        row = fence(landing, permit, Lock.UPDATE)
        landing.write_batch(STREAM, batch_row(50_001))
        landing.update_stream(replace(row, landed_batch=BatchNumber(50_001)))
        deleted = delete_expired(impatient, permit, LedgerRetention.model_validate(EVERYTHING))
    impatient.close()
    assert (deleted.batches, deleted.failures) == (1000, 1000)
