"""A decided batch counts as landed once, and whoever is refused learns why; on the ledger in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.fence import Fenced, Permit, fence, raise_epoch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import DecisionDiffers, land_decided
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch, land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger

FIRST = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)}), IDS)
DECIDED = DecidedBatch(FIRST.number, ())


def decided() -> tuple[MemoryLedger, Permit]:
    """Return a stream whose first batch is decided and not committed."""
    ledger = MemoryLedger(MemoryDatabase())
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST)
    land_batch(ledger, permit, FIRST, lambda _: Written(0), status=BatchStatus.DECIDED)
    write_decided(ledger, DECIDED)
    return ledger, permit


def write_decided(ledger: MemoryLedger, batch: DecidedBatch | None) -> None:
    with ledger.transaction() as transaction:
        transaction.write_decided(STREAM, batch)


def status_of(ledger: MemoryLedger) -> BatchStatus | None:
    with ledger.transaction() as transaction:
        row = transaction.read_batch(STREAM, FIRST.number)
    return None if row is None else row.status


def test_a_decided_batch_lands_and_landing_it_again_changes_nothing() -> None:
    ledger, permit = decided()
    for _ in range(2):
        land_decided(ledger, permit, FIRST.number)
        assert status_of(ledger) is BatchStatus.LANDED
        view = ledger.view(STREAM)
        assert view is not None
        assert view.decided is None


def test_a_load_without_a_row_and_a_record_at_the_start_of_a_log_are_read_back_as_they_were_decided() -> None:
    first = {P0: Fingerprint(0, "digest", None, 0)}
    kept = DecidedBatch(BatchNumber(0), (Committable("label-a", "70", 0, FIRST.ranges),), IDS, first)
    assert DecidedBatch.from_json(kept.to_json()) == kept


@pytest.mark.parametrize(
    ("batch", "status", "words"),
    [
        (None, BatchStatus.DECIDED, "record of it is Decided, while no batch is to be committed"),
        (None, BatchStatus.IN_PROGRESS, "record of it is InProgress, while no batch is to be committed"),
        (replace(DECIDED, batch=BatchNumber(2)), BatchStatus.DECIDED, "while batch 2 is to be committed"),
        (DECIDED, BatchStatus.LANDED, "record of it is Landed, while batch 1 is to be committed"),
    ],
)
def test_a_batch_that_the_ledger_no_longer_has_as_decided_is_not_recorded_as_landed(
    batch: DecidedBatch | None, status: BatchStatus, words: str
) -> None:
    ledger, permit = decided()
    write_decided(ledger, batch)
    with ledger.transaction() as transaction:
        row = transaction.read_batch(STREAM, FIRST.number)
        assert row is not None
        transaction.write_batch(STREAM, replace(row, status=status))
    with pytest.raises(DecisionDiffers, match=words):
        land_decided(ledger, permit, FIRST.number)
    assert status_of(ledger) is status
    view = ledger.view(STREAM)
    assert view is not None
    assert view.decided == batch


def test_a_refused_writer_is_told_whether_another_process_claimed_its_epoch_or_a_newer_one_began() -> None:
    ledger, permit = decided()
    with (
        ledger.transaction() as transaction,
        pytest.raises(Fenced, match=r"is at epoch 1, claimed by another process\.$"),
    ):
        fence(transaction, replace(permit, claim="claim-2"), Lock.SHARE)
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    with ledger.transaction() as transaction, pytest.raises(Fenced, match=r"is at epoch 2\.$"):
        fence(transaction, permit, Lock.SHARE)
    with ledger.transaction() as transaction, pytest.raises(Fenced, match=r"is at no row\.$"):
        fence(transaction, replace(permit, stream_id="shop/others"), Lock.SHARE)
