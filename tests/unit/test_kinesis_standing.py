"""Whether a stream of Kinesis can continue where it stands: positions without a landed record, children, missing parents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from exactlyonce.connectors.kinesis.bounds import _VIEW_SECONDS, expired
from exactlyonce.connectors.kinesis.given_positions import given
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.connectors.kinesis.start import in_order
from exactlyonce.errors import SourceRefused, SourceUnreachable, StartInvalid
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import Bounds
from tests.kinesis_api import SHARD, STREAM, KinesisApi, StoredShard, bounds_of, refusal

OTHER_ID, CHILD_ID = "shardId-000000000001", "shardId-000000000002"
PARENT, OTHER, CHILD = (Partition(STREAM, shard) for shard in (SHARD, OTHER_ID, CHILD_ID))
OPEN, GONE = Bounds(TRIM_HORIZON, SHARD_END), Bounds(SHARD_END, SHARD_END)


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


def standing(api: KinesisApi, stands: Mapping[Partition, int]) -> Mapping[Partition, Bounds]:
    """The bounds for a stream that stands at these positions, and of whose last records nothing is kept."""
    return bounds_of(api).view(frozenset(stands), {}, stands).bounds


def test_a_position_at_which_nothing_has_landed_yet_is_verified_as_well(api: KinesisApi) -> None:
    numbers = api.put(b"a", b"b", b"c", b"d")
    behind, inside = {PARENT: position_after_record(numbers[0])}, {PARENT: UserRecord(numbers[0], 2).position}
    at = {PARENT: UserRecord(numbers[1]).position}
    assert standing(api, behind) == standing(api, inside) == standing(api, at) == {PARENT: OPEN}
    api.expire(1)
    oldest = {PARENT: Bounds(UserRecord(numbers[1]).position, SHARD_END)}
    assert standing(api, behind) == standing(api, inside) == oldest
    assert standing(api, at) == {PARENT: OPEN}, (
        "that is where a stream continues that was told to do without what expired"
    )
    api.expire(1)
    assert standing(api, at) == {PARENT: Bounds(UserRecord(numbers[2]).position, SHARD_END)}
    api.expire(2)
    with pytest.raises(SourceRefused, match=f"Shard {SHARD} of stream {STREAM} is empty"):
        standing(api, behind)


def test_a_record_that_landed_long_ago_proves_nothing_for_a_position_further_on(api: KinesisApi) -> None:
    """A stream that was told to continue with the oldest record left keeps the fingerprint of what landed before."""
    numbers = api.put(*[b"x"] * 5)
    stands = {PARENT: UserRecord(numbers[3]).position}
    view = bounds_of(api).view(frozenset(stands), {PARENT: UserRecord(numbers[0]).position}, stands)
    assert (view.bounds, set(view.records)) == ({PARENT: OPEN}, {PARENT})
    api.expire(3)
    view = bounds_of(api).view(frozenset(stands), {PARENT: UserRecord(numbers[0]).position}, stands)
    assert (view.bounds, set(view.records)) == ({PARENT: OPEN}, set())


def test_the_record_in_front_of_a_position_is_asked_for_once(api: KinesisApi) -> None:
    number = api.put(b"a", b"b")[0]
    stands = {PARENT: position_after_record(number)}
    bounds_of(api).view(frozenset(stands), {PARENT: UserRecord(number, 4).position}, stands)
    assert api.calls["get_records"] == 1


def test_starts_and_ends_of_shards_cost_no_call(api: KinesisApi) -> None:
    api.close_shard()
    standing(api, {PARENT: SHARD_END})
    assert not api.calls["get_records"]


def split(api: KinesisApi) -> None:
    api.close_shard()
    api.shards |= {OTHER_ID: StoredShard((SHARD,)), CHILD_ID: StoredShard((SHARD,))}


@pytest.mark.parametrize("named", [{}, {OTHER: TRIM_HORIZON, CHILD: TRIM_HORIZON}])
def test_a_child_of_which_nothing_was_read_until_its_parent_expired_may_have_lost_its_first_records(
    api: KinesisApi, named: dict[Partition, int]
) -> None:
    split(api)
    (number,) = api.put(b"left", shard=CHILD_ID)
    stands = {PARENT: SHARD_END, **named}
    assert standing(api, stands) == {PARENT: OPEN, OTHER: OPEN, CHILD: OPEN}, (
        "the parent is listed: nothing has expired"
    )
    del api.shards[SHARD]
    left = Bounds(UserRecord(number).position, SHARD_END)
    assert standing(api, stands) == {PARENT: GONE, OTHER: OPEN, CHILD: left}
    resumed = {**stands, CHILD: UserRecord(number).position}
    assert standing(api, resumed) == {PARENT: GONE, OTHER: OPEN, CHILD: OPEN}


def test_a_shard_whose_parents_were_never_read_starts_at_whichever_record_is_the_oldest(api: KinesisApi) -> None:
    api.shards = {CHILD_ID: StoredShard((SHARD,))}
    api.put(b"x", shard=CHILD_ID)
    assert standing(api, {CHILD: TRIM_HORIZON}) == {CHILD: OPEN}


def merged(api: KinesisApi) -> None:
    """Two shards were merged; one of them, which held no record any more, is listed no more."""
    api.put(b"x")
    api.close_shard()
    api.shards[CHILD_ID] = StoredShard((SHARD, OTHER_ID))


@pytest.mark.parametrize("start", [{}, {"from": "Positions", "positions": {SHARD: "TRIM_HORIZON"}}])
def test_a_parent_that_was_gone_before_the_stream_began_is_not_missed(api: KinesisApi, start: dict[str, Any]) -> None:
    merged(api)
    asked = bounds_of(api, **start)
    begun = asked.start(asked.view())
    assert begun == Positions({PARENT: TRIM_HORIZON, OTHER: SHARD_END})
    assert standing(api, begun) == {PARENT: OPEN, OTHER: GONE, CHILD: OPEN}, "its end is where the stream stands in it"


def test_a_parent_that_came_and_expired_while_nobody_read_is_still_missed(api: KinesisApi) -> None:
    merged(api)
    assert standing(api, {PARENT: TRIM_HORIZON}) == {PARENT: OPEN, OTHER: GONE, CHILD: OPEN}
    assert OTHER.key in expired([Shard(CHILD_ID, (SHARD, OTHER_ID), 0, 1, 1)], frozenset({SHARD}))


def test_a_stream_that_is_missing_for_a_moment_is_there(api: KinesisApi) -> None:
    gone = refusal("ResourceNotFoundException", "Any", "Stream not found")
    api.refusals = [gone, gone]
    assert bounds_of(api).view().missing == ()
    api.refusals = [gone, gone]
    assert bounds_of(api).now([PARENT]).origin_ids == bounds_of(api).view().origin_ids


def test_shards_that_answer_slowly_end_the_look_at_a_stream(api: KinesisApi) -> None:
    stands = {}
    for number in range(40):
        name = f"shardId-{number:012}"
        api.shards[name] = StoredShard()
        stands[Partition(STREAM, name)] = position_after_record(api.put(b"x", shard=name)[0])

    def slowly(answer: dict[str, Any]) -> dict[str, Any]:
        api.time.seconds += 9.0
        return answer

    api.mangled = [slowly] * 100
    with pytest.raises(SourceUnreachable, match="took too long to answer: whether shard"):
        standing(api, stands)
    assert api.time.seconds < 2 * _VIEW_SECONDS


def chain(generations: int) -> list[Shard]:
    """One shard that is split, whose halves are merged, again and again."""
    shards = [Shard("0", (), 0, 1, 1, 2)]
    for number in range(generations):
        parent, first = shards[-1].id, len(shards)
        halves = [Shard(str(first + half), (parent,), 0, 1, 1, 2) for half in (0, 1)]
        shards += [*halves, Shard(str(first + 2), (halves[0].id, halves[1].id), 0, 1, 1, 2 if number else 3)]
    return shards


class Counted(Shard):
    """A shard whose parents are counted each time that they are looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "parents":
            Counted.looks += 1
        return super().__getattribute__(name)


def test_thousands_of_shards_in_a_chain_of_splits_and_merges_are_looked_at_a_few_times_each() -> None:
    shards = [Counted(shard.id, shard.parents, 0, 1, 1, 2) for shard in chain(1500)]
    Counted.looks = 0
    assert given(shards, {"0": TRIM_HORIZON}, StartInvalid) == {"0": TRIM_HORIZON}
    assert in_order(shards[::-1], lambda shard: SHARD_END).keys() == {shard.id for shard in shards}
    assert Counted.looks < 20 * len(shards)
