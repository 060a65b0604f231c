"""Positions and half-open ranges: what holds for all of them, over random ones with fixed seeds, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from exactlyonce.positions.ranges import MalformedPositions, OffsetRange, Partition, Positions, Ranges

SEEDS = range(200)
FAR = 10**18


def drawn(dice: random.Random, most: int = FAR) -> Positions:
    """Return positions of a few partitions with names that JSON has to escape and numbers that a double cannot hold."""
    topics = dice.sample(["orders", "a.b-c_d", "öre", 'q"uote', "0"], dice.randint(0, 3))
    keys = [Partition(topic, number) for topic in topics for number in dice.sample(range(12), dice.randint(1, 5))]
    dice.shuffle(keys)
    return Positions({key: dice.choice([0, 1, dice.randint(0, most)]) for key in keys})


def advanced(dice: random.Random, start: Positions) -> Positions:
    """Return positions that are nowhere before `start`, some partitions more."""
    more = {key: offset for key, offset in drawn(dice, 50).items() if key not in start}
    return Positions({**{key: offset + dice.choice([0, 1, 7, FAR]) for key, offset in start.items()}, **more})


@pytest.mark.parametrize("seed", SEEDS)
def test_positions_and_ranges_survive_their_json(seed: int) -> None:
    dice = random.Random(seed)
    start = drawn(dice)
    ranges = start.ranges_until(advanced(dice, start))
    assert Positions.from_json(start.to_json()) == start
    assert Ranges.from_json(ranges.to_json()) == ranges
    independently = {
        topic: {int(key): value for key, value in by.items()} for topic, by in json.loads(start.to_json()).items()
    }
    assert independently == {
        topic: {key.key: offset for key, offset in start.items() if key.origin == topic}
        for topic in {key.origin for key in start}
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_hold_each_offset_from_start_to_end_once_and_the_next_batch_none_of_them(seed: int) -> None:
    dice = random.Random(seed)
    start = Positions({key: offset % 20 for key, offset in drawn(dice).items()})
    middle = Positions({key: offset % 40 for key, offset in advanced(dice, start).items()}).at_least(start)
    end = Positions({key: offset + dice.randint(0, 9) for key, offset in middle.items()})
    batches = [start.ranges_until(middle), middle.ranges_until(end)]
    read = [
        (key, offset)
        for batch in batches
        for key, offsets in batch.items()
        for offset in range(offsets.from_offset, offsets.until_offset)
    ]
    assert len(read) == len(set(read)), "no offset is read twice"
    assert set(read) == {(key, offset) for key in end for offset in range(start.get(key, 0), end[key])}
    assert sum(batch.record_count for batch in batches) == len(read)


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_know_where_they_begin_and_end(seed: int) -> None:
    dice = random.Random(seed)
    start = drawn(dice)
    end = advanced(dice, start)
    ranges = start.ranges_until(end)
    assert ranges.ends == end
    assert ranges.starts == Positions({key: start.get(key, 0) for key in end})
    assert ranges.starts.ranges_until(ranges.ends) == ranges
    assert ranges.non_empty().record_count == ranges.record_count
    assert all(offsets.record_count for offsets in ranges.non_empty().values())
    assert Ranges.empty_at(end).record_count == 0
    assert (Ranges.empty_at(end).starts, Ranges.empty_at(end).ends) == (end, end)


@pytest.mark.parametrize("seed", SEEDS)
def test_at_least_raises_to_the_floor_and_adds_no_partition(seed: int) -> None:
    dice = random.Random(seed)
    positions, floor = drawn(dice, 9), drawn(dice, 9)
    raised = positions.at_least(floor)
    assert raised == {key: max(offset, floor.get(key, 0)) for key, offset in positions.items()}
    assert raised.at_least(floor) == raised


def test_partitions_are_in_the_order_of_topic_and_number_and_not_of_text() -> None:
    keys = [Partition("b", 0), Partition("a", 10), Partition("a", 9)]
    positions = Positions(dict.fromkeys(keys, 5))
    assert list(positions) == sorted(keys) == [keys[2], keys[1], keys[0]]
    assert positions.to_json() == '{"a":{"9":5,"10":5},"b":{"0":5}}'
    assert list(Ranges.empty_at(positions)) == list(positions)


def test_positions_and_ranges_read_as_a_person_writes_them() -> None:
    key, other = Partition("orders", 0), Partition("orders", 1)
    ranges = Ranges({key: OffsetRange(3, 5), other: OffsetRange(7, 7)})
    assert [str(Positions()), str(Ranges()), str(ranges)] == ["nothing", "no records", "orders-0 [3, 5)"]
    assert str(ranges.ends) == "orders-0@5, orders-1@7"
    assert repr(ranges) == 'Ranges({"orders":{"0":[3,5],"1":[7,7]}})'
    assert repr(ranges.ends) == 'Positions({"orders":{"0":5,"1":7}})'


@pytest.mark.parametrize(("start", "until"), [(-1, 0), (5, 4), (-3, -1)])
def test_a_range_that_ends_before_it_begins_is_none(start: int, until: int) -> None:
    with pytest.raises(MalformedPositions, match=rf"\[{start}, {until}\) is not a range of offsets"):
        OffsetRange(start, until)


def test_positions_do_not_move_backwards_or_lose_a_partition() -> None:
    key, other = Partition("orders", 0), Partition("orders", 1)
    with pytest.raises(MalformedPositions, match=r"\[5, 4\) is not a range"):
        Positions({key: 5}).ranges_until(Positions({key: 4}))
    with pytest.raises(MalformedPositions, match="no end is given for orders-1"):
        Positions({key: 5, other: 1}).ranges_until(Positions({key: 6}))
    with pytest.raises(MalformedPositions, match="orders-0 has the offset -1; offsets start at 0"):
        Positions({key: -1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ('{"orders":{"0":5}', "not JSON"),
        ("[]", "not a map of topics"),
        ("null", "not a map of topics"),
        ('{"orders":5}', "topic 'orders' has 5 where a map of partitions belongs"),
        ('{"orders":{"":5}}', "a partition without a name"),
        ('{"orders":{"0":"5"}}', "orders-0 has '5' where an offset belongs"),
        ('{"orders":{"0":5.0}}', "orders-0 has 5.0 where an offset belongs"),
        ('{"orders":{"0":true}}', "orders-0 has True where an offset belongs"),
        ('{"orders":{"0":null}}', "orders-0 has None where an offset belongs"),
        ('{"orders":{"0":-2}}', "orders-0 has the offset -2; offsets start at 0"),
    ],
)
def test_a_text_that_holds_no_positions_is_refused_with_what_stands_there(text: str, words: str) -> None:
    with pytest.raises(MalformedPositions) as refused:
        Positions.from_json(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("5", "orders-0 has 5 where a pair [from, until] belongs"),
        ("[5]", "orders-0 has [5] where a pair [from, until] belongs"),
        ("[1,2,3]", "orders-0 has [1, 2, 3] where a pair"),
        ('[1,"2"]', "orders-0 has '2' where an offset belongs"),
        ("[2,1]", "[2, 1) is not a range of offsets"),
    ],
)
def test_a_text_that_holds_no_ranges_is_refused_with_what_stands_there(value: str, words: str) -> None:
    with pytest.raises(MalformedPositions) as refused:
        Ranges.from_json(f'{{"orders":{{"0":{value}}}}}')
    assert words in str(refused.value)


@pytest.mark.parametrize("make", [Positions, Ranges, lambda given: Positions(given.items())])
def test_what_positions_are_made_of_may_change_afterwards(make: Callable[..., object]) -> None:
    given: dict[Partition, object] = {Partition("orders", 0): 3}
    if make is Ranges:
        given = {Partition("orders", 0): OffsetRange(0, 3)}
    made = make(given)
    before = dict(made)  # type: ignore[call-overload] # both are mappings
    given.clear()
    assert dict(made) == before  # type: ignore[call-overload] # both are mappings


def test_a_key_is_a_number_where_it_is_written_as_one_and_else_a_name() -> None:
    shard = Partition("clicks", "shardId-000000000001")
    positions = Positions({Partition("orders", 0): 5, shard: 49590338271490256608559692538361571095921575989136588898})
    assert Positions.from_json(positions.to_json()) == positions
    assert [type(partition.key) for partition in Positions.from_json('{"clicks":{"1":5,"-1":5,"٣":5}}')] == [
        int,
        str,
        str,
    ]
