"""To which shard a record belongs, by its hash key and the map of shards of its time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from exactlyonce.connectors.kinesis.shard_map import HashKeyOutside, ShardMap
from exactlyonce.connectors.kinesis.shards import GREATEST_HASH_KEY, Shard


def test_a_hash_key_that_no_shard_of_a_map_holds_is_named() -> None:
    parent = Shard("a", (), 0, 99, 10, 20)
    left, right = Shard("b", ("a",), 0, 49, 21), Shard("c", ("a",), 50, 89, 21)
    shards = ShardMap((parent, left, right))
    assert [shards.shard_of(60, number).id for number in (10, 20, 21, 30)] == ["a", "a", "c", "c"]
    assert shards.shard_of(60).id == "c"
    with pytest.raises(HashKeyOutside, match=r"No shard of the map that is open holds hash key 95\."):
        shards.shard_of(95)
    with pytest.raises(HashKeyOutside, match="that was opened before sequence number 9 holds hash key 60"):
        shards.shard_of(60, 9)
    with pytest.raises(HashKeyOutside, match="holds hash key 100"):
        shards.shard_of(100)
    with pytest.raises(HashKeyOutside, match="holds hash key 49"):
        ShardMap((right,)).shard_of(49)
    with pytest.raises(HashKeyOutside):
        ShardMap(()).shard_of(0)


def test_a_shard_is_asked_for_by_its_name_and_range() -> None:
    shards = ShardMap((Shard("a", (), 10, 19, 1),))
    assert [shards.belongs_to("a", key) for key in (9, 10, 19, 20)] == [False, True, True, False]
    assert not shards.belongs_to("b", 10)


@pytest.mark.parametrize("seed", range(20))
def test_each_record_belongs_to_the_shard_that_was_open_when_it_was_put_whatever_was_split_and_merged_since(
    seed: int,
) -> None:
    chance = random.Random(seed)
    middle = chance.randrange(1, GREATEST_HASH_KEY)
    shards = [Shard("0", (), 0, middle - 1, 1), Shard("1", (), middle, GREATEST_HASH_KEY, 1)]
    number, put = 1, []
    for _ in range(30):
        open_now = sorted((shard for shard in shards if shard.is_open), key=lambda shard: shard.starting_hash_key)
        for shard in open_now:
            for key in (shard.starting_hash_key, shard.ending_hash_key):
                number += chance.randint(1, 5)
                put.append((key, number, shard.id))
                assert ShardMap(tuple(shards)).shard_of(key) == shard, "of a record that comes without a number"
        place = chance.randrange(len(open_now))
        closed = open_now[place : place + chance.choice((1, 2))]
        parents = tuple(shard.id for shard in closed)
        first, last = closed[0].starting_hash_key, closed[-1].ending_hash_key
        bounds = [first] if len(closed) == 2 else [first, chance.randint(first + 1, last)]
        shards = [replace(shard, ending_sequence_number=number) if shard in closed else shard for shard in shards]
        number += 1
        for start, end in zip(bounds, [*(bound - 1 for bound in bounds[1:]), last], strict=True):
            shards.append(Shard(str(len(shards)), parents, start, end, number))
    chance.shuffle(shards)
    found = ShardMap(tuple(shards))
    assert [found.shard_of(key, at).id for key, at, _ in put] == [shard for _, _, shard in put]
