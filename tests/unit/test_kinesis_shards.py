"""The shards of a stream: which key belongs where, which may be read, and maps with gaps."""

from __future__ import annotations

import hashlib

import pytest

from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, position_after_record
from exactlyonce.connectors.kinesis.shards import (
    GREATEST_HASH_KEY,
    HashKeyInvalid,
    NoShardOfKey,
    Shard,
    ShardMapBroken,
    children,
    hash_key_of,
    readable,
    require_whole_map,
    shard_of_key,
    vanished,
)

MIDDLE = 1 << 127
QUARTER = 1 << 126
A = Shard("a", (), 0, MIDDLE - 1, 1, 100)
B = Shard("b", (), MIDDLE, GREATEST_HASH_KEY, 1)
A_LOW = Shard("a-low", ("a",), 0, QUARTER - 1, 101)
A_HIGH = Shard("a-high", ("a",), QUARTER, MIDDLE - 1, 101)
AFTER_SPLIT = (A, B, A_LOW, A_HIGH)
MERGED = Shard("merged", ("a-high", "b"), QUARTER, GREATEST_HASH_KEY, 201)
AFTER_MERGE = (
    A,
    Shard("b", (), MIDDLE, GREATEST_HASH_KEY, 1, 200),
    A_LOW,
    Shard("a-high", ("a",), QUARTER, MIDDLE - 1, 101, 200),
    MERGED,
)
INSIDE = position_after_record(50)


def ids(shards: tuple[Shard, ...]) -> set[str]:
    return {shard.id for shard in shards}


def test_children_are_read_once_their_parent_is_read_to_its_end() -> None:
    assert ids(readable(AFTER_SPLIT, {})) == {"a", "b"}
    assert ids(readable(AFTER_SPLIT, {"a": INSIDE, "b": INSIDE})) == {"a", "b"}
    assert ids(readable(AFTER_SPLIT, {"a": SHARD_END, "b": INSIDE})) == {"b", "a-low", "a-high"}


def test_the_child_of_a_merge_waits_for_both_parents() -> None:
    read = {"a": SHARD_END, "a-low": TRIM_HORIZON}
    assert "merged" not in ids(readable(AFTER_MERGE, {**read, "a-high": SHARD_END, "b": INSIDE}))
    assert "merged" not in ids(readable(AFTER_MERGE, {**read, "a-high": INSIDE, "b": SHARD_END}))
    assert ids(readable(AFTER_MERGE, {**read, "a-high": SHARD_END, "b": SHARD_END})) == {"a-low", "merged"}


def test_a_grandchild_does_not_overtake_its_parent() -> None:
    twice = (*AFTER_SPLIT, Shard("a-low-low", ("a-low",), 0, 9, 301))
    assert ids(readable(twice, {"a": SHARD_END, "b": INSIDE})) == {"b", "a-low", "a-high"}


def test_a_parent_that_is_listed_no_more_counts_as_read_unless_it_is_known_that_it_was_not() -> None:
    listed = (B, A_LOW, A_HIGH)
    assert ids(readable(listed, {})) == {"b", "a-low", "a-high"}
    assert ids(readable(listed, {"a": SHARD_END})) == {"b", "a-low", "a-high"}
    assert ids(readable(listed, {"a": INSIDE})) == {"b"}, (
        "what was left in it is lost, and nobody has decided about that"
    )
    assert vanished(listed, {"a": INSIDE, "b": INSIDE}) == ("a",)
    assert vanished(listed, {"a": SHARD_END}) == ()


def test_children_are_those_that_name_the_shard_as_one_of_their_parents() -> None:
    assert ids(children(AFTER_MERGE, "a")) == {"a-low", "a-high"}
    assert ids(children(AFTER_MERGE, "b")) == {"merged"}
    assert children(AFTER_MERGE, "merged") == ()


@pytest.mark.parametrize(
    "shards", [(B, A_LOW, A_HIGH), AFTER_SPLIT, AFTER_MERGE, (Shard("all", (), 0, GREATEST_HASH_KEY, 1),)]
)
def test_a_map_in_which_each_key_belongs_to_one_open_shard_is_whole(shards: tuple[Shard, ...]) -> None:
    require_whole_map(shards)


@pytest.mark.parametrize(
    ("shards", "said"),
    [
        ((B, A_HIGH), f"No open shard holds hash keys 0 to {QUARTER - 1}, between the lowest hash key and a-high;"),
        ((B, A_LOW), f"No open shard holds hash keys {QUARTER} to {MIDDLE - 1}, between a-low and b;"),
        (
            (A_LOW, A_HIGH),
            f"holds hash keys {MIDDLE} to {GREATEST_HASH_KEY}, between a-high and the greatest hash key;",
        ),
        ((), f"No open shard holds hash keys 0 to {GREATEST_HASH_KEY}"),
        (
            (A_LOW, A_HIGH, B, MERGED),
            f"Hash keys {QUARTER} to {MIDDLE - 1} belong to two open shards, a-high and merged;",
        ),
        (
            (Shard("all", (), 0, GREATEST_HASH_KEY, 1), B),
            f"Hash keys {MIDDLE} to {GREATEST_HASH_KEY} belong to two open",
        ),
    ],
)
def test_a_map_with_a_gap_or_an_overlap_is_refused_by_its_hash_range(shards: tuple[Shard, ...], said: str) -> None:
    with pytest.raises(ShardMapBroken) as refused:
        require_whole_map(shards)
    assert said in str(refused.value)


def test_the_hash_key_is_the_md5_of_the_key_in_utf_8_or_the_explicit_one() -> None:
    assert hash_key_of("schlüssel", None) == int(hashlib.md5("schlüssel".encode()).hexdigest(), 16)
    assert hash_key_of("anything", "0") == 0
    assert hash_key_of("anything", str(GREATEST_HASH_KEY)) == GREATEST_HASH_KEY


@pytest.mark.parametrize("text", ["", "-1", "1.0", "abc", " 1", "٣", str(GREATEST_HASH_KEY + 1), "1" * 5000])
def test_an_explicit_hash_key_that_is_no_integer_of_128_bits_is_refused(text: str) -> None:
    with pytest.raises(HashKeyInvalid):
        hash_key_of("anything", text)


@pytest.mark.parametrize(
    ("hash_key", "sequence_number", "expected"),
    [
        (0, 100, "a"),
        (0, 101, "a-low"),
        (QUARTER - 1, None, "a-low"),
        (QUARTER, 150, "a-high"),
        (QUARTER, None, "merged"),
        (MIDDLE - 1, 100, "a"),
        (MIDDLE, 200, "b"),
        (GREATEST_HASH_KEY, 201, "merged"),
        (GREATEST_HASH_KEY, None, "merged"),
    ],
)
def test_a_key_belongs_to_the_shard_of_that_time_with_both_ends_of_its_range(
    hash_key: int, sequence_number: int | None, expected: str
) -> None:
    assert shard_of_key(AFTER_MERGE, hash_key, sequence_number).id == expected


def test_a_key_in_no_shards_range_is_refused_by_its_hash() -> None:
    with pytest.raises(NoShardOfKey, match=str(MIDDLE)):
        shard_of_key((A_LOW, A_HIGH), MIDDLE)
    with pytest.raises(NoShardOfKey, match="sequence number 7"):
        shard_of_key((A_LOW, A_HIGH), 0, 7)
