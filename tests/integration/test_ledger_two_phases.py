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
from exactlyonce.ledger.known_loads import FoundLoad, KnownLoads, LatestLoads
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.publish import Adoption, PositionsMoved, Publication, adopt, publish, record_answers
from exactlyonce.ledger.rows import BatchRow, BatchStatus, LandedPositions
from exactlyonce.ledger.settlement import Settlement
from exactlyonce.ledger.two_phase import (
    DecisionDiffers,
    land_decided,
    read_decided,
    record_decided,
    record_found,
    record_loads,
    replace_decided,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Positions, Ranges
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


LATEST = LatestLoads(BatchNumber(1), ("label-a", "label-b"), "label-0", "the sink")
FOUND = FoundLoad("label-z", BatchNumber(7), 3, ((P0, OffsetRange(5, 8)), (P1, OffsetRange(3, 3))), place="the sink")


def loads_of(ledger: Ledger) -> KnownLoads:
    view = ledger.view(STREAM)
    assert view is not None
    with ledger.transaction() as transaction:
        locked = transaction.lock_stream(STREAM, Lock.UPDATE)
    assert locked is not None
    assert locked.loads == view.stream.loads
    return locked.loads


def decide_known(ledger: Ledger, permit: Permit) -> None:
    def record(transaction: LedgerTransaction) -> Written:
        record_decided(transaction, STREAM, DECIDED)
        return Written(8)

    land_batch(ledger, permit, FIRST, record, status=BatchStatus.DECIDED, latest=LATEST)


def seed(ledger: Ledger, epoch: int, number: int, after: Positions, settlement: Settlement | None = None) -> None:
    raise_epoch(ledger, new_stream(ledger), Epoch(epoch), "ticket")
    view = ledger.view(STREAM)
    assert view is not None
    publication = Publication(
        Epoch(epoch), epoch, f"/checkpoints/{epoch}", BatchNumber(number), view.landed.positions,
        LandedPositions(after, dict(IDS)), "a seed", QUERY, settlement=settlement,
    )  # fmt: skip
    publish(ledger, STREAM, publication)


def test_the_labels_of_the_latest_batch_with_rows_outlive_its_row_empty_seeds_and_batches_without_rows(
    ledger: Ledger,
) -> None:
    permit = started(ledger)
    decide_known(ledger, permit)
    assert loads_of(ledger) == KnownLoads(LATEST)
    land_decided(ledger, permit, BatchNumber(1))
    seed(ledger, 2, 2, READS.ends)
    permit = claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "ticket")[0]
    for number in (3, 4, 5):
        nothing = PlannedBatch(BatchNumber(number), Ranges.empty_at(READS.ends), IDS)
        land_batch(ledger, permit, nothing, lambda _: Written(0))
    delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1)
    assert status_of(ledger, 1) is None, "retention has removed the batch"
    assert loads_of(ledger) == KnownLoads(LATEST)


def test_labels_under_which_rows_are_made_again_take_the_place_of_those_that_were_aborted(ledger: Ledger) -> None:
    permit = started(ledger)
    decide_known(ledger, permit)
    left = replace(DECIDED, committables=(LOADS[1],))
    replace_decided(ledger, permit, DECIDED, left)
    assert loads_of(ledger).latest == LATEST, "the first one is committed"
    replace_decided(ledger, permit, left, replace(left, committables=(replace(LOADS[1], label="label-c"),)))
    assert loads_of(ledger).latest == replace(LATEST, labels=("label-a", "label-c"))


def test_a_load_that_was_found_stays_until_it_is_settled_and_its_records_land_by_that(ledger: Ledger) -> None:
    permit = started(ledger)
    decide_known(ledger, permit)
    for _ in range(2):
        record_found(ledger, permit, FOUND)
    assert loads_of(ledger) == KnownLoads(LATEST, FOUND)
    with pytest.raises(PositionsMoved, match="has label-z to settle"):
        seed(ledger, 2, 8, READS.ends, Settlement(replace(FOUND, label="label-y"), None, "jane"))
    row = BatchRow(
        FOUND.batch, Epoch(3), BatchStatus.LANDED, Ranges({P0: OffsetRange(5, 8)}), rows_written=3, note="jane"
    )
    after = Positions({P0: 8, P1: 3})
    seed(ledger, 3, 8, after, Settlement(FOUND, Answer.COMMITTED, "jane", row))
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.landed.positions, view.stream.landed_batch) == (after, 8)
    assert loads_of(ledger) == KnownLoads(LatestLoads(FOUND.batch, ("label-z",), None, "the sink"))
    assert status_of(ledger, FOUND.batch) is BatchStatus.LANDED
    assert view.decided == replace(DECIDED, committables=()), "it had landed before a later one was decided"


def test_what_is_recorded_before_a_driver_starts_is_recorded_once_and_under_its_epoch_alone(ledger: Ledger) -> None:
    permit = started(ledger)
    decide_known(ledger, permit)
    doubt = FoundLoad("", BatchNumber(9))
    with pytest.raises(EpochOvertaken):
        record_loads(ledger, STREAM, permit.epoch, doubt)
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    record_loads(ledger, STREAM, Epoch(2), doubt)
    assert loads_of(ledger) == KnownLoads(LATEST, doubt)
    permit = claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "ticket")[0]
    record_found(ledger, permit, FOUND)
    raise_epoch(ledger, new_stream(ledger), Epoch(3), "ticket")
    record_loads(ledger, STREAM, Epoch(3), doubt)
    assert loads_of(ledger).found == FOUND, "what a driver has found says more"
    for _ in range(2):
        record_loads(ledger, STREAM, Epoch(3), Settlement(FOUND, Answer.ABORTED, "jane"))
        assert loads_of(ledger) == KnownLoads(replace(LATEST, before="label-z"))


def test_a_stream_that_starts_over_knows_no_load_and_an_adopted_one_does(ledger: Ledger) -> None:
    permit = started(ledger)
    decide_known(ledger, permit)
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    view = ledger.view(STREAM)
    assert view is not None
    adoption = Adoption(view.stream.owner, view.stream.database, "token-2")
    adopt(ledger, STREAM, Epoch(2), adoption)
    assert loads_of(ledger) == KnownLoads(LATEST)
    adopt(ledger, STREAM, Epoch(2), replace(adoption, starts_over=True))
    assert loads_of(ledger) == KnownLoads()
