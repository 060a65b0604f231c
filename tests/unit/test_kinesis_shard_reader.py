"""Reading a shard on from a position: nothing is left out unnoticed, whatever Kinesis answers."""

from __future__ import annotations

import random

import pytest

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    UserRecord,
    position_after_record,
)
from exactlyonce.connectors.kinesis.shard_reader import PositionExpired, ShardReader
from exactlyonce.errors import OriginMissing, SourceUnreachable
from tests.kinesis_api import ITERATOR_SECONDS, SHARD, STREAM, KinesisApi, StoredShard, client_of, range_of, refusal
from tests.kinesis_in_memory import aggregated

DAY_SECONDS = 24 * 3600.0


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


@pytest.fixture
def client(api: KinesisApi) -> KinesisClient:
    return client_of(api, api.time)


def reader_at(client: KinesisClient, position: int) -> ShardReader:
    return ShardReader(client, STREAM, SHARD, position)


def texts(*names: object) -> list[bytes]:
    return [str(name).encode() for name in names]


def read_all(reader: ShardReader) -> list[bytes]:
    """Fetch until nothing is left or the shard ends."""
    found: list[bytes] = []
    while True:
        fetched = reader.fetch()
        found += [record.data for record in fetched.records]
        assert fetched.position == reader.position
        if fetched.at_end or not (fetched.records or fetched.milliseconds_behind):
            return found


def test_a_reader_goes_on_where_it_stood_and_reads_each_record_once(api: KinesisApi, client: KinesisClient) -> None:
    api.put(*texts(*range(10)))
    reader = reader_at(client, TRIM_HORIZON)
    assert read_all(reader) == texts(*range(10))
    numbers = api.put(*texts(10, 11))
    assert read_all(reader) == texts(10, 11)
    assert reader.position == position_after_record(numbers[-1])
    assert api.calls["get_shard_iterator"] == 1


def test_a_position_in_the_middle_starts_with_the_record_behind_it(api: KinesisApi, client: KinesisClient) -> None:
    numbers = api.put(*texts(*range(6)))
    assert read_all(reader_at(client, position_after_record(numbers[2]))) == texts(3, 4, 5)
    assert read_all(reader_at(client, position_after_record(numbers[5]))) == []


def test_a_position_inside_an_aggregate_starts_with_the_whole_record(api: KinesisApi, client: KinesisClient) -> None:
    first, inside, _ = api.put(b"before", aggregated(["a", "", "c"]), b"behind")
    fetched = reader_at(client, UserRecord(inside, 2).position).fetch()
    assert fetched.records[0].sequence_number == inside
    assert first not in [record.sequence_number for record in fetched.records]


@pytest.mark.parametrize("position_of", [position_after_record, lambda number: UserRecord(number, 1).position])
def test_a_position_whose_record_has_expired_is_refused(
    api: KinesisApi, client: KinesisClient, position_of: object
) -> None:
    assert callable(position_of)
    numbers = api.put(aggregated(["a", ""]), b"lost", b"left")
    api.expire(2)
    with pytest.raises(PositionExpired) as refused:
        reader_at(client, position_of(numbers[0])).fetch()
    assert SHARD in str(refused.value)
    assert STREAM in str(refused.value)
    assert f"the oldest record left is {numbers[2]}" in str(refused.value)
    api.expire(1)
    with pytest.raises(PositionExpired, match="no record is left"):
        reader_at(client, position_of(numbers[0])).fetch()


def test_a_position_at_a_record_that_is_there_needs_none_before_it(api: KinesisApi, client: KinesisClient) -> None:
    """A stream that starts at a moment, or continues with the oldest record left, has landed nothing in front of it."""
    numbers = api.put(*texts(*range(5)))
    for lost in (0, 3):
        api.expire(lost)
        assert read_all(reader_at(client, UserRecord(numbers[3]).position)) == texts(3, 4)
        assert range_of(client, UserRecord(numbers[3]).position, position_after_record(numbers[3])) == texts(3)
    api.expire(1)
    with pytest.raises(PositionExpired):
        reader_at(client, UserRecord(numbers[3]).position).fetch()


