"""What a replay has decided in a sink of two phases, over all ledgers (test_ledger_behaviour.py)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.fence import NewStream, fence, raise_epoch
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.publish import PositionsMoved, Publication, publish
from exactlyonce.ledger.replay import RangeNotHeld, ReplayClaim, claim_ranges, decide_pieces, land_pieces, put_back
from exactlyonce.ledger.replay_decisions import (
    AnotherDecided,
    ReplayDecision,
    Standing,
    answer_decision,
    read_decisions,
    read_standing,
    settle_decision,
    take_visible,
)
from exactlyonce.ledger.replay_rules import Piece, RangeKey, ranges_of
from exactlyonce.ledger.restored import LEAP, FoundPart, PartUnfit, settle_restored
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Positions, Ranges
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, started

QUARANTINED, REPLAYING, REPLAYED = FailureStatus.QUARANTINED, FailureStatus.REPLAYING, FailureStatus.REPLAYED
MINE, OTHER = ReplayClaim(STREAM, "mine"), ReplayClaim(STREAM, "other")


def claimed(ledger: Ledger) -> tuple[FailureRow, ...]:
    """Two ranges of a stream that stands behind them, held by a replay."""
    permit = started(ledger)
    with ledger.transaction() as transaction:
        life = fence(transaction, permit, Lock.UPDATE).life
        transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(0, 20), P1: OffsetRange(0, 20)}), IDS)
        rows = tuple(
            FailureRow(BatchNumber(1), key, 10, 20, QUARANTINED, "b", f"{key} fails", origin_id="id-1", life=life)
            for key in (P0, P1)
        )
        transaction.write_failures(STREAM, rows)
    return claim_ranges(ledger, MINE, [RangeKey.of(row) for row in rows]).rows


def decided(ledger: Ledger, label: str, *pieces: Piece, number: int = 1, seen: Collection[str] = ()) -> ReplayDecision:
    load = Committable(label, "7", 4, ranges_of(pieces))
    decision = ReplayDecision("mine", DecidedBatch(BatchNumber(1), (load,), sink="there"), number=number)
    decide_pieces(ledger, MINE, pieces, decision, seen)
    return decision


def spans(ledger: Ledger, status: FailureStatus) -> list[tuple[str, int, int, str]]:
    with ledger.transaction() as transaction:
        found = transaction.read_failures(STREAM, status)
    return [(str(row.partition), row.from_offset, row.until_offset, row.replay) for row in found]


def test_a_decision_marks_its_ranges_and_is_settled_once_by_whoever_comes_first(ledger: Ledger) -> None:
    first, second = claimed(ledger)
    one = decided(ledger, "a", Piece(first, 14))
    for number, seen in ((1, [one.name]), (3, [one.name]), (2, [])):
        with pytest.raises(AnotherDecided, match=f"so load {number} was not decided"):
            decided(ledger, "b", Piece(second, 20), number=number, seen=seen)
    two = decided(ledger, "b", Piece(second, 20), number=2, seen=[one.name])
    assert read_decisions(ledger, STREAM) == (one, two)
    assert read_standing(ledger, STREAM) == Standing(2, (one, two))
    assert spans(ledger, REPLAYING) == [
        ("orders-0", 10, 14, "mine decided"),
        ("orders-0", 14, 20, "mine"),
        ("orders-1", 10, 20, "mine decided"),
    ]
    settle_decision(ledger, STREAM, one, is_committed=True)
    settle_decision(ledger, STREAM, one, is_committed=False)
    assert read_decisions(ledger, STREAM) == (two,), "the other one stays"
    settle_decision(ledger, STREAM, two, is_committed=False)
    assert spans(ledger, REPLAYED) == [("orders-0", 10, 14, "mine")]
    assert spans(ledger, QUARANTINED) == [("orders-1", 10, 20, "")]
    assert spans(ledger, REPLAYING) == [("orders-0", 14, 20, "mine")]
    assert read_standing(ledger, STREAM) == Standing(2, ()), "the count stays"


def test_what_a_person_found_in_the_sink_has_landed_and_the_next_number_is_one_that_no_load_had(
    ledger: Ledger,
) -> None:
    first, _ = claimed(ledger)
    parts = [FoundPart(1, "orders-0", 12, 14), FoundPart(1, "orders-0", 16, None), FoundPart(1, "orders-1", 10, 13)]
    with pytest.raises(PartUnfit, match="holds 1/orders-1/10-21"):
        settle_restored(ledger, STREAM, [*parts, FoundPart(1, "orders-1", 10, 21)])
    assert spans(ledger, REPLAYED) == []
    assert settle_restored(ledger, STREAM, parts) == LEAP
    assert [span[:3] for span in spans(ledger, REPLAYED)] == [
        ("orders-0", 12, 14),
        ("orders-0", 16, 20),
        ("orders-1", 10, 13),
    ]
    assert [span[:3] for span in spans(ledger, QUARANTINED)] == [
        ("orders-0", 10, 12),
        ("orders-0", 14, 16),
        ("orders-1", 13, 20),
    ]
    with pytest.raises(RangeNotHeld):
        put_back(ledger, MINE, Piece(first, 20))
    assert read_standing(ledger, STREAM) == Standing(LEAP, ())
    assert settle_restored(ledger, STREAM, ()) == 2 * LEAP
    with ledger.transaction() as transaction:
        transaction.lock_stream(STREAM, Lock.UPDATE)
        assert take_visible(transaction, STREAM) == {}
    assert read_standing(ledger, STREAM).count == 2 * LEAP, "it is nothing that a batch takes over"


def test_nobody_takes_what_is_decided_and_a_replay_that_has_lost_its_ranges_decides_nothing(ledger: Ledger) -> None:
    first, second = claimed(ledger)
    decided(ledger, "a", Piece(first, 20))
    with pytest.raises(RangeNotHeld):
        put_back(ledger, MINE, Piece(first, 20))
    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, MINE, [Piece(first, 20)], _none)
    taken = claim_ranges(ledger, OTHER, [RangeKey.of(first), RangeKey.of(second)])
    assert [RangeKey.of(row) for row in taken.rows] == [RangeKey.of(second)]
    assert taken.refused[0].startswith("The range 1/orders-0/10 is decided by a replay")
    with pytest.raises(RangeNotHeld):
        decided(ledger, "b", Piece(second, 20), number=2)
    assert [one.load.label for one in read_decisions(ledger, STREAM)] == ["a"]


def test_what_the_stream_reads_again_stays_superseded_though_its_load_is_aborted(ledger: Ledger) -> None:
    first, second = claimed(ledger)
    decision = decided(ledger, "a", Piece(first, 20), Piece(second, 20))
    with ledger.transaction() as transaction:
        transaction.lock_stream(STREAM, Lock.UPDATE)
        (row,) = [it for it in transaction.read_failures(STREAM, REPLAYING) if it.partition == P0]
        transaction.write_failures(STREAM, (replace(row, status=FailureStatus.SUPERSEDED),))
    settle_decision(ledger, STREAM, decision, is_committed=False)
    assert spans(ledger, QUARANTINED) == [("orders-1", 10, 20, "")]
    assert [span[:3] for span in spans(ledger, FailureStatus.SUPERSEDED)] == [("orders-0", 10, 20)]


def test_a_reset_into_a_range_that_was_decided_meanwhile_changes_nothing_and_one_behind_it_does(
    ledger: Ledger, stream: NewStream
) -> None:
    first, _ = claimed(ledger)
    decided(ledger, "a", Piece(first, 14))
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    here = Positions({P0: 20, P1: 20})

    def reset_to(position: int) -> None:
        after = LandedPositions(Positions({P0: position, P1: 20}), IDS)
        publish(
            ledger,
            STREAM,
            Publication(Epoch(2), 2, "/c/g2", BatchNumber(20), here, after, "jane asked for it", QUERY, resets=True),
        )

    with pytest.raises(PositionsMoved, match="1/orders-0/10 is decided by a replay"):
        reset_to(13)
    assert spans(ledger, FailureStatus.SUPERSEDED) == []
    reset_to(14)
    assert [span[:3] for span in spans(ledger, FailureStatus.SUPERSEDED)] == [("orders-0", 14, 20)]


def test_a_decision_that_got_an_answer_meanwhile_is_settled_by_who_has_seen_it(ledger: Ledger) -> None:
    first, _ = claimed(ledger)
    decision = decided(ledger, "a", Piece(first, 20))
    answer_decision(ledger, STREAM, "a", Answer.COMMITTED)
    settle_decision(ledger, STREAM, decision, is_committed=False)
    (now,) = read_decisions(ledger, STREAM)
    assert now.load.answer is Answer.COMMITTED
    settle_decision(ledger, STREAM, now, is_committed=True)
    assert spans(ledger, REPLAYED) == [("orders-0", 10, 20, "mine")]


def _none(_: object) -> int:
    raise AssertionError("it has written what another decision names")
