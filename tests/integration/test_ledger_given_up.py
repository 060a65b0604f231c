"""Ranges that a person gives up and takes back, over all ledgers (test_ledger_behaviour.py)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.fence import NewStream, fence, raise_epoch
from exactlyonce.ledger.giving_up import GivenUp, NothingToGiveUp, give_up_ranges, take_back_ranges
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.replay import RangeNotHeld, ReplayClaim, claim_ranges, land_pieces, put_back
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Positions, Ranges
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, started

QUARANTINED, GIVEN_UP = FailureStatus.QUARANTINED, FailureStatus.GIVEN_UP
ALICE = GivenUp("alice", datetime(2026, 1, 31, 12, tzinfo=UTC), "no sink takes it")
MINE = ReplayClaim(STREAM, "mine")


def in_quarantine(ledger: Ledger) -> tuple[FailureRow, ...]:
    """Two ranges of a stream that stands behind them."""
    permit = started(ledger)
    with ledger.transaction() as transaction:
        life = fence(transaction, permit, Lock.UPDATE).life
        transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(0, 20), P1: OffsetRange(0, 20)}), IDS)
        rows = tuple(
            FailureRow(BatchNumber(1), key, 10, 20, QUARANTINED, "b", f"{key} fails", origin_id="id-1", life=life)
            for key in (P0, P1)
        )
        transaction.write_failures(STREAM, rows)
    return rows


def rows_with(ledger: Ledger, status: FailureStatus) -> tuple[FailureRow, ...]:
    with ledger.transaction() as transaction:
        return transaction.read_failures(STREAM, status)


def landing_nothing(_: LedgerTransaction) -> int:
    raise AssertionError("a replay has written what was given up")


def test_a_range_that_is_given_up_says_who_when_and_why_and_is_offered_to_no_replay(ledger: Ledger) -> None:
    first, second = in_quarantine(ledger)
    changed = give_up_ranges(ledger, STREAM, [first], ALICE)
    words = "Given up by alice at 2026-01-31T12:00:00+00:00: no sink takes it. It had failed: orders-0 fails"
    assert changed.rows == (replace(first, status=GIVEN_UP, error=words),)
    assert not changed.refused
    assert rows_with(ledger, GIVEN_UP) == changed.rows
    assert rows_with(ledger, QUARANTINED) == (second,)
    assert give_up_ranges(ledger, STREAM, [first], ALICE) == changed, "it is safe to repeat"
    taken = claim_ranges(ledger, MINE, [RangeKey.of(first), RangeKey.of(second)])
    assert [RangeKey.of(row) for row in taken.rows] == [RangeKey.of(second)]
    assert taken.refused == ("The range 1/orders-0/10 is not in quarantine.",)
    with pytest.raises(LedgerRefused), ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (replace(second, partition=P0, batch=BatchNumber(2)),))


def test_a_replay_that_had_taken_a_range_writes_nothing_once_it_is_given_up(ledger: Ledger) -> None:
    first, second = in_quarantine(ledger)
    held, other = claim_ranges(ledger, MINE, [RangeKey.of(first), RangeKey.of(second)]).rows
    changed = give_up_ranges(ledger, STREAM, [held], ALICE)
    assert [(row.status, row.replay) for row in changed.rows] == [(GIVEN_UP, "")]
    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, MINE, [Piece(held, 20), Piece(other, 20)], landing_nothing)
    with pytest.raises(RangeNotHeld):
        put_back(ledger, MINE, Piece(held, 20), "it fails again")
    assert rows_with(ledger, GIVEN_UP) == changed.rows
    assert land_pieces(ledger, MINE, [Piece(other, 20)], lambda _: 10) == 10, "what stands beside it lands"


def test_only_what_is_in_quarantine_as_it_was_shown_is_given_up(ledger: Ledger) -> None:
    first, second = in_quarantine(ledger)
    held, other = claim_ranges(ledger, MINE, [RangeKey.of(first), RangeKey.of(second)]).rows
    land_pieces(ledger, MINE, [Piece(held, 15), Piece(other, 20)], lambda _: 15)
    changed = give_up_ranges(ledger, STREAM, [first, second, replace(first, from_offset=15)], ALICE)
    assert [(row.partition, row.from_offset, row.until_offset) for row in changed.rows] == [(P0, 15, 20)]
    assert [sentence.split()[2] for sentence in changed.refused] == ["1/orders-0/10", "1/orders-1/10"]
    assert len(rows_with(ledger, FailureStatus.REPLAYED)) == 2
    with pytest.raises(NothingToGiveUp):
        give_up_ranges(ledger, "another/stream", [first], ALICE)


def test_what_was_given_up_is_taken_back_as_it_was_and_a_replay_lands_it(ledger: Ledger) -> None:
    first, _ = in_quarantine(ledger)
    row = give_up_ranges(ledger, STREAM, [first], ALICE).rows[0]
    assert take_back_ranges(ledger, STREAM, [row]).rows == (first,)
    assert take_back_ranges(ledger, STREAM, [row]).rows == (first,), "it is safe to repeat"
    held = claim_ranges(ledger, MINE, [RangeKey.of(first)]).rows
    assert land_pieces(ledger, MINE, [Piece(held[0], 20)], lambda _: 10) == 10
    assert take_back_ranges(ledger, STREAM, [row]).refused


def test_what_was_given_up_and_is_read_again_by_the_stream_is_superseded_and_never_taken_back(
    ledger: Ledger, stream: NewStream
) -> None:
    first, second = in_quarantine(ledger)
    rows = give_up_ranges(ledger, STREAM, [first, second], ALICE).rows
    raise_epoch(ledger, stream, Epoch(2), "ticket")
    stood, after = Positions({P0: 20, P1: 20}), LandedPositions(Positions({P0: 14, P1: 20}), IDS)
    publish(
        ledger, STREAM, Publication(Epoch(2), 2, "/c/generation-000002-a2", BatchNumber(9), stood, after, "back", QUERY)
    )
    assert [(row.from_offset, row.until_offset) for row in rows_with(ledger, FailureStatus.SUPERSEDED)] == [(14, 20)]
    assert [(row.partition, row.from_offset, row.until_offset) for row in rows_with(ledger, GIVEN_UP)] == [
        (P0, 10, 14),
        (P1, 10, 20),
    ]
    back = take_back_ranges(ledger, STREAM, rows)
    assert [row.partition for row in back.rows] == [P1]
    assert [sentence.split()[2] for sentence in back.refused] == ["1/orders-0/10"]
