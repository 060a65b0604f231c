"""What one answer of Kinesis is worth: repeated records, an end that nobody else knows of, a shard gone for a moment."""

from __future__ import annotations

import random
from typing import Any

import pytest
from botocore.exceptions import ClientError

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.pages import EndUnproven, RecordsOutOfOrder
from exactlyonce.connectors.kinesis.patience import MISSING_SECONDS, Deadline, each
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.reading import (
    PositionExpired,
    ShardReader,
    first_record,
    record_numbered,
)
from exactlyonce.errors import SourceRefused, SourceUnreachable
from tests.kinesis_api import SHARD, STREAM, KinesisApi, StoredShard, client_of, refusal

CHILD = "shardId-000000000001"
Answer = dict[str, Any]


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


@pytest.fixture
def client(api: KinesisApi) -> KinesisClient:
    return client_of(api, api.time)


def reader_at(client: KinesisClient, position: int = TRIM_HORIZON) -> ShardReader:
    return ShardReader(client, STREAM, SHARD, position)


def untouched(answer: Answer) -> Answer:
    return answer


def twice(answer: Answer) -> Answer:
    """The last record once more."""
    return {**answer, "Records": [*answer["Records"], answer["Records"][-1]]}


def backwards(answer: Answer) -> Answer:
    return {**answer, "Records": answer["Records"][::-1]}


def as_if_ended(answer: Answer) -> Answer:
    return {name: value for name, value in answer.items() if name != "NextShardIterator"}


def without_age(answer: Answer) -> Answer:
    return {name: value for name, value in answer.items() if name != "MillisBehindLatest"}


@pytest.mark.parametrize("damage", [twice, backwards])
def test_a_record_that_is_repeated_or_out_of_order_within_an_answer_is_an_error_that_names_the_shard(
    api: KinesisApi, client: KinesisClient, damage: Any
) -> None:
    numbers = api.put(b"a", b"b")
    api.mangled = [damage]
    reader = reader_at(client)
    with pytest.raises(SourceRefused, match=f"shard {SHARD} of stream {STREAM}") as told:
        reader.fetch()
    assert f": record {numbers[0 if damage is backwards else 1]} comes behind record {numbers[1]};" in str(told.value)
    assert [record.sequence_number for record in reader.fetch().records] == numbers, "nothing of it was taken"


@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_a_record_of_an_earlier_answer_that_comes_again_is_an_error(
    api: KinesisApi, client: KinesisClient, repeated: int
) -> None:
    api.put(*(b"0123456"[place : place + 1] for place in range(6)))
    earlier = dict(api.shards[SHARD].records[repeated] or {})
    api.mangled = [untouched, lambda answer: {**answer, "Records": [earlier, *answer["Records"]]}]
    reader = reader_at(client)
    assert [record.data for record in reader.fetch().records] == [b"0", b"1", b"2"]
    with pytest.raises(RecordsOutOfOrder, match=f"answered record {earlier['SequenceNumber']} of shard {SHARD}"):
        reader.fetch()
    assert [record.data for record in reader.fetch().records] == [b"3", b"4", b"5"]


def test_a_record_inside_of_which_the_position_lies_may_come_again_once(api: KinesisApi, client: KinesisClient) -> None:
    (number,) = api.put(b"an aggregate")
    api.mangled = [twice]
    with pytest.raises(SourceRefused):
        reader_at(client, UserRecord(number, 1).position).fetch()
    assert len(reader_at(client, UserRecord(number, 1).position).fetch().records) == 1


def test_one_answer_without_a_next_iterator_does_not_end_an_open_shard(api: KinesisApi, client: KinesisClient) -> None:
    api.put(b"a", b"b", b"c", b"d")
    api.mangled = [untouched, as_if_ended]
    reader = reader_at(client)
    assert [record.data for record in reader.fetch().records] == [b"a", b"b", b"c"]
    fetched = reader.fetch()
    assert ([record.data for record in fetched.records], fetched.at_end) == ([b"d"], False)
    api.put(b"e")
    assert [record.data for record in reader.fetch().records] == [b"e"]


