"""Where a stream of Kinesis starts, and which of its shards are known to be gone."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.kinesis.bounds import expired
from exactlyonce.connectors.kinesis.given_positions import given
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, from_text, position_after_record
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.connectors.kinesis.start import _not_these_positions, in_order
from exactlyonce.errors import StartInvalid


def _name(number: int) -> str:
    return f"shardId-{number:012}"


def _shard(number: int, *parents: int, first: int = 1000, last: int | None = None) -> Shard:
    return Shard(_name(number), tuple(map(_name, parents)), 0, 0, first, last)


SPLIT_AND_MERGED = (
    _shard(0, last=1999),
    _shard(1, last=1999),
    _shard(2, 0, first=2000, last=2999),
    _shard(3, 0, first=2000, last=2999),
    _shard(4, 2, 3, first=3000),
    _shard(5, 1, first=2000),
)
"""0 was split into 2 and 3, which were merged into 4; 1 has one child, 5."""


def test_only_shards_without_a_listed_parent_start_at_the_trim_horizon_and_the_others_follow() -> None:
    assert in_order(SPLIT_AND_MERGED, lambda shard: TRIM_HORIZON) == {_name(0): 0, _name(1): 0}


def test_a_shard_whose_parents_have_expired_starts_at_the_trim_horizon() -> None:
    listed = SPLIT_AND_MERGED[2:]
    assert in_order(listed, lambda shard: TRIM_HORIZON) == {_name(2): 0, _name(3): 0, _name(5): 0}


def test_a_child_is_named_only_where_all_of_its_parents_are_at_their_ends() -> None:
    behind = position_after_record(2500)
    starts = {_name(0): SHARD_END, _name(1): SHARD_END, _name(2): SHARD_END, _name(3): behind, _name(5): behind}
    assert in_order(SPLIT_AND_MERGED, lambda shard: starts[shard.id]) == starts, "shard 4 waits for shard 3"
    ended = {**starts, _name(3): SHARD_END, _name(4): TRIM_HORIZON}
    assert in_order(SPLIT_AND_MERGED, lambda shard: ended[shard.id]) == ended


def test_given_positions_take_ancestors_as_read_and_leave_descendants_to_follow() -> None:
    texts = {_name(2): "after 2100", _name(3): "SHARD_END", _name(1): "after 1500"}
    assert given(SPLIT_AND_MERGED, {shard: from_text(text) for shard, text in texts.items()}, _not_these_positions) == {
        _name(0): SHARD_END,
        _name(1): position_after_record(1500),
        _name(2): position_after_record(2100),
        _name(3): SHARD_END,
    }


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({_name(9): "TRIM_HORIZON"}, f"names {_name(9)}, which the stream does not list"),
        ({_name(0): "TRIM_HORIZON"}, f"lacks {_name(1)}, {_name(5)}"),
        ({_name(2): "TRIM_HORIZON", _name(1): "TRIM_HORIZON"}, f"lacks {_name(3)}, {_name(4)}"),
        ({_name(0): "after 1500", _name(1): "SHARD_END", _name(2): "TRIM_HORIZON"}, f"names {_name(2)} and its parent"),
        ({_name(0): "after 2500", _name(1): "TRIM_HORIZON"}, "it is one of another shard or stream"),
        ({_name(0): "after 5", _name(1): "TRIM_HORIZON"}, "it is one of another shard or stream"),
        ({_name(4): "SHARD_END", _name(5): "TRIM_HORIZON"}, f"has {_name(4)} at SHARD_END, and that shard is open"),
    ],
)
def test_positions_that_would_lose_records_or_their_order_are_refused_by_shard(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(StartInvalid, match=sentence):
        given(SPLIT_AND_MERGED, {shard: from_text(text) for shard, text in texts.items()}, _not_these_positions)


def test_a_shard_that_was_read_and_is_listed_no_more_is_gone() -> None:
    known = frozenset(map(_name, range(6)))
    assert expired(SPLIT_AND_MERGED[1:], known) == {_name(0)}


def test_a_shard_that_nobody_read_is_gone_when_its_unread_child_is_all_that_is_listed() -> None:
    """The stream stood still while 0 was split and both halves, of which it never heard, were merged and expired."""
    known = frozenset({_name(0), _name(1)})
    assert expired((SPLIT_AND_MERGED[4], SPLIT_AND_MERGED[5]), known) == {_name(number) for number in range(4)}


def test_ancestors_of_shards_that_are_read_are_not_missed() -> None:
    known = frozenset({_name(4), _name(5)})
    assert expired((SPLIT_AND_MERGED[4], SPLIT_AND_MERGED[5]), known) == frozenset()


def test_a_stream_that_has_not_started_has_lost_nothing() -> None:
    assert expired(SPLIT_AND_MERGED[4:], frozenset()) == frozenset()
