"""Positions and ranges answer as any map does, in the order of their keys."""

from __future__ import annotations

import pickle
from types import MappingProxyType

import pytest

from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.positions.sorted_map import SortedMap

FIRST, SECOND, SHARD = Partition("orders", 2), Partition("orders", 10), Partition("orders", "shard-1")


def test_keys_values_and_items_come_in_the_order_of_the_keys() -> None:
    held = SortedMap({SHARD: 3, SECOND: 2, FIRST: 1})
    assert list(held) == list(held.keys()) == [FIRST, SECOND, SHARD]
    assert list(held.values()) == [1, 2, 3]
    assert list(held.items()) == [(FIRST, 1), (SECOND, 2), (SHARD, 3)]


def test_it_equals_every_map_with_the_same_entries_and_nothing_else() -> None:
    held = Positions({SECOND: 2, FIRST: 1})
    assert held == Positions([(FIRST, 1), (SECOND, 2)]) == {FIRST: 1, SECOND: 2}
    assert held == MappingProxyType({SECOND: 2, FIRST: 1})
    assert held != Positions({FIRST: 1})
    assert held != Positions({FIRST: 1, SECOND: 3})
    assert held != [FIRST, SECOND]


def test_what_it_was_made_of_may_change() -> None:
    given = {FIRST: 1}
    held = Positions(given)
    given[FIRST] = 5
    assert held == {FIRST: 1}


def test_an_absent_key_gives_the_default_and_is_refused_without_one() -> None:
    held = Positions({FIRST: 1})
    assert (held.get(FIRST), held.get(SECOND), held.get(SECOND, 7)) == (1, None, 7)
    assert FIRST in held
    assert SECOND not in held
    with pytest.raises(KeyError):
        held[SECOND]


def test_it_is_sent_to_a_task_and_has_no_hash() -> None:
    held = Positions({SECOND: 2, FIRST: 1})
    assert pickle.loads(pickle.dumps(held)) == held
    with pytest.raises(TypeError, match="unhashable"):
        hash(held)