def test_a_shard_that_answers_as_if_it_had_ended_and_is_listed_as_open_is_no_answer(
    api: KinesisApi, client: KinesisClient
) -> None:
    (number,) = api.put(b"a")
    for ask in (
        lambda: reader_at(client).fetch(),
        lambda: reader_at(client, position_after_record(number)).fetch(),
        lambda: record_numbered(client, STREAM, SHARD, number),
        lambda: first_record(client, STREAM, SHARD),
    ):
        api.mangled = [as_if_ended] * 20
        with pytest.raises(EndUnproven, match=f"as if shard {SHARD} of stream {STREAM} had ended"):
            ask()


def test_a_shard_has_ended_if_the_answer_names_children_or_the_list_an_ending_number(
    api: KinesisApi, client: KinesisClient
) -> None:
    api.put(b"a")
    api.mangled = [lambda answer: as_if_ended(answer) | {"ChildShards": [{"ShardId": CHILD}]}]
    assert reader_at(client).fetch().position == SHARD_END
    listed = api.calls["list_shards"]
    api.close_shard()
    assert reader_at(client).fetch().position == SHARD_END
    assert (listed, api.calls["list_shards"]) == (0, 1)


def test_an_answer_that_does_not_say_how_far_behind_it_is_is_not_taken_for_the_newest_record(
    api: KinesisApi, client: KinesisClient
) -> None:
    (number,) = api.put(b"a")
    api.mangled = [without_age]
    assert reader_at(client).fetch().milliseconds_behind > 0
    api.mangled = [without_age] * 1000
    with pytest.raises(SourceUnreachable, match="has answered without records"):
        record_numbered(client, STREAM, SHARD, number + 1)


def gone() -> ClientError:
    return refusal("ResourceNotFoundException", "Any", "Shard does not exist")


def test_a_shard_that_is_missing_for_a_moment_is_there(api: KinesisApi, client: KinesisClient) -> None:
    (number,) = api.put(b"a")
    for ask in (
        lambda: record_numbered(client, STREAM, SHARD, number) is not None,
        lambda: first_record(client, STREAM, SHARD) is not None,
        lambda: reader_at(client, UserRecord(number, 1).position).fetch().records,
    ):
        api.refusals = [gone(), gone()]
        assert ask()
        assert not api.refusals


def test_a_shard_is_gone_once_it_has_been_missing_for_seconds(api: KinesisApi, client: KinesisClient) -> None:
    (number,) = api.put(b"a")
    del api.shards[SHARD]
    api.shards[CHILD] = StoredShard()
    began = api.time.seconds
    assert record_numbered(client, STREAM, SHARD, number) is None
    assert began + MISSING_SECONDS <= api.time.seconds < began + 2 * MISSING_SECONDS
    with pytest.raises(PositionExpired, match="lists shard"):
        reader_at(client, position_after_record(number)).fetch()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_single_answers_are_damaged_no_record_is_lost_or_read_twice(seed: int) -> None:
    chance = random.Random(seed)
    api = KinesisApi(page_records=chance.randint(1, 4), chance=chance)
    reader, found, put = reader_at(client_of(api, api.time, seed)), list[int](), list[int]()
    for _ in range(60):
        put += api.put(*[b"x"] * chance.randint(0, 3))
        if chance.random() < 0.4:
            api.mangled = [
                chance.choice([as_if_ended, without_age, backwards, lambda a: twice(a) if a["Records"] else a])
            ]
        try:
            found += [record.sequence_number for record in reader.fetch().records]
        except SourceRefused:
            reader = reader_at(client_of(api, api.time, seed), reader.position)
    api.mangled = []
    api.close_shard()
    while not (fetched := reader.fetch()).at_end:
        found += [record.sequence_number for record in fetched.records]
    assert found + [record.sequence_number for record in fetched.records] == put


def test_answers_for_many_shards_come_in_their_order_and_an_error_is_that_of_a_shard() -> None:
    assert list(each(lambda number: number * 2, range(100))) == list(range(0, 200, 2))
    assert list(each(lambda number: number, [])) == []

    def fails(number: int) -> int:
        raise SourceUnreachable(f"shard {number}")

    with pytest.raises(SourceUnreachable, match="shard 0"):
        list(each(fails, range(100)))


def test_a_deadline_is_over_when_its_time_is(api: KinesisApi, client: KinesisClient) -> None:
    deadline = Deadline.within(client.clock, 10)
    deadline.require("in time")
    api.time.seconds += 10
    with pytest.raises(SourceUnreachable, match="too long to answer: what it was"):
        deadline.require("what it was")
