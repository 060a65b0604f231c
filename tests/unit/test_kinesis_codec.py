"""What stands in Spark's offset log for a Kinesis stream, and what a resource says of one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from exactlyonce.checkpoint.files import FileEmpty, FileTorn
from exactlyonce.connectors.kinesis.codec import CODEC
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.positions.ranges import Partition, Positions

NUMBER = 49590338271490256608559692538361571095921575989136588898
FIRST, SECOND, THIRD, FOURTH = (Partition("orders", f"shardId-{number:012}") for number in range(4))
EVERYWHERE = Positions(
    {
        FIRST: SHARD_END,
        SECOND: TRIM_HORIZON,
        THIRD: position_after_record(NUMBER),
        FOURTH: UserRecord(NUMBER, 3).position,
    }
)


def test_every_kind_of_position_stands_in_the_log_as_its_text_and_comes_back() -> None:
    line = CODEC.render_entry(EVERYWHERE)
    assert json.loads(line) == {
        "orders": {
            FIRST.key: "SHARD_END",
            SECOND.key: "TRIM_HORIZON",
            THIRD.key: f"after {NUMBER}",
            FOURTH.key: f"{NUMBER}:3",
        }
    }
    assert CODEC.parse_entry(line) == EVERYWHERE
    assert CODEC.parse_start(CODEC.render_start(EVERYWHERE)) == EVERYWHERE


def test_shards_read_to_their_end_are_told_from_all_others() -> None:
    assert EVERYWHERE.ended == {FIRST}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" + "{}," * 300_000 + "{}]", "more than 250000 values"),
        ("[]", "is not a map of streams"),
        ('{"orders": 5}', "where a map of shards belongs"),
        ('{"orders": {"shardId-000000000000": 5}}', "where a position belongs"),
        ('{"orders": {"": "TRIM_HORIZON"}}', "where the id of a shard belongs"),
        ('{"orders": {"a shard\\n": "TRIM_HORIZON"}}', "where the id of a shard belongs"),
        ('{"or ders": {}}', "is not the name of a stream"),
        ('{"orders": {"shardId-000000000000": "LATEST"}}', "shardId-000000000000 of stream orders: 'LATEST' is not a"),
        (
            '{"orders": {"shardId-000000000000": "after 007"}}',
            "shardId-000000000000.*a number in it begins with a zero",
        ),
        ('{"orders": {"shardId-000000000000": "07:3"}}', "a number in it begins with a zero"),
        ('{"orders": {"shardId-000000000000": "7:03"}}', "a number in it begins with a zero"),
        ('{"orders": {"shardId-000000000000": "after  7"}}', "is not a position in a shard"),
        ('{"orders": {"shardId-000000000000": " SHARD_END"}}', "is not a position in a shard"),
        ('{"orders": {"s": "TRIM_HORIZON", "s": "SHARD_END"}}', "a name twice in one object"),
        ('{"orders": {"s": "TRIM_HORIZON"}, "orders": {}}', "a name twice in one object"),
        (f'{{"orders": {{"s": "after {1 << 256}"}}}}', "is not a sequence number"),
    ],
)
def test_a_torn_line_is_named_by_what_is_wrong_with_it(line: str, named: str) -> None:
    with pytest.raises(FileTorn, match=named):
        CODEC.parse_entry(line)


@pytest.mark.parametrize("position", ["after 0", f"after {'9' * 76}", f"{'9' * 76}:999999999", "0:1"])
def test_every_position_that_a_resource_may_give_can_be_read(position: str) -> None:
    given = _source(start={"from": "Positions", "positions": {FIRST.key: position}}).start.positions_in("orders")
    assert CODEC.parse_entry(CODEC.render_entry(given)) == given


def test_a_start_without_bytes_is_empty_and_not_torn() -> None:
    with pytest.raises(FileEmpty):
        CODEC.parse_start(b"")


def _source(**fields: Any) -> KinesisSource:
    return KinesisSource.model_validate({"streamName": "orders", "region": "eu-central-1", **fields})


def test_a_stream_is_named_by_its_name_and_region_or_by_its_arn() -> None:
    by_arn = KinesisSource.model_validate({"streamArn": "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"})
    for source in (_source(), by_arn):
        assert (source.stream, source.where, source.address) == ("orders", "eu-central-1", "eu-central-1")
    assert _source(endpoint="http://localhost:5000").address == "eu-central-1 (http://localhost:5000)"


def test_all_shards_of_the_named_stream_are_read_and_no_others() -> None:
    source = _source()
    origins = {"orders": ["shardId-000000000000"], "other": ["shardId-000000000000"]}
    assert source.selected(origins) == (frozenset({FIRST}), ())
    assert source.selected({"other": ["shardId-000000000000"]}) == (frozenset(), ("orders",))
    assert source.selection().reads(FIRST)
    assert not source.selection().reads(Partition("other", "shardId-000000000000"))


def test_the_limits_of_a_batch_have_defaults_and_are_told() -> None:
    assert _source().batch_limit(None) == "1000000 records or 268435456 bytes"
    assert _source(maxRecordsPerTrigger=5, maxBytesPerTrigger=70).batch_limit(None) == "5 records or 70 bytes"


def test_given_positions_are_those_of_the_stream() -> None:
    given = {
        FIRST.key: "SHARD_END",
        SECOND.key: "TRIM_HORIZON",
        THIRD.key: f"after {NUMBER}",
        FOURTH.key: f"{NUMBER}:3",
    }
    assert _source(start={"from": "Positions", "positions": given}).start.positions_in("orders") == EVERYWHERE


def test_a_moment_has_its_zone() -> None:
    start = _source(start={"from": "Timestamp", "timestamp": "2026-01-31T02:00:00+02:00"}).start
    assert start.moment == datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"streamName": None}, "give exactly one of: streamName, streamArn"),
        ({"region": None}, "region belongs to streamName, and streamName needs it"),
        ({"streamName": "or ders"}, "write a stream's name"),
        ({"streamName": None, "streamArn": "orders"}, "write the stream's ARN"),
        ({"start": {"from": "Timestamp"}}, "timestamp belongs to from: Timestamp"),
        ({"start": {"from": "Positions"}}, "positions belongs to from: Positions"),
        ({"start": {"from": "Positions", "positions": {"shard-0": "TRIM_HORIZON"}}}, "name shards as Kinesis does"),
        ({"start": {"from": "Positions", "positions": {FIRST.key: "LATEST"}}}, "write TRIM_HORIZON, SHARD_END"),
        ({"start": {"from": "Positions", "positions": {FIRST.key: "49:0"}}}, "write TRIM_HORIZON, SHARD_END"),
        ({"start": {"from": "Positions", "positions": {FIRST.key: "after 049"}}}, "with no zeros in front"),
        ({"start": {"from": "Positions", "positions": {FIRST.key: f"after {'9' * 77}"}}}, "write TRIM_HORIZON"),
        ({"maxRecordsPerTrigger": 0}, "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        _source(**fields)
