"""What lands once more, or beside what was recorded, is told so before anything is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.planned_backfills import plan_backfill
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch, finish_partitions, land_partition
from exactlyonce_spark.left_out import left_out_of_decided
from exactlyonce_spark.planned import AlreadyLanded, PlannedBatch, PositionsDiffer, Written
from tests.ledgers import IDS, P0, P1, STREAM, started
from tests.simulation.database import MemoryDatabase, MemoryLedger

FIRST = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 3)}), IDS)


def no_rows(_: object) -> int:
    return 0


def is_not_to_be_written(_: object) -> int:
    return pytest.fail("rows were written")


def test_a_task_that_runs_once_more_after_its_batch_has_landed_finds_that_out() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST, by_partition=True)
    for partition, offsets in FIRST.ranges.items():
        land_partition(ledger, permit, FIRST.number, partition, offsets, IDS, no_rows)
    finish_partitions(ledger, permit, FIRST, Written(0), 8)
    again = land_partition(ledger, permit, FIRST.number, P0, FIRST.ranges[P0], IDS, is_not_to_be_written)
    assert isinstance(again, AlreadyLanded)


@pytest.mark.parametrize("fingerprint", [None, Fingerprint(4, "digest", 1_000, 3)])
def test_a_partition_that_lands_keeps_the_fingerprint_of_its_last_record(fingerprint: Fingerprint | None) -> None:
    ledger = MemoryLedger(MemoryDatabase())
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST, by_partition=True)
    land_partition(ledger, permit, FIRST.number, P0, FIRST.ranges[P0], IDS, no_rows, fingerprint)
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.fingerprints == ({} if fingerprint is None else {P0: fingerprint})


def test_a_partition_whose_position_has_moved_otherwise_writes_nothing() -> None:
    database = MemoryDatabase()
    ledger = MemoryLedger(database)
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST, by_partition=True)
    stood = database.tables.rows["position", STREAM, P0]
    database.tables.rows["position", STREAM, P0] = (2, *stood[1:])
    with pytest.raises(PositionsDiffer, match=r"reads orders-0 \[0, 5\) and the sink stands at 2"):
        land_partition(ledger, permit, FIRST.number, P0, FIRST.ranges[P0], IDS, is_not_to_be_written)


def test_rows_of_a_decided_batch_are_made_again_without_what_that_very_batch_has_left_out() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    permit = started(ledger)
    assert left_out_of_decided(ledger, permit) == ()
    out = FailureRow(BatchNumber(3), P0, 4, 5, FailureStatus.QUARANTINED, "brokers", "it failed")
    rows = [
        out,
        replace(out, batch=BatchNumber(2), from_offset=1, until_offset=2),
        replace(out, partition=P1, status=FailureStatus.REPLAYED),
        replace(out, from_offset=2, until_offset=3, status=FailureStatus.LOST),
        replace(out, partition=P1, from_offset=1, until_offset=2, status=FailureStatus.GIVEN_UP),
    ]
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, tuple(rows))
        transaction.write_decided(STREAM, DecidedBatch(BatchNumber(3), ()))
    left_out = {(P0, OffsetRange(4, 5)), (P1, OffsetRange(4, 5)), (P0, OffsetRange(2, 3)), (P1, OffsetRange(1, 2))}
    assert set(left_out_of_decided(ledger, permit)) == left_out


def test_a_backfill_beside_a_stream_that_the_ledger_does_not_know_is_refused() -> None:
    with pytest.raises(NothingToReplayInto, match=rf"no row of {STREAM}; start the stream first"):
        plan_backfill(MemoryLedger(MemoryDatabase()), STREAM, Backfill("january", "table t", "asked", ()))
