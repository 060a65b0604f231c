"""A reset in every kind of ledger: one transaction sets the positions and records what is skipped, kept and read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.ledger.fence import EpochOvertaken, NewStream, raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.publish import PositionsMoved, Publication, publish
from exactlyonce.ledger.room import TooMuchInQuarantine
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, started

LOST, QUARANTINED, SUPERSEDED = FailureStatus.LOST, FailureStatus.QUARANTINED, FailureStatus.SUPERSEDED


def skipped(batch: int, partition: Partition, first: int, until: int, status: FailureStatus) -> FailureRow:
    kept = FailureRow(BatchNumber(batch), partition, first, until, status, "brokers", "skipped by a reset")
    mark = Fingerprint(until - 1, "digest", 0, 0)
    return replace(kept, origin_id="id-1", fingerprint=mark, life="life") if status is QUARANTINED else kept


def reset(
    ledger: Ledger,
    stream: NewStream,
    epoch: int,
    before: tuple[int, int],
    after: tuple[int, int],
    *given_up: FailureRow,
    most: int | None = None,
) -> Publication:
    raise_epoch(ledger, stream, Epoch(epoch), "ticket")
    starts, ends = (Positions({P0: pair[0], P1: pair[1]}) for pair in (before, after))
    made = Publication(
        Epoch(epoch), epoch, f"/c/generation-{epoch:06}-a{epoch}", BatchNumber(epoch * 10), starts,
        LandedPositions(ends, IDS), "jane asked for it", QUERY, given_up, resets=True, most_quarantined=most,
    )  # fmt: skip
    publish(ledger, STREAM, made)
    return made


def found(ledger: Ledger, status: FailureStatus) -> list[tuple[Partition, int, int]]:
    with ledger.transaction() as transaction:
        rows = transaction.read_failures(STREAM, status)
    return [(row.partition, row.from_offset, row.until_offset) for row in rows]


def test_a_reset_records_who_asked_and_what_it_skips_and_may_be_repeated(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    kept, lost = skipped(20, P0, 0, 9, QUARANTINED), skipped(20, P1, 0, 4, LOST)
    publish(ledger, STREAM, reset(ledger, stream, 2, (0, 0), (9, 4), kept, lost))
    view = ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions == Positions({P0: 9, P1: 4})
    seed = view.batch(BatchNumber(20))
    assert seed is not None
    assert (view.stream.landed_batch, seed.note) == (20, "jane asked for it")
    assert (found(ledger, QUARANTINED), found(ledger, LOST)) == ([(P0, 0, 9)], [(P1, 0, 4)])


def test_what_was_skipped_and_is_read_again_is_superseded_whether_it_was_kept_or_not(
    ledger: Ledger, stream: NewStream
) -> None:
    started(ledger)
    reset(ledger, stream, 2, (0, 0), (9, 9), skipped(20, P0, 0, 9, QUARANTINED), skipped(20, P1, 0, 9, LOST))
    reset(ledger, stream, 3, (9, 9), (4, 4))
    assert (found(ledger, QUARANTINED), found(ledger, LOST)) == ([(P0, 0, 4)], [(P1, 0, 4)])
    assert found(ledger, SUPERSEDED) == [(P0, 4, 9), (P1, 4, 9)]
    reset(ledger, stream, 4, (4, 4), (9, 9), skipped(40, P0, 4, 9, LOST), skipped(40, P1, 4, 9, QUARANTINED))
    assert found(ledger, LOST) == [(P1, 0, 4), (P0, 4, 9)], "what was read again may be skipped again"
    reset(ledger, stream, 5, (9, 9), (0, 0))
    assert (found(ledger, QUARANTINED), found(ledger, LOST)) == ([], [])


def test_what_another_verdict_gave_up_stays_lost_where_no_person_has_set_the_positions(
    ledger: Ledger, stream: NewStream
) -> None:
    started(ledger)
    first = reset(ledger, stream, 2, (0, 0), (9, 0), skipped(20, P0, 0, 9, LOST))
    raise_epoch(ledger, stream, Epoch(3), "ticket")
    back = LandedPositions(Positions({P0: 0, P1: 0}), IDS)
    again = replace(
        first, epoch=Epoch(3), generation=3, path="/c/g3", seed_batch=BatchNumber(30), before=first.after.positions,
        after=back, given_up=(), resets=False,
    )  # fmt: skip
    publish(ledger, STREAM, again)
    assert found(ledger, LOST) == [(P0, 0, 9)]


def test_what_is_gone_with_its_topic_stays_lost_where_a_person_sets_the_new_one_back(
    ledger: Ledger, stream: NewStream
) -> None:
    """The offsets of a topic that was recreated are those of other records."""
    started(ledger)
    gone = replace(skipped(20, P0, 0, 5, LOST), origin_gone=True)
    reset(ledger, stream, 2, (0, 0), (9, 0), gone)
    reset(ledger, stream, 3, (9, 0), (0, 0))
    assert found(ledger, LOST) == [(P0, 0, 5)]
    assert found(ledger, SUPERSEDED) == []


def test_what_a_replay_has_taken_counts_against_what_may_be_in_quarantine(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    taken = replace(skipped(20, P0, 0, 5, QUARANTINED), status=FailureStatus.REPLAYING, replay="token")
    reset(ledger, stream, 2, (0, 0), (5, 0), taken)
    with pytest.raises(TooMuchInQuarantine, match="8 records would be in quarantine"):
        reset(ledger, stream, 3, (5, 0), (5, 3), skipped(30, P1, 0, 3, QUARANTINED), most=7)


def test_more_than_may_be_in_quarantine_is_not_kept_and_nothing_is_changed(ledger: Ledger, stream: NewStream) -> None:
    started(ledger)
    reset(ledger, stream, 2, (0, 0), (6, 0), skipped(20, P0, 0, 6, QUARANTINED), most=9)
    with pytest.raises(TooMuchInQuarantine, match=r"10 records would be in quarantine, more than .* \(9\)"):
        reset(ledger, stream, 3, (6, 0), (6, 4), skipped(30, P1, 0, 4, QUARANTINED), most=9)
    view = ledger.view(STREAM)
    assert view is not None
    assert (view.landed.positions, view.stream.landed_batch) == (Positions({P0: 6, P1: 0}), 20)
    assert found(ledger, QUARANTINED) == [(P0, 0, 6)]


def test_a_reset_of_positions_that_have_moved_or_under_an_older_epoch_changes_nothing(
    ledger: Ledger, stream: NewStream
) -> None:
    started(ledger)
    with pytest.raises(PositionsMoved):
        reset(ledger, stream, 2, (3, 0), (9, 0), skipped(20, P0, 3, 9, LOST))
    late = Publication(
        Epoch(2), 2, "/c/g2", BatchNumber(20), Positions({P0: 0, P1: 0}), LandedPositions(Positions({P0: 9, P1: 0}), IDS),
        "late", QUERY, (skipped(20, P0, 0, 9, LOST),), resets=True,
    )  # fmt: skip
    raise_epoch(ledger, stream, Epoch(3), "ticket")
    with pytest.raises(EpochOvertaken):
        publish(ledger, STREAM, late)
    assert found(ledger, LOST) == []
