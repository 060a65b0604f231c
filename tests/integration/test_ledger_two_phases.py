"""The rules of a batch that is decided before it lands, over all ledgers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from exactlyonce.connectors.postgres.fleet import PostgresFleet
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import EpochOvertaken, Fenced, Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.publish import Publication, publish, record_answers
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import (
    DecisionDiffers,
    land_decided,
    read_decided,
    record_decided,
    replace_decided,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch, land_batch
from exactlyonce_spark.planned import LandingRefused, PlannedBatch, Written
from testbed.postgres import Postgres
from tests.conftest import address_of
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, ledger_on, new_stream, started
from tests.simulation.resource import KEEPS_NOTHING

READS = Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 3)})
FIRST = PlannedBatch(BatchNumber(1), READS, IDS)
LOADS = (
    Committable("label-a", "71", 5, Ranges({P0: OffsetRange(0, 5)})),
    Committable("label-b", "72", 3, Ranges({P1: OffsetRange(0, 3)})),
)
DECIDED = DecidedBatch(BatchNumber(1), LOADS, IDS, {P0: Fingerprint(4, "digest", 7, None)})


def decide(ledger: Ledger, permit: Permit, batch: PlannedBatch = FIRST, decided: DecidedBatch = DECIDED) -> None:
    def record(transaction: LedgerTransaction) -> Written:
        record_decided(transaction, STREAM, decided)
        return Written(8)

    land_batch(ledger, permit, batch, record, status=BatchStatus.DECIDED)


def next_driver(ledger: Ledger, epoch: int = 2) -> Permit:
    raise_epoch(ledger, new_stream(ledger), Epoch(epoch), "ticket")
    return claim_epoch(ledger, STREAM, Epoch(epoch), f"claim-{epoch}", "ticket")[0]


def status_of(ledger: Ledger, batch: int = 1) -> BatchStatus | None:
    with ledger.transaction() as transaction:
        row = transaction.read_batch(STREAM, BatchNumber(batch))
    return None if row is None else row.status


def test_a_decided_batch_is_there_with_its_positions_and_its_loads_until_it_has_landed(ledger: Ledger) -> None:
    permit = started(ledger)
    assert read_decided(ledger, permit) is None
    decide(ledger, permit)
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.decided, view.landed.positions, view.stream.landed_batch) == (DECIDED, READS.ends, 1)
    assert (read_decided(ledger, permit), status_of(ledger)) == (DECIDED, BatchStatus.DECIDED)

    for _ in range(2):
        land_decided(ledger, permit, BatchNumber(1))
        assert (read_decided(ledger, permit), status_of(ledger)) == (None, BatchStatus.LANDED)
    begin_batch(ledger, permit, FIRST)  # as Spark does again: it is recognised


def test_what_follows_a_decided_batch_is_not_decided_before_it_has_landed(ledger: Ledger) -> None:
    permit = started(ledger)
    decide(ledger, permit)
    second = PlannedBatch(BatchNumber(2), Ranges({P0: OffsetRange(5, 6), P1: OffsetRange(3, 3)}), IDS)
    with pytest.raises(DecisionDiffers, match="Batch 1 of shop/orders is decided and has not landed"):
        decide(ledger, permit, second, replace(DECIDED, batch=BatchNumber(2)))
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.landed.positions, view.decided) == (READS.ends, DECIDED)
    with pytest.raises(LandingRefused, match="batch 1 was decided and has not landed"):
        begin_batch(ledger, permit, FIRST)
    land_decided(ledger, permit, BatchNumber(1))
    decide(ledger, permit, second, replace(DECIDED, batch=BatchNumber(2)))


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(decide, id="decide"),
        pytest.param(lambda ledger, permit: read_decided(ledger, permit), id="look"),
        pytest.param(lambda ledger, permit: replace_decided(ledger, permit, DECIDED, DECIDED), id="replace"),
        pytest.param(lambda ledger, permit: land_decided(ledger, permit, BatchNumber(1)), id="land"),
    ],
)
def test_a_driver_that_was_fenced_neither_decides_nor_finishes(
    ledger: Ledger, act: Callable[[Ledger, Permit], object]
) -> None:
    older = started(ledger)
    if act is not decide:
        decide(ledger, older)
    before = ledger.view(STREAM)
    newer = next_driver(ledger)
    with pytest.raises(Fenced):
        act(ledger, older)
    after = ledger.view(STREAM)
    assert before is not None
    assert after is not None
    assert (after.decided, after.landed) == (before.decided, before.landed)
    if after.decided is not None:
        land_decided(ledger, newer, BatchNumber(1))
        assert status_of(ledger) is BatchStatus.LANDED


def test_what_is_left_to_commit_is_replaced_only_where_it_is_what_was_read(ledger: Ledger) -> None:
    decide(ledger, started(ledger))
    permit = next_driver(ledger)
    again = replace(DECIDED, committables=(LOADS[1], replace(LOADS[0], label="label-c", transaction_id="73")))
    replace_decided(ledger, permit, DECIDED, again)
    assert read_decided(ledger, permit) == again
    with pytest.raises(DecisionDiffers, match="was changed meanwhile"):
        replace_decided(ledger, permit, DECIDED, replace(DECIDED, committables=()))
    assert read_decided(ledger, permit) == again


def test_a_persons_answers_are_kept_beside_the_loads_that_they_name_until_a_driver_has_claimed(ledger: Ledger) -> None:
    decide(ledger, started(ledger))
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    for _ in range(2):
        record_answers(
            ledger, STREAM, Epoch(2), BatchNumber(1), {"label-b": Answer.ABORTED, "label-x": Answer.COMMITTED}
        )
    view = ledger.view(STREAM)
    assert view is not None
    assert view.decided is not None
    assert view.decided.committables == (LOADS[0], replace(LOADS[1], answer=Answer.ABORTED))
    permit = claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "ticket")[0]
    assert read_decided(ledger, permit) == view.decided
    with pytest.raises(EpochOvertaken):
        record_answers(ledger, STREAM, Epoch(2), BatchNumber(1), {"label-a": Answer.ABORTED})


def test_a_decided_batch_outlives_generations_and_the_rows_of_batches(ledger: Ledger) -> None:
    """A rebuilt checkpoint continues behind it, and what prunes the ledger leaves it alone: it is yet to be committed."""
    decide(ledger, started(ledger))
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    view = ledger.view(STREAM)
    assert view is not None
    seed = Publication(
        Epoch(2), 2, "/c/generation-000002-a2", BatchNumber(5), view.landed.positions, view.landed, "rebuilt", QUERY
    )
    publish(ledger, STREAM, seed)
    permit = claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "ticket")[0]
    delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1)
    seeded = ledger.view(STREAM)
    assert seeded is not None
    assert (seeded.stream.landed_batch, seeded.decided, status_of(ledger)) == (5, DECIDED, BatchStatus.DECIDED)

    land_decided(ledger, permit, BatchNumber(1))
    after = ledger.view(STREAM)
    assert after is not None
    assert (after.decided, status_of(ledger), after.stream.landed_batch) == (None, BatchStatus.LANDED, 5)


def test_what_is_committed_is_not_landed_over_a_ledger_that_says_otherwise(ledger: Ledger) -> None:
    permit = started(ledger)
    with pytest.raises(DecisionDiffers, match="the ledger's record of it is gone"):
        land_decided(ledger, permit, BatchNumber(1))
    decide(ledger, permit)
    with pytest.raises(DecisionDiffers, match="Batch 2"):
        land_decided(ledger, permit, BatchNumber(2))
    assert read_decided(ledger, permit) == DECIDED


def test_the_monitor_of_a_database_is_told_since_when_a_batch_is_decided(postgres_18: Postgres, name: str) -> None:
    """Of an object log, a unit test makes the claim."""
    made = ledger_on(postgres_18, name)
    permit = started(made)
    asked = PostgresFleet(address_of(postgres_18, name))
    decide(made, permit)
    found = asked.landed("exactlyonce", {STREAM: None})[STREAM]
    assert found.decided_loads == 2
    assert found.decided_at is not None
    assert abs(found.decided_at - time.time()) < 600
    land_decided(made, permit, BatchNumber(1))
    found = asked.landed("exactlyonce", {STREAM: None})[STREAM]
    assert (found.decided_at, found.decided_loads) == (None, 0)
    asked.close()
    made.close()
