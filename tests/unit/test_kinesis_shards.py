"""The shards of a stream: which key belongs where, which may be read, and maps with gaps."""

from __future__ import annotations

import hashlib

import pytest

from exactlyonce.connectors.kinesis.shards import (
    GREATEST_HASH_KEY,
    Shard,
    ShardMapBroken,
    children_of,
    hash_key_of,
    is_hash_key,
    listed_parents,
    require_whole_map,
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


def test_children_are_those_that_name_the_shard_as_one_of_their_parents() -> None:
    found = {parent: [child.id for child in children] for parent, children in children_of(AFTER_MERGE).items()}
    assert found == {"a": ["a-low", "a-high"], "a-high": ["merged"], "b": ["merged"]}
    assert listed_parents(AFTER_MERGE) == {"a": 0, "b": 0, "a-low": 1, "a-high": 1, "merged": 2}
    assert listed_parents(AFTER_MERGE[2:]) == {"a-low": 0, "a-high": 0, "merged": 1}


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
def test_an_explicit_hash_key_is_an_integer_of_128_bits(text: str) -> None:
    assert not is_hash_key(text)
    assert is_hash_key(str(GREATEST_HASH_KEY))


def test_a_key_belongs_to_the_shard_whose_range_holds_it_with_both_ends() -> None:
    holders = {key: {shard.id for shard in AFTER_MERGE if shard.holds_key(key)} for key in (0, QUARTER - 1, QUARTER)}
    assert holders == {0: {"a", "a-low"}, QUARTER - 1: {"a", "a-low"}, QUARTER: {"a", "a-high", "merged"}}
    assert {shard.id for shard in AFTER_MERGE if shard.holds_key(GREATEST_HASH_KEY)} == {"b", "merged"}
