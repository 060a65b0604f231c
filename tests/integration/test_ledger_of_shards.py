"""Every ledger keeps partitions that have names, and positions of any size: shards and their sequence numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.fence import NewStream, raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from tests.ledgers import QUERY, STREAM, batch_row, new_stream

FIRST, SECOND = Partition("clicks", "shardId-000000000000"), Partition("clicks", "shardId-000000000001")
TAIL = Partition("clicks", "shardId-000000000002")
SEQUENCE = 49590338271490256608559692538361571095921575989136588898
"""A sequence number of Kinesis: 186 bits."""
SHARD_IDS = {"clicks": "2026-11-22T00:00:00Z"}


@pytest.fixture
def stream(ledger: Ledger) -> NewStream:
    return new_stream(ledger)


def begun(ledger: Ledger) -> None:
    """A stream that stands within one shard and at the beginning of another one."""
    raise_epoch(ledger, new_stream(ledger), Epoch(1), "ticket")
    at = LandedPositions(Positions({FIRST: SEQUENCE, SECOND: 0}), SHARD_IDS, {FIRST: Fingerprint(SEQUENCE - 1, "d")})
    publish(ledger, STREAM, Publication(Epoch(1), 1, "/c/g1", BatchNumber(0), Positions(), at, "first", QUERY))


def positions_of(ledger: Ledger) -> Positions:
    view = ledger.view(STREAM)
    assert view is not None
    return view.landed.positions


def test_positions_of_shards_are_kept_whole_and_move_from_where_they_stand(ledger: Ledger) -> None:
    begun(ledger)
    assert positions_of(ledger) == Positions({FIRST: SEQUENCE, SECOND: 0})
    with ledger.transaction() as transaction:
        moved = Ranges({FIRST: OffsetRange(SEQUENCE, SEQUENCE + 5), SECOND: OffsetRange(0, SEQUENCE)})
        kept = {FIRST: Fingerprint(SEQUENCE + 4, "digest")}
        assert transaction.advance_positions(STREAM, moved, SHARD_IDS, kept) == 2
    with ledger.transaction() as transaction:
        stale = Ranges({FIRST: OffsetRange(SEQUENCE + 4, SEQUENCE + 9)})
        assert transaction.advance_positions(STREAM, stale, SHARD_IDS) == 0, "one less is another position"
        assert transaction.advance_positions(STREAM, Ranges({TAIL: OffsetRange(0, SEQUENCE)}), SHARD_IDS) == 1
    assert positions_of(ledger) == Positions({FIRST: SEQUENCE + 5, SECOND: SEQUENCE, TAIL: SEQUENCE})
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.fingerprints == {FIRST: Fingerprint(SEQUENCE + 4, "digest")}
    assert view.landed.origin_ids == SHARD_IDS


def test_a_batch_keeps_the_ranges_of_its_shards(ledger: Ledger) -> None:
    begun(ledger)
    row = replace(batch_row(1), ranges=Ranges({FIRST: OffsetRange(SEQUENCE, SEQUENCE + 5), SECOND: OffsetRange(0, 7)}))
    with ledger.transaction() as transaction:
        transaction.write_batch(STREAM, row)
        assert transaction.read_batch(STREAM, BatchNumber(1)) == row


def test_a_shard_that_is_left_out_keeps_its_position(ledger: Ledger, stream: NewStream) -> None:
    begun(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    only = LandedPositions(Positions({SECOND: SEQUENCE + 1}), SHARD_IDS)
    publish(
        ledger,
        STREAM,
        Publication(Epoch(2), 2, "/c/g2", BatchNumber(1), Positions({FIRST: SEQUENCE, SECOND: 0}), only, "less", QUERY),
    )
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions == Positions({SECOND: SEQUENCE + 1})
    assert view.retired.positions == Positions({FIRST: SEQUENCE})


def test_ranges_of_a_shard_are_given_up_once(ledger: Ledger) -> None:
    begun(ledger)

    def lost(batch: int, shard: Partition, begin: int, end: int) -> FailureRow:
        return FailureRow(BatchNumber(batch), shard, begin, end, FailureStatus.LOST, "region", "expired")

    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(1, FIRST, SEQUENCE, SEQUENCE + 5), lost(1, SECOND, 0, SEQUENCE)))
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(2, FIRST, SEQUENCE + 5, SEQUENCE + 9),))
    with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(3, FIRST, SEQUENCE + 4, SEQUENCE + 6),))


def test_the_same_topic_of_two_sources_stands_twice(ledger: Ledger) -> None:
    """The key of a second source is the beginning of its origins (docs/adr/0027): no ledger needs a column for it."""
    ours, theirs = Partition("orders", 0), Partition("payments/orders", 0)
    shard = Partition("payments/orders", "shardId-000000000000")
    ids = {"orders": "id-1", "payments/orders": "id-2"}
    raise_epoch(ledger, new_stream(ledger), Epoch(1), "ticket")
    at = LandedPositions(Positions({ours: 5, theirs: 7, shard: SEQUENCE}), ids, {theirs: Fingerprint(6, "d")})
    publish(ledger, STREAM, Publication(Epoch(1), 1, "/c/g1", BatchNumber(0), Positions(), at, "first", QUERY))
    moved = Ranges({theirs: OffsetRange(7, 9), shard: OffsetRange(SEQUENCE, SEQUENCE + 5)})
    row = replace(batch_row(1), ranges=moved)
    failed = [
        FailureRow(BatchNumber(1), partition, 0, 5, FailureStatus.LOST, "kafka:9092", "gone")
        for partition in (ours, theirs)
    ]
    with ledger.transaction() as transaction:
        assert transaction.advance_positions(STREAM, moved, ids) == 2
        assert transaction.advance_positions(STREAM, Ranges({ours: OffsetRange(9, 10)}), ids) == 0, (
            "it stands elsewhere"
        )
        transaction.write_batch(STREAM, row)
        transaction.write_failures(STREAM, tuple(failed))
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions == Positions({ours: 5, theirs: 9, shard: SEQUENCE + 5})
    assert view.landed.origin_ids == ids
    with ledger.transaction() as transaction:
        assert transaction.read_batch(STREAM, BatchNumber(1)) == row
        assert [row.partition for row in transaction.read_failures(STREAM, FailureStatus.LOST)] == [ours, theirs]
