"""Where a reset sets the shards of a stream: those read to their ends stay, so that no child is read before its parent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.api.source import Source
from exactlyonce.cli.reset_target import resolved
from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.positions.ranges import Partition, Positions
from tests.kinesis_api import SHARD, START_SECONDS, STREAM, KinesisApi, StoredShard, bounds_of
from tests.resource_documents import GONE, document

CHILD_ID = "shardId-000000000001"
PARENT, CHILD = Partition(STREAM, SHARD), Partition(STREAM, CHILD_ID)


@pytest.fixture
def api() -> KinesisApi:
    return KinesisApi()


def reset(api: KinesisApi, to: str, landed: dict[Partition, int]) -> Positions:
    kinesis = {"streamName": STREAM, "region": "eu-west-1"}
    places = {"spec.checkpoint": {"local": {"path": "/c"}}, "spec.source.kafka": GONE, "spec.source.kinesis": kinesis}

    def opened(source: Source) -> KinesisBounds:
        start: Any = source.to_document()["kinesis"].get("start", {})
        return bounds_of(api, **{name: value for name, value in start.items() if value})

    return resolved(to, Positions(landed), parse_stream(document(places), "a test").spec.source, opened)


def test_the_earliest_of_an_open_shard_is_its_start_and_one_that_was_read_to_its_end_stays(api: KinesisApi) -> None:
    api.put(b"of the parent")
    api.close_shard()
    api.shards[CHILD_ID] = StoredShard((SHARD,))
    (number,) = api.put(b"of the child", shard=CHILD_ID)
    landed = {PARENT: SHARD_END, CHILD: position_after_record(number)}
    assert reset(api, "earliest", landed) == Positions({PARENT: SHARD_END, CHILD: TRIM_HORIZON})


def test_the_earliest_of_a_shard_whose_parents_are_listed_no_more_is_the_oldest_record_that_is_left(
    api: KinesisApi,
) -> None:
    del api.shards[SHARD]
    api.shards[CHILD_ID] = StoredShard((SHARD,))
    *_, left, last = api.put(b"gone", b"left", b"last", shard=CHILD_ID)
    api.expire(1, CHILD_ID)
    landed = {PARENT: SHARD_END, CHILD: position_after_record(last)}
    assert reset(api, "earliest", landed) == Positions({PARENT: SHARD_END, CHILD: UserRecord(left).position})


def test_the_latest_of_an_open_shard_is_behind_its_newest_record(api: KinesisApi) -> None:
    first, _, last = api.put(b"a", b"b", b"c")
    assert reset(api, "latest", {PARENT: position_after_record(first)}) == Positions(
        {PARENT: position_after_record(last)}
    )


def test_the_latest_of_a_closed_shard_that_was_not_read_to_its_end_is_where_it_stands(api: KinesisApi) -> None:
    first, _ = api.put(b"a", b"b")
    api.close_shard()
    api.shards[CHILD_ID] = StoredShard((SHARD,))
    assert reset(api, "latest", {PARENT: position_after_record(first)}) == Positions(
        {PARENT: position_after_record(first)}
    )


def test_a_moment_is_the_first_record_that_arrived_then(api: KinesisApi) -> None:
    api.put(b"before")
    api.time.seconds = 100.0
    at, last = api.put(b"at", b"after")
    moment = datetime.fromtimestamp(START_SECONDS + 50, UTC).isoformat()
    landed = {PARENT: position_after_record(last)}
    assert reset(api, f"timestamp={moment}", landed) == Positions({PARENT: UserRecord(at).position})
