"""Where batches of a query over Kafka end: how much of each partition, partitions that appear, availableNow."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.connectors.kafka.reading import RecordsGone
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce_spark.connectors.kafka.planner import Planner, shared
from exactlyonce_spark.connectors.kafka.records import offsets_of, positions_of

ZERO, ONE, TWO = (Partition("orders", number) for number in range(3))


@dataclass
class Topics:
    """What a cluster holds: first and last offset of each partition."""

    held: dict[Partition, tuple[int, int]]
    looks: int = 0

    def selected(self) -> frozenset[Partition]:
        """All of them."""
        self.looks += 1
        return frozenset(self.held)

    def earliest(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Their first offsets."""
        return {key: self.held[key][0] for key in partitions}

    def latest(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Their ends."""
        return {key: self.held[key][1] for key in partitions}


@dataclass
class Clock:
    """A clock that rests move."""

    now: float = 0.0
    rests: list[float] = field(default_factory=list)

    def rest(self, seconds: float) -> None:
        """Move on."""
        self.now += seconds
        self.rests.append(seconds)


def planner(topics: Topics, most: int = 100, clock: Clock | None = None) -> Planner:
    clock = clock or Clock()
    return Planner(topics, most, lambda: clock.now, clock.rest)


def at(**offsets: int) -> Positions:
    return Positions({Partition("orders", int(name[1:])): offset for name, offset in offsets.items()})


def test_a_batch_takes_what_is_there_up_to_its_limit_in_proportion_to_what_waits() -> None:
    topics = Topics({ZERO: (0, 30), ONE: (0, 10), TWO: (0, 0)})
    assert planner(topics).ends(at(p0=0, p1=0, p2=0)) == at(p0=30, p1=10, p2=0)
    assert planner(topics, 20).ends(at(p0=0, p1=0, p2=0)) == at(p0=15, p1=5, p2=0)
    assert planner(topics, 20).ends(at(p0=28, p1=1, p2=0)) == at(p0=30, p1=10, p2=0)


@pytest.mark.parametrize("seed", range(300))
def test_shares_are_the_whole_limit_and_no_more_than_what_waits(seed: int) -> None:
    draw = random.Random(seed)
    most = draw.randint(1, 200)
    waiting = {Partition("orders", key): draw.choice([0, 1, 7, 2**40]) for key in range(draw.randint(1, 20))}
    shares = shared(most, waiting)
    assert sum(shares.values()) == min(most, sum(waiting.values()))
    assert all(0 <= shares[key] <= waiting[key] for key in waiting)


def test_a_partition_that_appears_is_named_at_its_first_record_and_read_from_the_next_batch_on() -> None:
    topics = Topics({ZERO: (0, 5)})
    clock = Clock()
    planned = planner(topics, clock=clock)
    assert planned.ends(at(p0=5)) == at(p0=5)
    topics.held[ONE] = (7, 12)
    clock.now += 60
    assert planned.ends(at(p0=5)) == at(p0=5, p1=7)
    assert planned.ends(at(p0=5, p1=7)) == at(p0=5, p1=12)


def test_topics_are_not_looked_for_at_each_trigger_and_an_idle_query_rests() -> None:
    topics, clock = Topics({ZERO: (0, 5)}), Clock()
    planned = planner(topics, clock=clock)
    for _ in range(40):
        planned.ends(at(p0=5))
    assert topics.looks == 1
    assert len(clock.rests) == 40
    planned.ends(at(p0=4))
    assert len(clock.rests) == 40, "one that has records does not"


def test_available_now_reads_as_far_as_there_were_records_partitions_that_appeared_included() -> None:
    topics = Topics({ZERO: (0, 500), ONE: (3, 9)})
    planned = planner(topics, most=400)
    planned.read_until_now()
    topics.held |= {ZERO: (0, 900), TWO: (0, 4)}
    assert planned.ends(at(p0=0)) == at(p0=400, p1=3)
    assert planned.ends(at(p0=400, p1=3)) == at(p0=500, p1=9)
    assert planned.ends(at(p0=500, p1=9)) == at(p0=500, p1=9)


def test_a_log_that_ends_before_the_query_stands_is_no_batch_without_records() -> None:
    with pytest.raises(RecordsGone, match="ends orders-0 at 5, before 8"):
        planner(Topics({ZERO: (0, 5)})).ends(at(p0=8))


@pytest.mark.parametrize("positions", [{}, {"b": {10: 1, 9: 2}, "a": {0: 5}}])
def test_the_same_positions_have_one_text_in_a_seed_and_from_the_reader(positions: dict[str, Any]) -> None:
    """Spark compares texts, and writes what `json.dumps` makes of the reader's answer."""
    found = Positions(
        {Partition(topic, number): at for topic, those in positions.items() for number, at in those.items()}
    )
    assert json.dumps(offsets_of(found)) == CODEC.render_entry(found)
    assert positions_of(json.loads(CODEC.render_entry(found))) == found == CODEC.parse_entry(found.to_json())
