"""Ranges that did not land, over all ledgers: how they are kept, passed over and read again (test_ledger_behaviour.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.fence import (
    NewStream,
    fence,
    raise_epoch,
)
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import (
    FailureRow,
    FailureStatus,
    LandedPositions,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Positions, Ranges
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, started

QUARANTINED = FailureStatus.QUARANTINED


def failure(batch: int, start: int, end: int, status: FailureStatus) -> FailureRow:
    return FailureRow(BatchNumber(batch), P0, start, end, status, "brokers", "it fails")


def test_failures_are_read_by_their_status_in_order_and_what_is_passed_over_never_overlaps(ledger: Ledger) -> None:
    started(ledger)
    found = [failure(2, 20, 30, QUARANTINED), failure(1, 0, 10, QUARANTINED), failure(1, 10, 20, FailureStatus.OPEN)]
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, tuple(found))
    with ledger.transaction() as transaction:
        assert transaction.read_failures(STREAM, QUARANTINED) == (found[1], found[0])
        assert transaction.read_failures(STREAM, FailureStatus.OPEN) == (found[2],)
        assert transaction.read_failures(STREAM, FailureStatus.LOST) == ()
        assert transaction.read_failures("another/stream", QUARANTINED) == ()
    for status in (FailureStatus.LOST, QUARANTINED):
        with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
            transaction.write_failures(STREAM, (failure(3, 25, 35, status),))
    with ledger.transaction() as transaction:
        transaction.settle_failures(STREAM, BatchNumber(1), FailureStatus.CLOSED)
        assert transaction.read_failures(STREAM, QUARANTINED) == (found[1], found[0]), "only what is open is settled"


def test_a_failure_keeps_which_records_it_is_of_and_the_same_start_again_replaces_it(ledger: Ledger) -> None:
    started(ledger)
    first = replace(
        failure(1, 0, 10, QUARANTINED),
        origin_id="id-1",
        fingerprint=Fingerprint(9, "digest", 5, None),
        life="life-1",
        replay="nightly",
    )
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (first,))
    with ledger.transaction() as transaction:
        assert transaction.read_failures(STREAM, QUARANTINED) == (first,)
    shorter = replace(first, until_offset=4, fingerprint=None, status=FailureStatus.REPLAYED, error="it is mended")
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (shorter,))
    with ledger.transaction() as transaction:
        assert transaction.read_failures(STREAM, QUARANTINED) == ()
        assert transaction.read_failures(STREAM, FailureStatus.REPLAYED) == (shorter,)
    with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (failure(3, 3, 5, FailureStatus.LOST),))
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (failure(3, 4, 5, FailureStatus.LOST),))


def set_back(ledger: Ledger, stream: NewStream, epoch: int, before: Positions, after: LandedPositions) -> None:
    raise_epoch(ledger, stream, Epoch(epoch), "ticket")
    path = f"/c/generation-{epoch:06}-a{epoch}"
    publish(
        ledger, STREAM, Publication(Epoch(epoch), epoch, path, BatchNumber(epoch * 10), before, after, "moved", QUERY)
    )


def test_what_a_stream_reads_again_leaves_the_quarantine_with_the_positions_and_may_be_quarantined_again(
    ledger: Ledger, stream: NewStream
) -> None:
    permit = started(ledger)
    quarantined = [
        replace(failure(1, 0, 10, QUARANTINED), origin_id="id-1"),
        replace(failure(2, 10, 20, QUARANTINED), origin_id="id-1"),
        replace(failure(2, 0, 5, QUARANTINED), partition=P1, origin_id="id-1"),
    ]
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.UPDATE)
        transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(0, 20), P1: OffsetRange(0, 5)}), IDS)
        transaction.write_failures(STREAM, tuple(quarantined))
    stood = Positions({P0: 20, P1: 5})
    set_back(ledger, stream, 2, stood, LandedPositions(Positions({P0: 6, P1: 5}), IDS))
    with ledger.transaction() as transaction:
        assert transaction.read_failures(STREAM, QUARANTINED) == (
            replace(quarantined[0], until_offset=6),
            quarantined[2],
        )
        assert transaction.read_failures(STREAM, FailureStatus.SUPERSEDED) == (
            replace(quarantined[0], from_offset=6, status=FailureStatus.SUPERSEDED),
            replace(quarantined[1], status=FailureStatus.SUPERSEDED),
        )
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (failure(21, 6, 16, QUARANTINED),))
    set_back(ledger, stream, 3, Positions({P0: 6, P1: 5}), LandedPositions(Positions({P0: 30}), {"orders": "id-2"}))
    with ledger.transaction() as transaction:
        assert transaction.read_failures(STREAM, QUARANTINED) == ()
        lost = transaction.read_failures(STREAM, FailureStatus.LOST)
    told = [(row.partition, row.from_offset, row.until_offset, row.origin_id) for row in lost]
    assert told == [(P0, 0, 6, "id-1"), (P1, 0, 5, "id-1"), (P0, 6, 16, "")], (
        "also what names no topic is of the old one"
    )
