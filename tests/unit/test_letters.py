"""What becomes of dead letters where a stream is set back, and which of them a replay may land."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.ledger.letters import (
    LetterRow,
    LetterStatus,
    SetBack,
    is_held_as,
    next_letters,
    set_backs_of,
    status_of,
    taken_by,
    why_letter_stays,
)
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID
from exactlyonce.positions.ranges import BatchNumber, Partition, Positions
from tests.ledgers import P0, P1

LIFE = "life-1"
LETTER = LetterRow(("orders", "id-1", 0, 40), P0, 40, "id-1", BatchNumber(7), "no number", LIFE)
BEFORE_IT = SetBack(P0, 40, "id-1", BatchNumber(9))


@pytest.mark.parametrize(
    ("set_back", "status"),
    [
        (BEFORE_IT, LetterStatus.SUPERSEDED),
        (replace(BEFORE_IT, position=0), LetterStatus.SUPERSEDED),
        (replace(BEFORE_IT, position=41), LetterStatus.KEPT),
        (replace(BEFORE_IT, partition=P1), LetterStatus.KEPT),
        (replace(BEFORE_IT, batch=BatchNumber(6)), LetterStatus.KEPT),
        (replace(BEFORE_IT, batch=BatchNumber(7)), LetterStatus.SUPERSEDED),
        (replace(BEFORE_IT, origin_id="id-2"), LetterStatus.KEPT),
        (replace(BEFORE_IT, origin_id=ZERO_ORIGIN_ID), LetterStatus.SUPERSEDED),
    ],
    ids=str,
)
def test_a_letter_is_superseded_by_a_later_setting_back_of_its_own_log_to_before_it(
    set_back: SetBack, status: LetterStatus
) -> None:
    assert status_of(LETTER, [set_back]) is status


def test_what_was_replayed_before_the_stream_was_set_back_stays_replayed() -> None:
    assert status_of(replace(LETTER, status=LetterStatus.REPLAYED), [BEFORE_IT]) is LetterStatus.REPLAYED


def test_only_partitions_that_go_back_or_are_of_another_log_or_were_left_are_set_back() -> None:
    left, forward, back, same = (Partition("orders", number) for number in range(4))
    recreated = Partition("returns", 0)
    before = LandedPositions(
        Positions({forward: 5, back: 5, same: 5, recreated: 5}), {"orders": "id-1", "returns": "id-a"}
    )
    after = LandedPositions(
        Positions({left: 5, forward: 9, back: 2, same: 5, recreated: 5}), {"orders": "id-1", "returns": "id-b"}
    )
    assert set_backs_of(before, after, BatchNumber(8)) == (
        SetBack(left, 5, "id-1", BatchNumber(8)),
        SetBack(back, 2, "id-1", BatchNumber(8)),
        SetBack(recreated, 5, "id-b", BatchNumber(8)),
    )


@pytest.mark.parametrize(
    ("letter", "life", "words"),
    [
        (LETTER, LIFE, None),
        (replace(LETTER, status=LetterStatus.REPLAYING, replay="another"), LIFE, None),
        (replace(LETTER, status=LetterStatus.REPLAYED), LIFE, "orders-0/40 is Replayed"),
        (replace(LETTER, status=LetterStatus.SUPERSEDED), LIFE, "the stream was set back before it"),
        (LETTER, "life-2", "before the stream started over"),
    ],
)
def test_a_letter_that_may_have_landed_is_refused_by_a_sentence(
    letter: LetterRow, life: str, words: str | None
) -> None:
    found = why_letter_stays(letter, letter.status, life)
    assert found is None if words is None else words in (found or "")


def test_a_letter_is_held_only_as_it_was_claimed() -> None:
    claimed = taken_by(LETTER, "mine")
    assert is_held_as(claimed, claimed, [])
    for found in (
        None,
        LETTER,
        taken_by(LETTER, "another"),
        replace(claimed, batch=BatchNumber(12)),
        replace(claimed, life="life-2"),
        replace(claimed, status=LetterStatus.REPLAYED),
    ):
        assert not is_held_as(found, claimed, []), found
    assert not is_held_as(claimed, claimed, [BEFORE_IT]), "the stream reads it again since"


def test_two_letters_of_one_place_are_not_landed_together() -> None:
    former = replace(LETTER, key=("orders", "id-0", 0, 40), origin_id="id-0")
    next_one = replace(LETTER, key=("orders", "id-1", 0, 41), position=41)
    assert list(next_letters([former, LETTER, next_one], 10)) == [former]
    assert list(next_letters([LETTER, next_one], 10)) == [LETTER, next_one]
    assert list(next_letters([LETTER, next_one], 1)) == [LETTER]
