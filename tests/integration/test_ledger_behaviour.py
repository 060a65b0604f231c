"""One suite of claims over all ledgers: Postgres, the object log on a disk and on S3, and the simulation's in memory.

What the simulation proves is worth as much as its ledger is like the real one; this suite holds them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from exactlyonce.ledger.fence import (
    EpochOvertaken,
    Fenced,
    NewStream,
    claim_epoch,
    fence,
    raise_epoch,
    release,
)
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.publish import Adoption, PositionsMoved, Publication, adopt, publish, record_lost
from exactlyonce.ledger.rows import (
    BatchStatus,
    FailureRow,
    FailureStatus,
    LandedPositions,
    Owner,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, batch_row, started


def test_an_unknown_stream_has_no_view(ledger: Ledger) -> None:
    assert ledger.view("shop/none") is None


def test_the_first_raise_makes_the_row_and_the_second_keeps_its_token(ledger: Ledger, stream: NewStream) -> None:
    first = raise_epoch(ledger, stream, Epoch(3), "ticket")
    second = raise_epoch(ledger, replace(stream, token="token-2"), Epoch(4), "ticket")
    assert first.before is None
    assert second.before == first.row
    assert (second.row.token, second.row.epoch, second.row.claim) == ("token-1", 4, None)


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_that_is_not_newer_is_refused(ledger: Ledger, stream: NewStream, epoch: int) -> None:
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    with pytest.raises(EpochOvertaken):
        raise_epoch(ledger, stream, Epoch(epoch), "ticket")


def test_an_epoch_is_claimed_by_one_process_only(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    assert claim_epoch(ledger, STREAM, Epoch(1), "claim-1", "ticket")[0].claim == "claim-1", (
        "the same process may ask again"
    )
    with pytest.raises(Fenced):
        claim_epoch(ledger, STREAM, Epoch(1), "claim-2", "ticket")


def test_an_epoch_is_claimed_only_with_the_ticket_of_the_raise_that_made_it(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    raise_epoch(ledger, stream, Epoch(2), "this raise")
    with pytest.raises(Fenced, match="former life"):
        claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "a former life's")
    for _ in range(2):
        claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "this raise")
    raise_epoch(ledger, stream, Epoch(3), "the next raise")
    with pytest.raises(Fenced, match="former life"):
        claim_epoch(ledger, STREAM, Epoch(3), "claim-3", "this raise")
    claim_epoch(ledger, STREAM, Epoch(3), "claim-3", "the next raise")


def test_an_epoch_without_a_published_checkpoint_cannot_be_claimed(ledger: Ledger, stream: NewStream) -> None:
    raise_epoch(ledger, stream, Epoch(1), "ticket")
    with pytest.raises(Fenced):
        claim_epoch(ledger, STREAM, Epoch(1), "claim-1", "ticket")


def test_a_raise_fences_the_claimed_epoch_and_keeps_who_wrote_the_checkpoint(ledger: Ledger, stream: NewStream) -> None:
    permit = started(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    raised = raise_epoch(ledger, stream, Epoch(3), "ticket")
    assert raised.before is not None
    assert raised.before.writer == 1, "two raises later the directory's last writer is still known"
    with pytest.raises(Fenced), ledger.transaction() as transaction:
        fence(transaction, permit, Lock.SHARE)


def test_a_release_says_that_the_writer_has_stopped(ledger: Ledger, stream: NewStream) -> None:
    release(ledger, started(ledger))
    raised = raise_epoch(ledger, stream, Epoch(2), "ticket")
    assert raised.before is not None
    assert raised.before.writer_released


def test_publishing_again_changes_nothing_and_an_overtaken_epoch_cannot(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    seed = Publication(
        Epoch(2),
        2,
        "/c/generation-000002-a2",
        BatchNumber(1),
        Positions({P0: 0, P1: 0}),
        LandedPositions(Positions({P0: 7, P1: 0}), IDS),
        "moved",
        QUERY,
        (FailureRow(BatchNumber(1), P0, 0, 7, FailureStatus.LOST, "brokers", "retention"),),
    )
    publish(ledger, STREAM, seed)
    publish(ledger, STREAM, seed)
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.stream.landed_batch, view.stream.generation, view.stream.writer) == (1, 2, None)
    assert view.landed == LandedPositions(Positions({P0: 7, P1: 0}), IDS)
    raise_epoch(ledger, stream, Epoch(3), "ticket")
    with pytest.raises(EpochOvertaken):
        publish(ledger, STREAM, replace(seed, generation=3, path="/c/generation-000003-a2"))


def test_a_fingerprint_stands_beside_the_position_it_was_kept_for_and_goes_when_that_moves_without_one(
    ledger: Ledger,
) -> None:
    started(ledger)
    first, second = Fingerprint(4, "first", 1, 0), Fingerprint(8, "second", None, None)

    def landed() -> Mapping[Partition, Fingerprint]:
        view = ledger.view(STREAM)
        assert view is not None
        with ledger.transaction() as transaction:
            assert transaction.read_positions(STREAM) == view.landed
        return view.landed.fingerprints

    def advance(start: int, end: int, fingerprint: Fingerprint | None) -> None:
        kept = {} if fingerprint is None else {P0: fingerprint}
        with ledger.transaction() as transaction:
            assert transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(start, end)}), IDS, kept) == 1

    advance(0, 5, first)
    assert landed() == {P0: first}
    with ledger.transaction() as transaction:
        refused = Ranges({P0: OffsetRange(0, 5)})
        assert transaction.advance_positions(STREAM, refused, IDS, {P0: second}) == 0
    assert landed() == {P0: first}, "what does not move keeps its own"
    advance(5, 9, second)
    assert landed() == {P0: second}
    with ledger.transaction() as transaction:
        transaction.set_positions(STREAM, LandedPositions(Positions({P1: 0}), IDS))
    view = ledger.view(STREAM)
    assert view is not None
    assert view.retired.fingerprints == {P0: second}, "a retired position is compared when it is read again"
    with ledger.transaction() as transaction:
        transaction.set_positions(STREAM, LandedPositions(Positions({P0: 9, P1: 0}), IDS, {P0: second}))
    assert landed() == {P0: second}
    advance(9, 12, None)
    assert landed() == {}


def test_a_generation_that_goes_on_after_the_landed_batch_leaves_its_row_as_it_is(
    ledger: Ledger, stream: NewStream
) -> None:
    """Its numbers are used again, so what was begun after it is superseded; what landed stays as it landed."""
    started(ledger)
    with ledger.transaction() as transaction:
        transaction.write_batch(STREAM, batch_row(1, BatchStatus.IN_PROGRESS))
    before = ledger.view(STREAM)
    assert before is not None
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    after = Publication(
        Epoch(2), 2, "/c/g2", BatchNumber(0), before.landed.positions, before.landed, "", QUERY, goes_on=True
    )
    with pytest.raises(PositionsMoved, match="has landed batch 0 in the ledger, not 1"):
        publish(ledger, STREAM, replace(after, seed_batch=BatchNumber(1)))
    for _ in range(2):
        publish(ledger, STREAM, after)
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.stream.landed_batch, view.stream.generation, view.stream.checkpoint_path) == (0, 2, "/c/g2")
    assert view.batch(BatchNumber(0)) == before.batch(BatchNumber(0))
    assert [row.status for row in view.batches] == [BatchStatus.SEEDED, BatchStatus.SUPERSEDED]


def test_a_publication_made_for_other_positions_is_refused(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    elsewhere = LandedPositions(Positions({P0: 9, P1: 0}), IDS)
    seed = Publication(Epoch(2), 2, "/c/g2", BatchNumber(1), Positions({P0: 3, P1: 0}), elsewhere, "moved", QUERY)
    with pytest.raises(PositionsMoved):
        publish(ledger, STREAM, seed)


def test_partitions_that_a_publication_leaves_out_are_no_longer_read(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    less = LandedPositions(Positions({P0: 0}), IDS)
    publish(
        ledger,
        STREAM,
        Publication(Epoch(2), 2, "/c/g2", BatchNumber(1), Positions({P0: 0, P1: 0}), less, "less", QUERY),
    )
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions == Positions({P0: 0})


def test_positions_advance_from_where_they_stand_and_from_nowhere_else(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    with ledger.transaction() as transaction:
        assert transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(0, 5)}), IDS) == 1
        assert transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(1, 3)}), IDS) == 0
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions == Positions({P0: 5, P1: 0})


def test_a_partition_without_a_row_stands_at_zero(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    fresh, late = Partition("orders", 2), Partition("orders", 3)
    with ledger.transaction() as transaction:
        ranges = Ranges({fresh: OffsetRange(0, 0), late: OffsetRange(4, 9)})
        assert transaction.advance_positions(STREAM, ranges, IDS) == 1
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions == Positions({P0: 0, P1: 0, fresh: 0})


def test_a_block_that_raises_leaves_nothing_behind(ledger: Ledger, stream: NewStream) -> None:
    permit = started(ledger)

    def change_and_fail() -> None:
        with ledger.transaction() as transaction:
            fence(transaction, permit, Lock.UPDATE)
            transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(0, 5)}), IDS)
            transaction.write_batch(STREAM, batch_row(1))
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        change_and_fail()
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions[P0] == 0
    assert view.batch(BatchNumber(1)) is None


def test_a_transaction_sees_its_own_changes(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    with ledger.transaction() as transaction:
        transaction.write_batch(STREAM, batch_row(1))
        transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(0, 5)}), IDS)
        assert transaction.read_batch(STREAM, BatchNumber(1)) == batch_row(1)
        assert transaction.read_positions(STREAM).positions[P0] == 5
        assert [found.batch for found in transaction.read_batches_after(STREAM, BatchNumber(0))] == [0, 1]


def test_what_a_replay_has_landed_is_kept_until_it_is_taken_over_and_goes_with_its_transaction(
    ledger: Ledger, stream: NewStream
) -> None:
    started(ledger)
    with ledger.transaction() as transaction:
        transaction.lock_stream(STREAM, Lock.UPDATE)
        transaction.write_replayed(STREAM, "replay-b", "two")
        transaction.write_replayed(STREAM, "replay-a", "one")
        assert list(transaction.read_replayed(STREAM)) == ["replay-a", "replay-b"]

    def die_while_taking_over() -> None:
        with ledger.transaction() as transaction:
            transaction.lock_stream(STREAM, Lock.UPDATE)
            assert transaction.take_replayed(STREAM) == {"replay-a": "one", "replay-b": "two"}
            assert transaction.read_replayed(STREAM) == {}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        die_while_taking_over()
    with ledger.transaction() as transaction:
        transaction.lock_stream(STREAM, Lock.UPDATE)
        assert transaction.take_replayed(STREAM) == {"replay-a": "one", "replay-b": "two"}
    with ledger.transaction() as transaction:
        assert transaction.take_replayed(STREAM) == {}
        assert transaction.read_replayed("shop/none") == {}


def test_a_batch_row_is_replaced_by_the_next_write(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    for status in (BatchStatus.IN_PROGRESS, BatchStatus.FAILED, BatchStatus.LANDED):
        with ledger.transaction() as transaction:
            transaction.write_batch(STREAM, batch_row(1, status))
    with ledger.transaction() as transaction:
        assert transaction.read_batch(STREAM, BatchNumber(1)) == batch_row(1)


def test_the_view_holds_the_landed_batch_and_later_ones(ledger: Ledger, stream: NewStream) -> None:
    permit = started(ledger)
    for batch in (1, 2):
        with ledger.transaction() as transaction:
            landed = fence(transaction, permit, Lock.UPDATE)
            transaction.write_batch(STREAM, batch_row(batch))
            transaction.update_stream(replace(landed, landed_batch=BatchNumber(batch)))
    with ledger.transaction() as transaction:
        transaction.write_batch(STREAM, batch_row(3, BatchStatus.IN_PROGRESS))
    view = ledger.view(STREAM)
    assert view is not None
    assert [(found.batch, found.status) for found in view.batches] == [
        (2, BatchStatus.LANDED),
        (3, BatchStatus.IN_PROGRESS),
    ]


def test_superseding_spares_what_has_landed(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    with ledger.transaction() as transaction:
        for batch, status in ((1, BatchStatus.LANDED), (2, BatchStatus.FAILED), (3, BatchStatus.IN_PROGRESS)):
            transaction.write_batch(STREAM, batch_row(batch, status))
        transaction.supersede_batches(STREAM, BatchNumber(0))
        found = [transaction.read_batch(STREAM, BatchNumber(batch)) for batch in (1, 2, 3)]
    statuses = [None if batch is None else batch.status for batch in found]
    assert statuses == [BatchStatus.LANDED, BatchStatus.SUPERSEDED, BatchStatus.SUPERSEDED]


def test_what_acts_for_an_older_epoch_changes_nothing(ledger: Ledger, stream: NewStream) -> None:
    older = started(ledger)
    raise_epoch(ledger, stream, Epoch(7), "ticket")
    before = ledger.view(STREAM)
    again = LandedPositions(Positions({P0: 0, P1: 0}), IDS)
    seed = Publication(Epoch(1), 2, "/c/g2", BatchNumber(1), again.positions, again, "late", QUERY)
    acts: list[tuple[type[Exception], Callable[[], object]]] = [
        (EpochOvertaken, lambda: raise_epoch(ledger, stream, Epoch(7), "ticket")),
        (EpochOvertaken, lambda: publish(ledger, STREAM, seed)),
        (EpochOvertaken, lambda: adopt(ledger, STREAM, Epoch(1), Adoption(Owner("c", "u"), stream.database, "t"))),
        (EpochOvertaken, lambda: record_lost(ledger, STREAM, Epoch(1), batch_row(1), "brokers")),
        (Fenced, lambda: claim_epoch(ledger, STREAM, Epoch(1), "claim-1", "ticket")),
        (Fenced, lambda: release(ledger, older)),
    ]
    for refusal, act in acts:
        with pytest.raises(refusal, match="7"):
            act()
    assert ledger.view(STREAM) == before
