"""What a ledger holds of rows that are elsewhere, over all ledgers: witnesses of them, and what makes them visible."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from exactlyonce.connectors.object_log.transaction import WitnessesUnsupported
from exactlyonce.ledger.fence import (
    NewStream,
    fence,
    raise_epoch,
)
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.rows import (
    BatchStatus,
    Excess,
)
from exactlyonce.positions.ranges import BatchNumber, Epoch
from tests.ledger_kinds import OBJECT_LOGS, OF_DATABASES
from tests.ledgers import STREAM, batch_row, started


@pytest.mark.parametrize("ledger", OF_DATABASES, indirect=True)
def test_witnesses_are_taken_once_with_those_of_earlier_batches_and_of_no_other_stream(
    ledger: Ledger, stream: NewStream
) -> None:
    started(ledger)
    raise_epoch(ledger, replace(stream, stream_id="shop/other"), Epoch(1), "ticket")
    with ledger.transaction() as transaction:
        for batch, tag in ((1, 10), (2, 2**62), (2, 21), (3, 30)):
            transaction.write_witness(STREAM, BatchNumber(batch), tag)
        transaction.write_witness("shop/other", BatchNumber(2), 99)
    with ledger.transaction() as transaction:
        assert transaction.take_witnesses(STREAM, BatchNumber(2)) == {2**62, 21}
        assert transaction.take_witnesses(STREAM, BatchNumber(2)) == frozenset()
    with ledger.transaction() as transaction:
        found = [transaction.take_witnesses(STREAM, BatchNumber(batch)) for batch in (1, 2, 3)]
        assert found == [frozenset(), frozenset(), {30}]
        assert transaction.take_witnesses("shop/other", BatchNumber(2)) == {99}


@pytest.mark.parametrize("ledger", OF_DATABASES, indirect=True)
def test_a_witness_of_a_transaction_that_rolled_back_is_none(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)

    def fail() -> None:
        with ledger.transaction() as transaction:
            transaction.write_witness(STREAM, BatchNumber(1), 10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with ledger.transaction() as transaction:
        assert transaction.take_witnesses(STREAM, BatchNumber(1)) == frozenset()


@pytest.mark.parametrize("ledger", OBJECT_LOGS, indirect=True)
def test_an_object_log_refuses_witnesses_of_rows_that_are_in_no_transaction_with_it(ledger: Ledger) -> None:
    started(ledger)
    before = ledger.view(STREAM)
    with pytest.raises(WitnessesUnsupported, match="delivery: ExactlyOnce"), ledger.transaction() as transaction:
        transaction.write_witness(STREAM, BatchNumber(1), 10)
    with pytest.raises(WitnessesUnsupported), ledger.transaction() as transaction:
        transaction.take_witnesses(STREAM, BatchNumber(1))
    assert ledger.view(STREAM) == before


def test_what_becomes_visible_is_there_with_its_batch_or_not_at_all(ledger: Ledger) -> None:
    started(ledger)
    with ledger.transaction() as transaction:
        transaction.write_committable(STREAM, BatchNumber(10), "ten")
        transaction.write_committable(STREAM, BatchNumber(2), "two")
        assert transaction.read_committables("shop/other") == {}

    def fail() -> None:
        with ledger.transaction() as transaction:
            transaction.write_committable(STREAM, BatchNumber(11), "eleven")
            transaction.write_committable(STREAM, BatchNumber(2), "another")
            assert list(transaction.read_committables(STREAM)) == [2, 10, 11], "a transaction sees its own"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with ledger.transaction() as transaction:
        assert list(transaction.read_committables(STREAM).items()) == [(2, "two"), (10, "ten")]
        transaction.lock_stream(STREAM, Lock.UPDATE)
        transaction.write_committable(STREAM, BatchNumber(2), "merged")  # as a compaction does
    with ledger.transaction() as transaction:
        assert list(transaction.read_committables(STREAM).items()) == [(2, "merged"), (10, "ten")]


def test_what_is_visible_stays_when_the_row_of_its_batch_expires(ledger: Ledger) -> None:
    """Readers would lose records that landed, and a removal of orphans would take their files for nobody's."""
    permit = started(ledger)
    with ledger.transaction() as transaction:
        for batch in (1, 2, 3):
            transaction.write_batch(STREAM, batch_row(batch))
            transaction.write_committable(STREAM, BatchNumber(batch), f"batch {batch}")
        stream = fence(transaction, permit, Lock.UPDATE)
        transaction.update_stream(replace(stream, landed_batch=BatchNumber(3)))
    with ledger.transaction() as transaction:
        expired = Excess((BatchStatus.LANDED,), timedelta(0), before=BatchNumber(3))
        assert transaction.delete_batches(STREAM, expired, fewest=1, most=10) == 2
    with ledger.transaction() as transaction:
        assert transaction.read_batch(STREAM, BatchNumber(1)) is None
        assert list(transaction.read_committables(STREAM)) == [1, 2, 3]
