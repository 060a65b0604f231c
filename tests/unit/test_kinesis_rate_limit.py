"""How fast a shard is asked: what it has given counts, and a call that is made again is told."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.connectors.kinesis.positions import TRIM_HORIZON, position_after_record
from exactlyonce.connectors.kinesis.rate_limit import CALLS_PER_SECOND, MOST_REST_SECONDS, SHARD_BYTES_PER_SECOND
from exactlyonce.connectors.kinesis.reading import ShardReader
from exactlyonce.errors import StartInvalid
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit, Planner
from tests.kinesis_api import SHARD, STREAM, KinesisApi, bounds_of, client_of, refusal

MEGABYTE = 1_000_000


@dataclass
class LimitedApi(KinesisApi):
    """Refuses GetRecords as Kinesis does: after so many bytes for as long as they are worth, and the sixth call of a second."""

    rests_until: float = 0.0
    asked_at: list[float] = field(default_factory=list)
    refused: int = 0

    def get_records(self, **arguments: Any) -> dict[str, Any]:
        now = self.time.seconds
        lately = [at for at in self.asked_at if at > now - 0.999999]
        if now < self.rests_until or len(lately) >= CALLS_PER_SECOND:
            self.refused += 1
            raise refusal("ProvisionedThroughputExceededException", "GetRecords", "Rate exceeded for shard")
        self.asked_at.append(now)
        answer = super().get_records(**arguments)
        size = sum(len(record["Data"]) + len(record["PartitionKey"]) for record in answer["Records"])
        self.rests_until = now + size / SHARD_BYTES_PER_SECOND
        return answer


def filled(records: int, size_bytes: int, page_records: int) -> tuple[LimitedApi, list[int]]:
    """A shard of so many records, and their numbers."""
    api = LimitedApi(page_records=page_records)
    return api, api.put(*[bytes(size_bytes)] * records)


@pytest.mark.parametrize(("size_bytes", "page_records"), [(MEGABYTE, 10), (1000, 1000), (1000, 10), (10, 1)])
def test_a_shard_is_read_at_its_limit_and_no_call_is_refused(size_bytes: int, page_records: int) -> None:
    api, _ = filled(20 * page_records, size_bytes, page_records)
    reader, found = ShardReader(client_of(api, api.time), STREAM, SHARD, TRIM_HORIZON), 0
    while found < 20 * page_records:
        found += len(reader.fetch().records)
    assert api.refused == 0
    first_call, last_call = api.asked_at[0], api.asked_at[-1]
    by_bytes = 19 * page_records * (size_bytes + len("key")) / SHARD_BYTES_PER_SECOND
    by_calls = 19 / CALLS_PER_SECOND
    assert last_call - first_call <= max(by_bytes, by_calls) + 0.001, "no longer than the limits ask for"


def test_a_server_that_sends_more_than_kinesis_may_keeps_nobody_waiting_for_longer() -> None:
    api = KinesisApi(page_records=31)
    api.put(*[bytes(MEGABYTE)] * 31, b"the next one")
    reader = ShardReader(client_of(api, api.time), STREAM, SHARD, TRIM_HORIZON)
    assert [len(reader.fetch().records) for _ in range(2)] == [31, 1]
    assert max(api.time.waited) <= MOST_REST_SECONDS


def planner_of(api: LimitedApi) -> Planner:
    client = client_of(api, api.time)
    return Planner(
        lambda shard, start: ShardReader(client, STREAM, shard, start),
        lambda: client.shards(STREAM),
        BatchLimit(1000, 64 * MEGABYTE),
        client.clock,
    )


def test_a_batch_is_made_of_what_is_there_while_its_shard_gives_nothing_more() -> None:
    """Ten megabytes are worth five seconds, in which Spark can run them."""
    api, numbers = filled(30, MEGABYTE, 10)
    planner = planner_of(api)
    ends = planner.ends(planner.ends({SHARD: TRIM_HORIZON}))
    assert ends == {SHARD: position_after_record(numbers[9])}
    assert api.time.seconds < 1


def test_a_query_of_what_there_is_now_waits_for_a_shard_that_rests_and_ends_with_its_last_record() -> None:
    api, numbers = filled(30, MEGABYTE, 10)
    planner, stands, batches = planner_of(api), {SHARD: TRIM_HORIZON}, 0
    api.time.seconds += 1
    planner.read_until_now()
    while (ends := planner.ends(stands)) != stands:
        stands, batches = ends, batches + 1
    assert stands == {SHARD: position_after_record(numbers[-1])}
    assert (batches, api.refused) == (1 + 3, 0)


def test_a_call_that_is_made_again_is_logged_once_a_minute_for_each_shard(caplog: pytest.LogCaptureFixture) -> None:
    api = KinesisApi()
    client = client_of(api, api.time)
    iterator = client.iterator(STREAM, SHARD, ShardIteratorType="TRIM_HORIZON")
    throttled = refusal("ProvisionedThroughputExceededException", "GetRecords", "Rate exceeded for shard")
    with caplog.at_level(logging.WARNING, "exactlyonce.kinesis"):
        api.refusals = [throttled] * 5
        client.records(STREAM, SHARD, iterator)
        assert len(caplog.messages) == 1
        assert SHARD in caplog.messages[0]
        assert "ProvisionedThroughputExceededException" in caplog.messages[0]
        api.time.seconds += 61
        api.refusals = [throttled]
        client.records(STREAM, SHARD, iterator)
        assert len(caplog.messages) == 2


def test_a_position_that_is_not_in_its_shard_is_refused_at_the_start() -> None:
    """ListShards tells no last number of an open shard, so one of another stream may lie within it."""
    api = KinesisApi()
    own = api.put(b"one", b"two")[0]
    start = {"from": "Positions", "positions": {SHARD: f"after {own}"}}
    bounds = bounds_of(api, **start)
    assert list(bounds.start(bounds.view()).values()) == [position_after_record(own)]
    foreign = bounds_of(api, **{**start, "positions": {SHARD: f"after {own + 12345}"}})
    with pytest.raises(
        StartInvalid, match="the shard holds no such record: it has passed the stream's retention, or is one"
    ):
        foreign.start(foreign.view())
