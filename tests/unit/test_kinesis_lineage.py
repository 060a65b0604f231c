"""Which shards are named next: no child before all of its parents are read, none a second time."""

from __future__ import annotations

import random

import pytest

from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.connectors.kinesis.start import in_order
from exactlyonce_spark.connectors.kinesis.lineage import Lineage


def shard(name: str, *parents: str) -> Shard:
    return Shard(name, parents, 0, 1, 1)


def closed(name: str, *parents: str) -> Shard:
    return Shard(name, parents, 0, 1, 1, 2)


SPLIT_THEN_MERGED = (shard("a"), shard("k"), shard("b", "k"), shard("d", "k"), shard("c", "a", "b"))
"""k was split into b and d, then a and b were merged into c."""


def test_the_child_of_a_merge_waits_for_a_parent_that_has_not_even_appeared() -> None:
    assert Lineage(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": 7}).appearing == ()
    assert Lineage(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": SHARD_END}).appearing == ("b", "d")
    assert Lineage(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": SHARD_END, "b": 7, "d": 7}).appearing == ()
    assert Lineage(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": SHARD_END, "b": SHARD_END, "d": 7}).appearing == ("c",)


def test_a_parent_before_the_streams_start_does_not_keep_its_child_waiting() -> None:
    assert Lineage(SPLIT_THEN_MERGED, {"a": SHARD_END, "d": TRIM_HORIZON}).appearing == ("c",)
    assert Lineage(SPLIT_THEN_MERGED[2:], {"a": SHARD_END, "d": TRIM_HORIZON}).appearing == ("c",)


CHAIN = (
    closed("p"),
    closed("k", "p"),
    shard("l", "p"),
    closed("c", "k"),
    shard("d", "k"),
    shard("g", "c"),
    shard("h", "c"),
)
"""p was split into k and l, k into c and d, c into g and h."""

OPEN = {"l": 7, "d": 7, "g": 7, "h": 7}


def without(*names: str) -> tuple[Shard, ...]:
    return tuple(one for one in CHAIN if one.id not in names)


def test_a_shard_that_had_expired_and_is_listed_again_is_not_read_a_second_time() -> None:
    read = {"p": SHARD_END, "k": SHARD_END, "c": 7, "d": 7, "l": 7}
    assert Lineage(without("k", "g", "h"), read).forgotten == {"k"}
    assert Lineage(without("g", "h"), {"p": SHARD_END, "c": 7, "d": 7, "l": 7}).appearing == ()


def test_neither_is_one_of_which_not_even_a_child_is_known_any_more() -> None:
    read = {"p": SHARD_END, "k": SHARD_END, "c": SHARD_END, **OPEN}
    assert Lineage(without("k"), read).forgotten == {"k"}
    assert Lineage(without("k", "c"), {"p": SHARD_END, "c": SHARD_END, **OPEN}).forgotten == {"c"}
    assert Lineage(CHAIN, {"p": SHARD_END, **OPEN}).appearing == ()


def test_nor_one_that_is_listed_again_before_its_descendants_are() -> None:
    starts = {"p": SHARD_END, "l": 7, "g": 7, "h": 7}
    for gone in (("c", "d"), ("d",), ("c",)):
        assert Lineage(without(*gone), starts).appearing == ()
        assert Lineage(without(*gone), starts).held_back == ({"k"} if "c" in gone else set())
    assert Lineage(CHAIN, starts).held_back == set()


def test_one_that_was_closed_appears_once_all_that_was_made_of_it_is_listed() -> None:
    starts = {"p": SHARD_END, "l": 7}
    assert Lineage(without("g"), starts).appearing == ()
    assert Lineage(without("g"), starts).held_back == {"k", "c"}
    assert Lineage(CHAIN, starts).appearing == ("k",)


def test_a_child_that_is_listed_later_than_its_sibling_appears_then() -> None:
    assert Lineage(CHAIN, {"p": SHARD_END, "k": 7}).appearing == ("l",)
    assert Lineage(without("p", "l"), {"p": SHARD_END, "k": 7}).forgotten == set(), (
        "it is by its parent that it will be known"
    )


def test_a_parent_that_nobody_has_read_and_that_is_not_listed_is_missed() -> None:
    """p was split into a and b, which were merged into m; b is not listed yet when m is."""
    shards = (closed("p"), closed("a", "p"), shard("m", "a", "b"))
    assert Lineage(shards, {"p": SHARD_END, "a": SHARD_END}).unreachable == ("m",)
    assert Lineage((*shards, closed("b", "p")), {"p": SHARD_END, "a": SHARD_END}).unreachable == ()
    assert Lineage(shards, {"p": SHARD_END, "a": SHARD_END, "b": SHARD_END}).unreachable == ()
    assert Lineage(shards, {"p": SHARD_END, "a": SHARD_END, "m": 7}).unreachable == ()


def test_a_shard_is_kept_until_all_of_its_children_are_known() -> None:
    assert Lineage(without("k", "d"), {"k": SHARD_END, "c": 7, "l": 7}).forgotten == set()
    assert Lineage(without("k"), {"k": SHARD_END, "c": 7, "d": 7, "l": 7}).forgotten == {"k"}


@pytest.mark.parametrize("seed", range(100))
def test_in_whatever_order_shards_end_each_appears_once_and_behind_all_of_its_parents(seed: int) -> None:
    chance = random.Random(seed)
    shards = [shard(f"root-{number}") for number in range(chance.randint(1, 4))]
    is_open = [one.id for one in shards]
    for _ in range(chance.randint(1, 12)):
        if len(is_open) > 1 and chance.random() < 0.5:
            parents = chance.sample(is_open, 2)
            made = [shard(str(len(shards)), *parents)]
        else:
            parents = [chance.choice(is_open)]
            made = [shard(str(len(shards) + half), *parents) for half in (0, 1)]
        is_open = [name for name in is_open if name not in parents] + [one.id for one in made]
        shards += made
    shards = [one if one.id in is_open else closed(one.id, *one.parents) for one in shards]
    by_name = {one.id: one for one in shards}
    starts = in_order(shards, lambda shard: TRIM_HORIZON)
    named, read = list(starts), set[str]()
    while left := [name for name, position in starts.items() if position != SHARD_END and name not in is_open]:
        ended = chance.choice(left)
        assert read.issuperset(by_name[ended].parents)
        read.add(ended)
        starts[ended] = SHARD_END
        assert Lineage(shards, {ended: SHARD_END}).waiting_parents == {ended}
        while new := Lineage(shards, starts).appearing:
            named += new
            starts |= dict.fromkeys(new, TRIM_HORIZON)
    assert sorted(named) == sorted(by_name), "none is left out, none is named twice"