def test_the_position_in_a_shard_that_is_listed_no_more_has_expired(api: KinesisApi, client: KinesisClient) -> None:
    (number,) = api.put(b"x")
    del api.shards[SHARD]
    with pytest.raises(PositionExpired, match="lists shard"):
        reader_at(client, position_after_record(number)).fetch()
    api.is_missing = True
    with pytest.raises(OriginMissing, match="There is no stream orders in Kinesis in eu-west-1"):
        reader_at(client, position_after_record(number)).fetch()


def test_records_that_expire_behind_a_live_iterator_are_not_skipped_unnoticed(
    api: KinesisApi, client: KinesisClient
) -> None:
    """Kinesis continues at the oldest record that is left and says nothing of those before it."""
    api.put(*texts(*range(6)))
    api.time.seconds += DAY_SECONDS - 100
    reader = reader_at(client, TRIM_HORIZON)
    assert [record.data for record in reader.fetch().records] == texts(0, 1, 2)
    api.time.seconds += 90
    assert read_all(reader) == texts(3, 4, 5), "none has expired yet"
    reader = reader_at(client, TRIM_HORIZON)
    reader.fetch()
    api.put(b"later")
    api.time.seconds += 60
    api.expire_by_age()
    with pytest.raises(PositionExpired):
        reader.fetch()


def test_a_reader_near_the_retention_goes_on_where_each_answer_holds_one_record(
    api: KinesisApi, client: KinesisClient
) -> None:
    api.page_records = 1
    first, *_ = api.put(*texts(*range(5)))
    api.time.seconds += DAY_SECONDS - 1800
    reader = reader_at(client, position_after_record(first))
    found = [record.data for _ in range(8) for record in reader.fetch().records]
    assert found == texts(*range(1, 5))


def test_a_stream_with_a_longer_retention_is_not_asked_twice_for_a_record(
    api: KinesisApi, client: KinesisClient
) -> None:
    api.retention_hours = 168
    api.put(*texts(*range(30)))
    api.time.seconds += 3 * DAY_SECONDS
    assert read_all(reader_at(client, TRIM_HORIZON)) == texts(*range(30))
    assert api.calls["get_shard_iterator"] == 1


def test_an_expired_iterator_is_replaced_at_the_same_position(api: KinesisApi, client: KinesisClient) -> None:
    api.put(*texts(0, 1, 2, 3))
    reader = reader_at(client, TRIM_HORIZON)
    reader.fetch()
    api.time.seconds += ITERATOR_SECONDS + 1
    assert read_all(reader) == texts(3)
    assert api.calls["get_shard_iterator"] == 2


def test_a_shard_that_was_idle_for_longer_than_the_retention_is_read_on(api: KinesisApi, client: KinesisClient) -> None:
    """Its last record has expired; but nothing came after it, as the same process has seen."""
    (number,) = api.put(b"old")
    reader = reader_at(client, TRIM_HORIZON)
    for _ in range(30):
        read_all(reader)
        api.time.seconds += 3600
    api.expire_by_age()
    api.put(b"new")
    assert read_all(reader) == [b"new"]
    api.expire(2)
    api.put(b"newest")
    of_another_process = reader_at(client_of(api, api.time), position_after_record(number))
    with pytest.raises(PositionExpired):
        read_all(of_another_process)


def test_what_was_seen_longer_ago_than_the_retention_proves_nothing(api: KinesisApi, client: KinesisClient) -> None:
    api.put(b"old")
    reader = reader_at(client, TRIM_HORIZON)
    read_all(reader)
    api.put(b"lost")
    api.time.seconds += DAY_SECONDS + 60
    api.expire_by_age()
    api.put(b"new")
    with pytest.raises(PositionExpired):
        read_all(reader)
    with pytest.raises(PositionExpired):
        read_all(reader)


