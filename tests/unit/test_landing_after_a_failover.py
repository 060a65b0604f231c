"""A driver continues after a failover that lost its latest commits: what it landed by then explains what it lands next."""

from __future__ import annotations

import pytest

from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.publish import PositionsMoved, Publication, publish, record_lost
from exactlyonce.ledger.rows import BatchStatus, FailureRow, LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce.reconcile.ledger_checks import ledger_contradiction
from exactlyonce_spark.landing import begin_batch, finish_partitions, land_batch, land_partition
from exactlyonce_spark.planned import LandingRefused, PlannedBatch, PositionsDiffer, Written
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger

FIRST = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 3)}), IDS)


def rows_of(transaction: LedgerTransaction) -> int:
    return transaction.append([("row", 0)])  # type: ignore[attr-defined, no-any-return] # the memory ledger's


def test_a_partition_lands_only_while_the_ledger_knows_the_batch_it_is_of() -> None:
    database = MemoryDatabase()
    ledger = MemoryLedger(database)
    permit = started(ledger)
    surviving = database.tables.copy()
    begin_batch(ledger, permit, FIRST, by_partition=True)
    database.restore(surviving)
    with pytest.raises(LandingRefused, match="batch 1"):
        land_partition(ledger, permit, FIRST.number, P0, FIRST.ranges[P0], IDS, rows_of)
    assert not database.tables.target, "nothing was written"
    view = ledger.view(STREAM)
    assert view is not None
    assert ledger_contradiction(view) is None


def test_a_partition_lands_only_in_the_range_that_was_recorded_for_it() -> None:
    database = MemoryDatabase()
    ledger = MemoryLedger(database)
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST, by_partition=True)
    with pytest.raises(LandingRefused, match="batch 1"):
        land_partition(ledger, permit, FIRST.number, P0, OffsetRange(0, 4), IDS, rows_of)
    assert not database.tables.target


def test_a_partition_of_a_recorded_batch_lands() -> None:
    database = MemoryDatabase()
    ledger = MemoryLedger(database)
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST, by_partition=True)
    assert land_partition(ledger, permit, FIRST.number, P0, FIRST.ranges[P0], IDS, rows_of) == 1


def test_a_batch_is_not_closed_over_a_partition_whose_landing_was_lost() -> None:
    database = MemoryDatabase()
    ledger = MemoryLedger(database)
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST, by_partition=True)
    land_partition(ledger, permit, FIRST.number, P0, FIRST.ranges[P0], IDS, rows_of)
    surviving = database.tables.copy()
    land_partition(ledger, permit, FIRST.number, P1, FIRST.ranges[P1], IDS, rows_of)
    database.restore(surviving)
    with pytest.raises(PositionsDiffer, match="orders-1"):
        finish_partitions(ledger, permit, FIRST, Written(2), 8)
    view = ledger.view(STREAM)
    assert view is not None
    assert view.stream.landed_batch == 0
    assert dict(view.landed.positions) == {P0: 5, P1: 0}, "the records that were lost are read again"


def test_a_generation_is_not_published_over_a_taken_batch_whose_loss_a_failover_forgot() -> None:
    database = MemoryDatabase()
    ledger = MemoryLedger(database)
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST)
    land_batch(ledger, permit, FIRST, lambda _: Written(None), status=BatchStatus.TAKEN)
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    surviving = database.tables.copy()
    taken = surviving.rows[("batch", STREAM, FIRST.number)]
    record_lost(ledger, STREAM, Epoch(2), taken, "brokers")
    database.restore(surviving)
    standing = LandedPositions(FIRST.ranges.ends, IDS)
    rebuilt = Publication(
        Epoch(2), 2, "/c/generation-000002-a2", BatchNumber(2), FIRST.ranges.ends, standing, "rebuilt", QUERY
    )
    with pytest.raises(PositionsMoved, match="holds batch 1 as taken"):
        publish(ledger, STREAM, rebuilt)
    record_lost(ledger, STREAM, Epoch(2), taken, "brokers")
    publish(ledger, STREAM, rebuilt)
    told = [row for row in database.tables.rows.values() if isinstance(row, FailureRow)]
    assert {(row.partition, row.from_offset, row.until_offset) for row in told} == {(P0, 0, 5), (P1, 0, 3)}
