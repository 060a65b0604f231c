"""What the process of an attempt finds by itself: ranges are taken up once, letters are those that fit, in any attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from exactlyonce.api.recovery import Recovery
from exactlyonce.api.resource import parse_stream
from exactlyonce.launch.asked_letters import LettersUnknown
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.launch.replay_document import ReplayDocument
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.given_ranges import RangesOverlap, in_rounds
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterStatus
from exactlyonce.ledger.replay import ReplayClaim, claim_ranges, land_pieces
from exactlyonce.ledger.replay_rules import Piece
from exactlyonce.ledger.room import TooMuchInQuarantine
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Positions, Ranges
from exactlyonce_spark import replay_asked
from exactlyonce_spark.replay_asked import letters_to_land, ranges_to_land
from exactlyonce_spark.replay_outcome import ReplayOutcome
from tests.ledgers import P0, P1, STREAM, started
from tests.resource_documents import document
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.unit.test_replay_asked import letter

SPEC = parse_stream(document({}), "the test").spec
GIVEN = tuple(AskedRange.given(P0, OffsetRange(*it)) for it in ((100, 120), (150, 160)))
ORDERS = ReplayDocument(STREAM, {}, "local[1]", (), take_up=GIVEN, by="uid/")


def skipped() -> MemoryLedger:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    view = ledger.view(STREAM)
    assert view is not None
    row = FailureRow(
        BatchNumber(7), P0, 100, 200, FailureStatus.LOST, "memory", "skipped", origin_id="id-1", life=view.stream.life
    )
    with ledger.transaction() as transaction:
        transaction.set_positions(STREAM, LandedPositions(Positions({P0: 500, P1: 500}), {"orders": "id-1"}))
        transaction.write_failures(STREAM, (row,))
    return ledger


def found(ledger: MemoryLedger, orders: ReplayDocument = ORDERS) -> tuple[list[str], list[str]]:
    outcome = ReplayOutcome()
    return [str(key) for key in ranges_to_land(orders, SPEC, cast("OpenLedger", ledger), outcome)], outcome.told


class Died(BaseException):
    pass


def test_a_process_that_dies_between_two_ranges_is_followed_by_one_that_takes_up_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = skipped()

    def dies(point: str) -> None:
        raise Died(point)

    monkeypatch.setattr(replay_asked, "reached", dies)
    with pytest.raises(Died, match=r"replay\.taken-up"):
        found(ledger)
    monkeypatch.undo()
    assert found(ledger) == (["7/orders-0/100", "7/orders-0/150"], [])


def test_what_an_earlier_attempt_has_landed_is_done_and_what_it_has_claimed_is_taken_again() -> None:
    ledger = skipped()
    outcome = ReplayOutcome()
    keys = ranges_to_land(ORDERS, SPEC, cast("OpenLedger", ledger), outcome)
    claim = ReplayClaim(STREAM, "uid/1")
    (first, _) = claim_ranges(ledger, claim, keys).rows
    land_pieces(ledger, claim, [Piece(first, 107)], lambda _: 7)
    assert found(ledger) == (["7/orders-0/107", "7/orders-0/150"], [])
    others, told = found(ledger, replace(ORDERS, by="uid-2/"))
    assert others == ["7/orders-0/107", "7/orders-0/150"]
    assert told == ["orders-0 [100, 107) has landed, in whole or in part: a replay has landed 7/orders-0/100."]
    assert found(ledger, replace(ORDERS, by="uid-2/", tells_refused=False))[1] == []


def test_ranges_that_overlap_are_refused_before_anything_is_taken_up() -> None:
    spans = [(P0, OffsetRange(0, 10)), (P1, OffsetRange(0, 10)), (P0, OffsetRange(20, 30))]
    assert in_rounds(spans) == (
        Ranges({P0: OffsetRange(0, 10), P1: OffsetRange(0, 10)}),
        Ranges({P0: OffsetRange(20, 30)}),
    )
    with pytest.raises(RangesOverlap, match=r"orders-0 \[20, 30\) and orders-0 \[29, 40\) overlap"):
        in_rounds([*spans, (P0, OffsetRange(29, 40))])


def test_ranges_that_are_too_much_together_leave_none_of_them_in_quarantine() -> None:
    ledger = skipped()
    spec = SPEC.model_copy(
        update={"recovery": Recovery.model_validate({"onPoisonBatch": "Quarantine", "maxQuarantined": 29})}
    )
    with pytest.raises(TooMuchInQuarantine, match=r": 30 records .* Nothing was changed"):
        ranges_to_land(ORDERS, spec, cast("OpenLedger", ledger), ReplayOutcome())
    with ledger.transaction() as transaction:
        assert transaction.read_failures(STREAM, FailureStatus.QUARANTINED) == ()
    wider = spec.model_copy(update={"recovery": spec.recovery.model_copy(update={"max_quarantined": 30})})
    keys = ranges_to_land(ORDERS, wider, cast("OpenLedger", ledger), ReplayOutcome())
    assert [str(key) for key in keys] == ["7/orders-0/100", "7/orders-0/150"]


class Letters:
    """A ledger with some letters, a page of which holds two."""

    def __init__(self, *kept: RecordedLetter) -> None:
        self.kept = sorted(kept, key=lambda it: it.row.key)

    def kept_letters(self, stream_id: str, place: Any, after: Any, most: int, most_bytes: Any) -> Sequence[Any]:
        behind = [it for it in self.kept if after is None or it.row.key > after]
        return [it for it in behind if place is None or it.row.position == place.position][:2]


def as_it_is(it: RecordedLetter, status: LetterStatus, by: str = "") -> RecordedLetter:
    return replace(it, status=status, row=replace(it.row, status=status, replay=by))


def chosen(**find: Any) -> tuple[list[int], int]:
    ledger = Letters(
        as_it_is(letter(1), LetterStatus.REPLAYING, "another"),
        letter(2, batch=9),
        letter(3, "too long"),
        as_it_is(letter(4), LetterStatus.REPLAYED, "uid/1"),
        as_it_is(letter(5), LetterStatus.SUPERSEDED),
    )
    outcome = ReplayOutcome()
    orders = replace(ORDERS, find=find)
    keys = letters_to_land(orders, cast("OpenLedger", ledger), outcome)
    return [key[3] for key in keys], outcome.asked


def test_letters_that_fit_are_found_the_earliest_batches_first_and_those_that_are_named_whatever_they_are() -> None:
    assert chosen() == ([1, 3, 2], 3)
    assert chosen(errorMatching="LONG") == ([3], 1)
    assert chosen(ids=["orders-0/5", "orders-0/2"]) == ([5, 2], 2)
    assert chosen(ids=["orders-0/4"]) == ([], 0), "this very replay has landed it"
    with pytest.raises(LettersUnknown, match="has no dead letter orders-0/77"):
        chosen(ids=["orders-0/77"])