def test_an_empty_shard_that_was_not_asked_for_longer_than_the_retention_may_have_lost_records(
    api: KinesisApi, client: KinesisClient
) -> None:
    reader = reader_at(client, TRIM_HORIZON)
    assert read_all(reader) == []
    api.time.seconds += DAY_SECONDS - 60
    assert read_all(reader) == []
    api.put(b"lost")
    api.time.seconds += DAY_SECONDS + 60
    api.expire_by_age()
    api.put(b"new")
    with pytest.raises(PositionExpired, match="was empty when it was last asked"):
        reader.fetch()


def test_a_shard_that_answers_without_records_for_ever_is_an_error(api: KinesisApi, client: KinesisClient) -> None:
    (number,) = api.put(b"a")
    api.empty_share = 1.0
    with pytest.raises(SourceUnreachable, match="without records for 60 s, although it says that there are more"):
        reader_at(client, position_after_record(number)).fetch()


def test_what_was_seen_of_a_stream_proves_nothing_for_one_that_was_created_in_its_place(
    api: KinesisApi, client: KinesisClient
) -> None:
    (number,) = api.put(b"old")
    reader = reader_at(client, TRIM_HORIZON)
    read_all(reader)
    api.created = api.created.replace(year=2027)
    api.shards[SHARD] = StoredShard()
    api.put(b"of another stream")
    with pytest.raises(PositionExpired):
        read_all(reader_at(client, position_after_record(number)))


def test_a_shard_ends_behind_its_last_record(api: KinesisApi, client: KinesisClient) -> None:
    numbers = api.put(*texts(0, 1))
    api.close_shard()
    reader = reader_at(client, TRIM_HORIZON)
    fetched = reader.fetch()
    assert [record.data for record in fetched.records] == texts(0, 1)
    assert (fetched.position, fetched.at_end, fetched.milliseconds_behind) == (SHARD_END, True, 0)
    assert reader.fetch().records == ()
    behind_all = reader_at(client, position_after_record(numbers[-1])).fetch()
    assert (behind_all.records, behind_all.at_end) == ((), True)
    made = sum(api.calls.values())
    assert reader_at(client, SHARD_END).fetch().at_end
    assert sum(api.calls.values()) == made, "the end is known without a call"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_kinesis_answers_each_record_is_read_once_in_order(seed: int) -> None:
    chance = random.Random(seed)
    api = KinesisApi(page_records=chance.randint(1, 5), empty_share=chance.random() * 0.7, chance=chance)
    client = client_of(api, api.time, seed)
    reader, put, found = reader_at(client, TRIM_HORIZON), [], []
    for turn in range(40):
        put += (new := texts(*(f"{turn}/{n}" for n in range(chance.randint(0, 4)))))
        api.put(*new)
        codes = ["ProvisionedThroughputExceededException", "ExpiredIteratorException", "InternalFailure"]
        api.refusals = [refusal(chance.choice(codes), "Any") for _ in range(chance.choice([0, 0, 1, 3]))]
        fetched = reader.fetch()
        found += [record.data for record in fetched.records]
        if chance.random() < 0.2:
            reader = reader_at(client, reader.position)
        if chance.random() < 0.2:
            api.time.seconds += 400
    api.refusals = []
    api.close_shard()
    assert found + read_all(reader) == put
    assert range_of(client, TRIM_HORIZON, SHARD_END) == put


def test_iterators_that_expire_as_they_are_made_end_in_an_error(api: KinesisApi, client: KinesisClient) -> None:
    api.refusals = [refusal("ExpiredIteratorException", "GetRecords")] * 1000
    with pytest.raises(SourceUnreachable, match="says of each new iterator of shard"):
        reader_at(client, TRIM_HORIZON).fetch()
