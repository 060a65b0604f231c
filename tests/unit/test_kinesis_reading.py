"""Exactly given ranges of a shard, and single records of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from exactlyonce.connectors.kinesis.aggregation import user_records
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.pages import LOOKS_AT_TIP
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    UserRecord,
    position_after_record,
)
from exactlyonce.connectors.kinesis.reading import (
    PositionExpired,
    RangeIncomplete,
    ShardReader,
    first_record,
    is_whole_behind,
    record_numbered,
)
from exactlyonce.errors import SourceUnreachable
from tests.kinesis_api import SHARD, STREAM, KinesisApi, client_of, range_of, refusal
from tests.kinesis_in_memory import aggregated


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


@pytest.fixture
def client(api: KinesisApi) -> KinesisClient:
    return client_of(api, api.time)


def test_a_range_gives_exactly_its_records_also_where_it_begins_and_ends_inside_aggregates(
    api: KinesisApi, client: KinesisClient
) -> None:
    a, b, c = api.put(aggregated(["a0", "a1", "a2"]), b"b", aggregated(["c0", "c1"]))
    api.close_shard()
    every = [b"a0", b"a1", b"a2", b"b", b"c0", b"c1"]
    cuts = [
        TRIM_HORIZON,
        UserRecord(a, 1).position,
        UserRecord(a, 2).position,
        position_after_record(a),
        position_after_record(b),
        UserRecord(c, 1).position,
        position_after_record(c),
    ]
    for start in range(len(cuts)):
        for end in range(start, len(cuts)):
            assert range_of(client, cuts[start], cuts[end]) == every[start:end]
        assert range_of(client, cuts[start], SHARD_END) == every[start:]
    assert range_of(client, SHARD_END, SHARD_END) == []


def test_an_empty_range_asks_nothing(api: KinesisApi, client: KinesisClient) -> None:
    assert range_of(client, TRIM_HORIZON, TRIM_HORIZON) == []
    assert not api.calls


def test_a_range_that_cannot_be_read_up_to_its_end_is_an_error_and_never_shorter(
    api: KinesisApi, client: KinesisClient
) -> None:
    a, b, c = api.put(b"a", aggregated(["b0", "b1"]), b"c")

    def fails(start: int, end: int, said: str) -> None:
        with pytest.raises(RangeIncomplete, match=said) as refused:
            range_of(client, start, end)
        assert f"shard {SHARD} of stream {STREAM}" in str(refused.value)

    fails(TRIM_HORIZON, position_after_record(c + 1), "can be read up to after")
    fails(TRIM_HORIZON, SHARD_END, "can be read up to after")
    fails(TRIM_HORIZON, position_after_record(b - 1), "does not end between two user records")
    fails(TRIM_HORIZON, UserRecord(b, 5).position, "does not end between two user records")
    fails(UserRecord(b, 2).position, position_after_record(c), "behind the last of its user records")
    fails(UserRecord(b, 7).position, UserRecord(b, 8).position, "behind the last of its user records")
    fails(position_after_record(c), position_after_record(a), "ends before it starts")
    api.close_shard()
    fails(TRIM_HORIZON, position_after_record(c + 1), "can be read up to SHARD_END")
    api.expire(1)
    with pytest.raises(PositionExpired):
        range_of(client, position_after_record(a), position_after_record(c))


def test_a_range_from_the_start_of_a_shard_that_has_expired_as_a_whole_is_empty_and_the_next_one_tells(
    api: KinesisApi, client: KinesisClient
) -> None:
    """Else whoever planned it would be sent back to it for ever, as a look at the start of a shard finds nothing missing."""
    a, b, _ = api.put(b"a", aggregated(["b0", "b1"]), b"c")
    api.expire(2)
    for end in (position_after_record(a), position_after_record(b), UserRecord(b, 1).position):
        assert range_of(client, TRIM_HORIZON, end) == []
        with pytest.raises(PositionExpired):
            ShardReader(client, STREAM, SHARD, end).fetch()
    api.expire(1)
    with pytest.raises(RangeIncomplete):
        range_of(client, TRIM_HORIZON, SHARD_END)  # nothing there proves that an open shard has ended
    api.close_shard()
    assert range_of(client, TRIM_HORIZON, position_after_record(b)) == []  # and the shard's end does
    with pytest.raises(PositionExpired):
        ShardReader(client, STREAM, SHARD, position_after_record(b)).fetch()


def test_a_range_from_the_start_of_a_shard_is_empty_where_nothing_is_left_and_its_end_would_not_be_found(
    api: KinesisApi, client: KinesisClient
) -> None:
    """A batch that only names the oldest record is planned again after a restart; that record may have been the only one."""
    (oldest,) = api.put(b"a")
    api.expire(1)
    for end in (UserRecord(oldest).position, position_after_record(oldest)):
        assert range_of(client, TRIM_HORIZON, end) == []
        with pytest.raises(PositionExpired):
            ShardReader(client, STREAM, SHARD, end).fetch()


def test_a_range_from_the_start_of_a_shard_is_not_empty_while_the_record_at_its_end_is_there(
    api: KinesisApi, client: KinesisClient
) -> None:
    """Whoever reads on would find that record, and the range would be skipped without a word."""
    (only,) = api.put(b"a")
    for end in (UserRecord(only).position, position_after_record(only)):
        api.mangled = [lambda answer: {**answer, "Records": [], "MillisBehindLatest": 0}] * LOOKS_AT_TIP
        with pytest.raises(RangeIncomplete):
            range_of(client, TRIM_HORIZON, end)


def test_a_malformed_aggregate_is_one_record_of_a_range(api: KinesisApi, client: KinesisClient) -> None:
    broken = aggregated(["a", ""])[:-1] + b"\x00"
    _, number, last = api.put(b"before", broken, b"behind")
    assert range_of(client, TRIM_HORIZON, position_after_record(last)) == [b"before", broken, b"behind"]
    assert range_of(client, position_after_record(number), position_after_record(last)) == [b"behind"]


def test_a_record_is_found_by_its_number_as_long_as_it_is_there(api: KinesisApi, client: KinesisClient) -> None:
    a, b, c = api.put(b"a", aggregated(["b0", "b1"]), b"c")

    def there(number: int) -> bool:
        found = record_numbered(client, STREAM, SHARD, number)
        assert found is None or found.sequence_number == number
        return found is not None

    assert [there(number) for number in (a, b, c, b - 1, b + 1, c + 1)] == [True, True, True, False, False, False]
    api.expire(1)
    assert not there(a)
    oldest = first_record(client, STREAM, SHARD)
    assert oldest is not None
    assert oldest.sequence_number == b
    api.expire(2)
    assert first_record(client, STREAM, SHARD) is None
    del api.shards[SHARD]
    assert not there(c)


def test_nothing_can_have_expired_behind_a_position_whose_record_or_next_number_is_there(
    api: KinesisApi, client: KinesisClient
) -> None:
    a, b, c = api.put(b"a", aggregated(["b0", "b1"]), b"c")

    def whole(position: int) -> bool:
        return is_whole_behind(client, STREAM, SHARD, position)

    assert whole(TRIM_HORIZON)
    assert whole(SHARD_END)
    every = [position_after_record(a), UserRecord(b).position, UserRecord(b, 1).position, position_after_record(b)]
    assert [whole(position) for position in every] == [True] * 4
    api.expire(1)
    assert [whole(position) for position in every] == [False, True, True, True]
    api.expire(1)
    assert [whole(position) for position in every] == [False, False, False, False]
    assert whole(UserRecord(c).position)


def test_silence_is_not_the_same_as_no_record(api: KinesisApi, client: KinesisClient) -> None:
    (number,) = api.put(b"a")
    api.refusals = [refusal("InternalFailure", "Any", status=500)] * 1000
    with pytest.raises(SourceUnreachable):
        record_numbered(client, STREAM, SHARD, number)
    with pytest.raises(SourceUnreachable):
        is_whole_behind(client, STREAM, SHARD, position_after_record(number))
    with pytest.raises(SourceUnreachable):
        first_record(client, STREAM, SHARD)


@pytest.mark.parametrize(
    "asked",
    [
        lambda client, number: record_numbered(client, STREAM, SHARD, number) is not None,
        lambda client, number: is_whole_behind(client, STREAM, SHARD, position_after_record(number)),
        lambda client, number: first_record(client, STREAM, SHARD) is not None,
    ],
)
def test_an_expired_iterator_does_not_end_the_look_for_a_single_record(
    asked: Callable[[KinesisClient, int], bool], api: KinesisApi, client: KinesisClient
) -> None:
    """A driver asks between reading and landing: its batch would run again."""
    (number,) = api.put(b"a")
    api.refusals = [refusal("ExpiredIteratorException", "GetRecords")] * 2
    assert asked(client, number)
    api.refusals = [refusal("ExpiredIteratorException", "GetRecords")] * 1000
    with pytest.raises(SourceUnreachable):
        asked(client, number)


def test_an_end_that_is_not_proven_is_asked_for_again_where_a_single_record_is_looked_for(
    api: KinesisApi, client: KinesisClient
) -> None:
    (number,) = api.put(b"a")
    api.mangled = [lambda answer: {**answer, "NextShardIterator": None, "Records": []}]
    assert record_numbered(client, STREAM, SHARD, number) is not None


def test_the_encoder_of_these_tests_makes_aggregates(client: KinesisClient, api: KinesisApi) -> None:
    api.put(aggregated(["a", ""]))
    (record,) = ShardReader(client, STREAM, SHARD, TRIM_HORIZON).fetch().records
    assert [one.malformed for one in user_records(record)] == [None, None]
