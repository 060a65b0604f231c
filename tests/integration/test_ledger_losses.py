"""What a stream gave up, what it was started to read, and where it is no longer read: claims over all ledgers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.fence import (
    EpochOvertaken,
    NewStream,
    raise_epoch,
)
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.publish import Publication, publish, record_lost, record_query
from exactlyonce.ledger.rows import (
    BatchStatus,
    FailureRow,
    FailureStatus,
    LandedPositions,
    QueryMark,
)
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, batch_row, started


def test_only_a_batch_that_is_still_taken_is_recorded_as_lost_and_that_only_once(
    ledger: Ledger, stream: NewStream
) -> None:
    started(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    taken = batch_row(1, BatchStatus.TAKEN)
    for status in (BatchStatus.LANDED, BatchStatus.LOST, BatchStatus.SUPERSEDED):
        settled = replace(taken, status=status, rows_written=5, note="settled by somebody else")
        with ledger.transaction() as transaction:
            transaction.write_batch(STREAM, settled)
        record_lost(ledger, STREAM, Epoch(2), taken, "brokers")
        with ledger.transaction() as transaction:
            assert transaction.read_batch(STREAM, BatchNumber(1)) == settled
    with ledger.transaction() as transaction:
        # The ranges are free: had a failure been recorded as lost above, this one would overlap it.
        transaction.write_failures(STREAM, (lost(9, P0, 0, 5),))
        transaction.write_failures(STREAM, (replace(lost(9, P0, 0, 5), status=FailureStatus.CLOSED),))
        transaction.write_batch(STREAM, taken)
    for _ in range(2):
        record_lost(ledger, STREAM, Epoch(2), taken, "brokers")
    with ledger.transaction() as transaction:
        found = transaction.read_batch(STREAM, BatchNumber(1))
    assert found is not None
    assert (found.status, found.ranges) == (BatchStatus.LOST, taken.ranges)
    with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(9, P0, 0, 5),))


def test_ranges_of_a_topic_that_is_gone_may_be_lost_again_under_the_same_offsets(
    ledger: Ledger, stream: NewStream
) -> None:
    """The topic may have been missing for a moment, or another one may have had its name."""
    started(ledger)
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(8, P0, 0, 5),))
        transaction.write_failures(STREAM, (replace(lost(9, P0, 0, 5), origin_gone=True),))
        transaction.write_failures(STREAM, (replace(lost(10, P0, 0, 5), origin_gone=True),))
    with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(11, P0, 0, 5),))


QUERIES = [
    QueryMark(Selection(origins=frozenset({"orders", "refunds"})), "hash-1", "10 offsets"),
    QueryMark(Selection(pattern=r"o.*\\.'x"), "hash-2", "10 offsets"),
    QueryMark(Selection(partitions=frozenset({P0, P1})), "hash-3", "10 offsets"),
    QueryMark(Selection(partitions=frozenset({P0})), "hash-4", "10 offsets", left_out=Positions({P1: 7})),
]


def test_what_a_driver_is_started_to_do_is_known_to_the_next_look(ledger: Ledger, stream: NewStream) -> None:
    raise_epoch(ledger, stream, Epoch(1), "ticket")
    view = ledger.view(STREAM)
    assert view is not None
    assert view.query is None
    for query in QUERIES:
        for _ in range(2):
            record_query(ledger, STREAM, Epoch(1), query)
        view = ledger.view(STREAM)
        assert view is not None
        assert view.query == query
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    with pytest.raises(EpochOvertaken):
        record_query(ledger, STREAM, Epoch(1), QUERIES[0])
    view = ledger.view(STREAM)
    assert view is not None
    assert view.query == QUERIES[-1], "a raise does not change it, and an older epoch may not"


def test_a_partition_that_is_left_out_keeps_its_position_and_nothing_lands_there_until_it_comes_back(
    ledger: Ledger, stream: NewStream
) -> None:
    started(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    only_first = LandedPositions(Positions({P0: 0}), IDS)
    publish(ledger, STREAM, replace(seed(2, 1, only_first), query=QUERIES[0]))
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.landed.positions, view.retired.positions) == (Positions({P0: 0}), Positions({P1: 0}))
    assert (view.retired.origin_ids, view.query) == (IDS, QUERIES[0])
    with ledger.transaction() as transaction:
        assert transaction.advance_positions(STREAM, Ranges({P1: OffsetRange(0, 5)}), dict(IDS)) == 0
    raise_epoch(ledger, stream, Epoch(3), "ticket")
    publish(ledger, STREAM, seed(3, 2, LandedPositions(Positions({P0: 0, P1: 0}), IDS), before=only_first.positions))
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.landed.positions, view.retired.positions) == (Positions({P0: 0, P1: 0}), Positions())
    with ledger.transaction() as transaction:
        assert transaction.advance_positions(STREAM, Ranges({P1: OffsetRange(0, 5)}), dict(IDS)) == 1


def test_records_are_given_up_once(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    move(ledger, stream, 2, {P0: 7, P1: 0}, IDS, lost(1, P0, 0, 7))
    with pytest.raises(LedgerRefused, match=r"(?s)^(?!.*\n)"), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(2, P0, 6, 9),))
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(1, P0, 0, 7), lost(2, P0, 7, 9), lost(2, P1, 0, 9)))
        transaction.write_failures(STREAM, (replace(lost(3, P0, 0, 9), status=FailureStatus.OPEN),))


@pytest.mark.parametrize(
    ("positions", "ids"),
    [({P0: 3, P1: 0}, IDS), ({P0: 12, P1: 0}, {"orders": "id-2"})],
    ids=["it goes back", "the topic was recreated"],
)
def test_records_that_are_read_again_may_be_given_up_again(
    ledger: Ledger, stream: NewStream, positions: dict[Partition, int], ids: dict[str, str]
) -> None:
    started(ledger)
    move(ledger, stream, 2, {P0: 12, P1: 9}, IDS, lost(1, P0, 0, 7), lost(1, P1, 0, 9))
    move(ledger, stream, 3, positions, ids)
    move(ledger, stream, 4, {P0: 12, P1: 9}, ids, lost(3, P0, 3, 12), lost(3, P1, 0, 9))
    with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(4, P0, 3, 4),))


def test_a_partition_that_was_left_out_has_still_given_up_what_it_gave_up(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    move(ledger, stream, 2, {P0: 0, P1: 7}, IDS, lost(1, P1, 0, 7))
    move(ledger, stream, 3, {P0: 0}, IDS)
    move(ledger, stream, 4, {P0: 0, P1: 7}, IDS)
    with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (lost(4, P1, 3, 4),))


def lost(batch: int, partition: Partition, begin: int, end: int) -> FailureRow:
    return FailureRow(BatchNumber(batch), partition, begin, end, FailureStatus.LOST, "brokers", "retention")


def move(
    ledger: Ledger,
    stream: NewStream,
    epoch: int,
    positions: dict[Partition, int],
    ids: dict[str, str],
    *given_up: FailureRow,
) -> None:
    """Publish a generation at other positions, by an epoch of its own."""
    raise_epoch(ledger, stream, Epoch(epoch), "ticket")
    view = ledger.view(STREAM)
    assert view is not None
    after = LandedPositions(Positions(positions), ids)
    publish(ledger, STREAM, replace(seed(epoch, epoch - 1, after, view.landed.positions), given_up=given_up))


def seed(epoch: int, batch: int, after: LandedPositions, before: Positions | None = None) -> Publication:
    """Return a generation to publish."""
    return Publication(
        epoch=Epoch(epoch),
        generation=epoch,
        path=f"/c/generation-{epoch}-a{epoch}",
        seed_batch=BatchNumber(batch),
        before=Positions({P0: 0, P1: 0}) if before is None else before,
        after=after,
        note="changed",
        query=QUERY,
    )
