"""Batches of a Kinesis stream whose shards are split and merged, and expire: who waits for whom, and what is left out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON
from exactlyonce.connectors.kinesis.reading import PositionExpired
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce_spark.connectors.kinesis import planner as planning
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit, Planner
from tests.kinesis_in_memory import ManualClock
from tests.unit.kinesis_batches import MEBIBYTE, named, planner_of, run, starts_of, stream, taken


def test_children_appear_empty_in_the_batch_after_the_one_in_which_all_their_parents_ended() -> None:
    kinesis = stream(2)
    kinesis.put("shard-0", "a0", "a1")
    kinesis.put("shard-1", *(f"b{number}" for number in range(4)))
    for parent in ("shard-0", "shard-1"):
        kinesis.close(parent)
    kinesis.open_shard("shard-2", "shard-0", "shard-1")
    kinesis.put("shard-2", "c0")
    planner = planner_of(kinesis, records=4)
    stands, story = named(planner, dict.fromkeys(("shard-0", "shard-1"), TRIM_HORIZON)), []
    while (ends := planner.ends(stands)) != stands:
        story.append((taken(kinesis, planner, stands, ends), ends.get("shard-2")))
        stands = ends
    assert [texts for texts, _ in story[:2]] == [["a0", "a1", "b0", "b1"], ["b2", "b3"]]
    assert [child for _, child in story[:3]] == [None, None, TRIM_HORIZON], (
        "named before it is read, behind its parents"
    )
    assert story[2][0] == story[3][0] == [], "and in a batch of its own it is named where its oldest record begins"
    assert story[4][0] == ["c0"]
    assert stands["shard-0"] == stands["shard-1"] == SHARD_END


def test_a_parent_that_has_not_ended_keeps_the_child_of_a_merge_waiting() -> None:
    kinesis = stream(2)
    kinesis.close("shard-0")
    kinesis.put("shard-1", *(str(number) for number in range(9)))
    kinesis.close("shard-1")
    kinesis.open_shard("shard-2", "shard-0", "shard-1")
    planner, stands = planner_of(kinesis, records=3), dict.fromkeys(("shard-0", "shard-1"), TRIM_HORIZON)
    while "shard-2" not in stands:
        before, stands = stands, planner.ends(stands)
        assert stands != before
    assert before == {"shard-0": SHARD_END, "shard-1": SHARD_END}


def test_a_shard_merged_with_a_child_that_has_not_appeared_yet_waits_for_that_child() -> None:
    kinesis = stream(2)
    kinesis.put("shard-0", *(f"a{number}" for number in range(12)))
    kinesis.split("shard-0", "shard-2", "shard-3")
    kinesis.put("shard-2", "old")
    for parent in ("shard-1", "shard-2"):
        kinesis.close(parent)
    kinesis.open_shard("shard-4", "shard-1", "shard-2")
    kinesis.put("shard-4", "new")
    planner = planner_of(kinesis, records=3)
    stands, batches = run(kinesis, planner, dict.fromkeys(("shard-0", "shard-1"), TRIM_HORIZON))
    texts = [text for batch in batches for text in batch]
    assert texts == [*(f"a{number}" for number in range(12)), "old", "new"]
    assert set(stands) == set(kinesis.shards)


def test_open_shards_that_follow_on_shards_which_expired_unseen_are_told_and_not_left_unread() -> None:
    """A driver that stood still for longer than the retention has seen neither the child nor the grandchildren."""
    kinesis = stream(1)
    kinesis.split("shard-0", "shard-1", "shard-2")
    kinesis.split("shard-1", "shard-3", "shard-4")
    kinesis.unlisted |= {"shard-0", "shard-1"}
    planner = planner_of(kinesis)
    with pytest.raises(PositionExpired, match="shard-3, shard-4"):
        planner.ends({"shard-0": SHARD_END})


def test_a_shard_that_ended_and_expired_is_left_out_once_its_children_are_named() -> None:
    kinesis, clock = stream(1), ManualClock()
    kinesis.put("shard-0", "a")
    kinesis.split("shard-0", "shard-1", "shard-2")
    planner = planner_of(kinesis, clock=clock)
    stands, _ = run(kinesis, planner, starts_of(kinesis))
    assert set(stands) == {"shard-0", "shard-1", "shard-2"}, "still listed"
    kinesis.unlisted.add("shard-0")
    clock.wait(planning._LIST_SECONDS + 1)
    stands, _ = run(kinesis, planner, stands)
    assert set(stands) == {"shard-1", "shard-2"}


def test_an_ended_shard_that_expired_together_with_its_children_does_not_have_the_shards_listed_again_and_again() -> (
    None
):
    kinesis, clock = stream(1), ManualClock()
    kinesis.split("shard-0", "shard-1", "shard-2")
    kinesis.split("shard-1", "shard-3", "shard-4")
    kinesis.split("shard-2", "shard-5", "shard-6")
    stands, _ = run(kinesis, planner_of(kinesis), {"shard-0": TRIM_HORIZON})
    kinesis.unlisted |= {"shard-0", "shard-1", "shard-2"}
    listings: list[float] = []

    def listed() -> Sequence[Shard]:
        listings.append(clock.seconds)
        return kinesis.listed()

    planner = Planner(kinesis.reader, listed, BatchLimit(1000, MEBIBYTE), clock.clock())
    began = clock.seconds
    while clock.seconds < began + 100:
        stands = planner.ends(stands)
    planner.close()
    assert len(listings) == 1


def test_an_ancestor_without_a_position_is_not_read() -> None:
    kinesis = stream(1)
    kinesis.split("shard-0", "shard-1", "shard-2")
    kinesis.split("shard-1", "shard-3", "shard-4")
    planner = planner_of(kinesis)
    stands, _ = run(kinesis, planner, {"shard-1": SHARD_END, "shard-2": TRIM_HORIZON})
    assert set(stands) == {"shard-1", "shard-2", "shard-3", "shard-4"}
