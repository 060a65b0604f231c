"""Positions in a shard: one integer, in the order in which records are read, and the text that people read."""

from __future__ import annotations

from itertools import pairwise

import pytest

from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtShardEnd,
    AtTrimHorizon,
    InsideRecord,
    MalformedPosition,
    UserRecord,
    from_text,
    position_after_record,
    position_of_record,
    read_from,
    to_text,
)

SEQUENCE_NUMBER = 49590338271490256608559692538361571095921575989136588898
IN_ORDER = [
    TRIM_HORIZON,
    position_after_record(9),
    UserRecord(100, 1).position,
    UserRecord(100, 2).position,
    position_after_record(100),
    UserRecord(SEQUENCE_NUMBER, 1).position,
    position_after_record(SEQUENCE_NUMBER),
    position_after_record(10 * SEQUENCE_NUMBER),
    SHARD_END,
]


def test_positions_are_ordered_as_records_are_read_also_where_texts_would_be_ordered_otherwise() -> None:
    assert all(before < after for before, after in pairwise(IN_ORDER))
    assert sorted(IN_ORDER, key=to_text) != IN_ORDER, "a maximum by text would be wrong"


@pytest.mark.parametrize("position", IN_ORDER)
def test_the_text_of_a_position_gives_it_back(position: int) -> None:
    assert from_text(to_text(position)) == position


def test_a_read_starts_where_the_last_one_ended() -> None:
    assert [read_from(position) for position in IN_ORDER[:5]] == [
        AtTrimHorizon(),
        AfterRecord(9),
        InsideRecord(100, 1),
        InsideRecord(100, 2),
        AfterRecord(100),
    ]
    assert read_from(SHARD_END) == AtShardEnd()


def test_a_record_is_where_its_first_user_record_is_and_no_number_beyond_those_of_kinesis_has_a_position() -> None:
    last = (1 << 256) - 1
    assert [position_of_record(number) for number in (0, 100, last)] == [
        UserRecord(number).position for number in (0, 100, last)
    ]
    assert position_after_record(last - 1) == position_of_record(last)
    for place, number in (*((position_of_record, each) for each in (-1, last + 1)), (position_after_record, last)):
        with pytest.raises(MalformedPosition, match="is not a sequence number"):
            place(number)


def test_a_position_covers_exactly_the_user_records_before_it() -> None:
    read = {UserRecord(100, sub) for sub in range(5) if UserRecord(100, sub).position < UserRecord(100, 3).position}
    assert read == {UserRecord(100, 0), UserRecord(100, 1), UserRecord(100, 2)}
    assert UserRecord(100, 4).position < position_after_record(100) <= UserRecord(101).position


@pytest.mark.parametrize(
    "text", ["", "after", "after x", "after -1", "5", "5:0", "5:", ":5", "5:-1", "\uff15:1", "LATEST", "after 1:2",
     "after 01", "01:1", "1:01", "00:1", "after 00", "after  1", " after 1", "after 1 ", "after +1", "after 1_0",
     "SHARD_END\n"],
)  # fmt: skip
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(MalformedPosition):
        from_text(text)


@pytest.mark.parametrize("position", [-1, SHARD_END + 1])
def test_an_integer_that_is_no_position_is_refused(position: int) -> None:
    with pytest.raises(MalformedPosition):
        read_from(position)


@pytest.mark.parametrize(("sequence_number", "sub_sequence_number"), [(-1, 0), (1 << 256, 0), (0, -1), (0, 1 << 32)])
def test_numbers_that_kinesis_never_gives_are_refused(sequence_number: int, sub_sequence_number: int) -> None:
    with pytest.raises(MalformedPosition):
        UserRecord(sequence_number, sub_sequence_number)
