"""Which shards are named next: no child before all of its parents are read, none a second time."""

from __future__ import annotations

import random

import pytest

from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.connectors.kinesis.start import in_order
from exactlyonce_spark.connectors.kinesis.lineage import appearing, forgotten, waiting_parents


def shard(name: str, *parents: str) -> Shard:
    return Shard(name, parents, 0, 1, 1)


SPLIT_THEN_MERGED = (shard("a"), shard("k"), shard("b", "k"), shard("d", "k"), shard("c", "a", "b"))
"""k was split into b and d, then a and b were merged into c."""


def test_the_child_of_a_merge_waits_for_a_parent_that_has_not_even_appeared() -> None:
    assert appearing(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": 7}) == ()
    assert appearing(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": SHARD_END}) == ("b", "d")
    assert appearing(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": SHARD_END, "b": 7, "d": 7}) == ()
    assert appearing(SPLIT_THEN_MERGED, {"a": SHARD_END, "k": SHARD_END, "b": SHARD_END, "d": 7}) == ("c",)


def test_a_parent_before_the_streams_start_does_not_keep_its_child_waiting() -> None:
    assert appearing(SPLIT_THEN_MERGED, {"a": SHARD_END, "d": TRIM_HORIZON}) == ("c",)
    assert appearing(SPLIT_THEN_MERGED[2:], {"a": SHARD_END, "d": TRIM_HORIZON}) == ("c",)


def test_a_shard_that_had_expired_and_is_listed_again_is_not_read_a_second_time() -> None:
    chain = (shard("p"), shard("k", "p"), shard("c", "k"))
    read = {"p": SHARD_END, "k": SHARD_END, "c": 7}
    assert forgotten((chain[0], chain[2]), read) == {"k"}
    assert appearing(chain, {"p": SHARD_END, "c": 7}) == ()


def test_neither_is_one_of_which_not_even_a_child_is_known_any_more() -> None:
    chain = (shard("p"), shard("k", "p"), shard("c", "k"), shard("g", "c"))
    read = {"p": SHARD_END, "k": SHARD_END, "c": SHARD_END, "g": 7}
    assert forgotten((chain[0], *chain[2:]), read) == {"k"}
    assert forgotten((chain[0], chain[3]), {"p": SHARD_END, "c": SHARD_END, "g": 7}) == {"c"}
    assert appearing(chain, {"p": SHARD_END, "g": 7}) == ()


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
    by_name = {one.id: one for one in shards}
    starts = in_order(shards, lambda shard: TRIM_HORIZON)
    named, read = list(starts), set[str]()
    while left := [name for name, position in starts.items() if position != SHARD_END and name not in is_open]:
        ended = chance.choice(left)
        assert read.issuperset(by_name[ended].parents)
        read.add(ended)
        starts[ended] = SHARD_END
        assert waiting_parents(shards, {ended: SHARD_END}) == {ended}
        while new := appearing(shards, starts):
            named += new
            starts |= dict.fromkeys(new, TRIM_HORIZON)
    assert sorted(named) == sorted(by_name), "none is left out, none is named twice"
