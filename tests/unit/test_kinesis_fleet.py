"""The monitor asks one Kinesis for many streams: what is wrong with one is told of it alone, and no round takes for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.connectors.kinesis.connector import SOURCE
from exactlyonce.connectors.kinesis.fleet import KinesisFleet
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.errors import SourceRefused, SourceUnreachable
from exactlyonce.ledger.connector import Landed
from exactlyonce.monitor.gathering import Watched, query_source
from exactlyonce.monitor.monitor import Clients, Monitor
from exactlyonce.monitor.snapshot import after_ledger
from exactlyonce.monitor.targets import Target
from exactlyonce.positions.ranges import BatchNumber, Partition
from tests.kinesis_api import SHARD, START_SECONDS, KinesisApi, ManualTime, StoredShard, client_of, refusal
from tests.resource_documents import GONE, document
from tests.unit.monitored_stores import Database, measured, series_of

DENIED = refusal("AccessDeniedException", "ListShards", "no")


class Streams:
    """Kinesis with several streams by name; `before` is called with each method and stream, and may raise."""

    def __init__(self, *names: str) -> None:
        self.time = ManualTime()
        self.of = {name: KinesisApi(self.time) for name in names}
        self.before: Callable[[str, str], None] = lambda method, stream: None

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        def call(**arguments: Any) -> dict[str, Any]:
            iterator = arguments.get("ShardIterator")
            name = iterator.split(" ")[0] if iterator else arguments["StreamName"]
            self.before(method, name)
            if iterator:
                arguments["ShardIterator"] = iterator.split(" ")[1]
            answer: dict[str, Any] = getattr(self.of[name], method)(**arguments)
            for field in ("ShardIterator", "NextShardIterator"):
                if field in answer:
                    answer[field] = f"{name} {answer[field]}"
            return answer

        return call

    def calls(self) -> dict[str, int]:
        return {name: api.calls.total() for name, api in self.of.items()}


def source(name: str) -> KinesisSource:
    return KinesisSource.model_validate({"streamName": name, "region": "eu-west-1"})


def partition(name: str, shard: str = SHARD) -> Partition:
    return Partition(name, shard)


def fleet_of(api: Streams) -> KinesisFleet:
    return KinesisFleet(client_of(api, api.time))


def target(name: str) -> Target:
    kinesis = {"streamName": name, "region": "eu-west-1", "secretRef": {"name": "warehouse"}}
    changes = {
        "metadata.name": name,
        "metadata.namespace": "shop",
        "spec.source.kafka": GONE,
        "spec.source.kinesis": kinesis,
    }
    stream = parse_stream(document(changes), "the resource")
    secret = {"host": "db", "dbname": "warehouse", "user": "u", "password": "hidden"}
    login = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "a-secret-key"}
    return measured(stream, secret | login)


def watched(name: str, position: int = TRIM_HORIZON, shard: str = SHARD) -> Watched:
    found = Watched(target(name))
    landed = Landed(BatchNumber(4), 0.0, BatchNumber(4), {partition(name, shard): position})
    found.learn(lambda before: after_ledger(before, landed))
    return found


def test_streams_of_one_name_in_two_accounts_are_asked_apart() -> None:
    def key(**fields: str) -> tuple[tuple[str, str], ...]:
        spec = KinesisSource.model_validate({**fields, "secretRef": {"name": "kinesis"}})
        return SOURCE.address(spec, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}).key

    named = key(streamName="orders", region="eu-west-1")
    first, second = (key(streamArn=f"arn:aws:kinesis:eu-west-1:{n:012}:stream/orders") for n in (1, 2))
    assert len({named, first, second}) == 3
    assert key(streamArn="arn:aws:kinesis:eu-west-1:000000000001:stream/payments") == first
    assert SOURCE.fleet(first) is not None


def test_a_refused_stream_is_told_by_itself_and_the_others_are_measured() -> None:
    api = Streams("bad", "good")
    api.of["good"].put(b"a")

    def before(method: str, stream: str) -> None:
        if stream == "bad":
            raise DENIED

    api.before = before
    bad, good = watched("bad"), watched("good")
    assert query_source(fleet_of(api), [bad, good]) is None
    assert "may not call kinesis:ListShards on stream bad" in str(bad.snapshot.source_problem)
    assert good.snapshot.source_up
    assert good.snapshot.oldest_timestamp(START_SECONDS) == START_SECONDS
    assert isinstance(query_source(fleet_of(api), [bad]), SourceRefused), "nobody was answered"


@pytest.mark.parametrize("refused", ["describe_stream_summary", "get_shard_iterator", "get_records"])
def test_a_stream_that_is_refused_at_any_call_is_told_by_itself(refused: str) -> None:
    api = Streams("bad", "good")
    api.of["good"].put(b"a")

    def before(method: str, stream: str) -> None:
        if (method, stream) == (refused, "bad"):
            raise DENIED

    api.before = before
    bad, good = watched("bad"), watched("good")
    query_source(fleet_of(api), [bad, good])
    assert "stream bad" in str(bad.snapshot.source_problem)
    assert good.snapshot.source_up
    assert good.snapshot.oldest_timestamp(START_SECONDS) == START_SECONDS


def test_a_refused_shard_is_told_and_the_age_of_the_others_is_known() -> None:
    api = Streams("orders")
    api.of["orders"].shards["other"] = StoredShard()
    api.of["orders"].put(b"a", shard="other")
    fleet = fleet_of(api)
    fleet.origins([source("orders")])
    found = fleet.timestamps({partition("orders", "gone"): 0, partition("orders", "other"): 0}, committed_only=False)
    assert found[partition("orders", "other")] == START_SECONDS
    assert "no longer lists shard gone" in str(found[partition("orders", "gone")])


def test_an_idle_shard_is_looked_at_once_a_round_and_its_stream_is_described_once_a_minute() -> None:
    api = Streams("orders")
    (number,) = api.of["orders"].put(b"a")
    fleet, where = fleet_of(api), {partition("orders"): position_after_record(number)}
    fleet.origins([source("orders")])
    calls = api.of["orders"].calls
    for _ in range(5):
        assert fleet.timestamps(where, committed_only=False) == {partition("orders"): None}
        assert fleet.bounds(frozenset(where), committed_only=False).bounds.keys() == where.keys()
    assert (calls["get_shard_iterator"], calls["get_records"], calls["describe_stream_summary"]) == (1, 5, 1)
    api.time.seconds += 400
    assert fleet.timestamps(where, committed_only=False) == {partition("orders"): None}
    assert calls["get_shard_iterator"] == 2, "the iterator had expired"
    api.of["orders"].put(b"b")
    assert fleet.timestamps(where, committed_only=False) == {partition("orders"): START_SECONDS + api.time.seconds}


def of_empty_pages(share: float) -> tuple[Streams, KinesisFleet]:
    """One record in a shard, and so large a share of answers without any."""
    api = Streams("orders")
    api.of["orders"].put(b"a")
    api.of["orders"].empty_share = share
    fleet = fleet_of(api)
    fleet.origins([source("orders")])
    return api, fleet


def test_a_record_behind_empty_pages_is_found() -> None:
    _, fleet = of_empty_pages(0.5)
    for _ in range(20):
        assert fleet.timestamps({partition("orders"): TRIM_HORIZON}, committed_only=False) == {
            partition("orders"): START_SECONDS
        }


def test_a_shard_that_answers_empty_pages_only_is_given_up_and_not_told_to_be_empty() -> None:
    api, fleet = of_empty_pages(1.0)
    found = fleet.timestamps({partition("orders"): TRIM_HORIZON}, committed_only=False)
    assert isinstance(found[partition("orders")], SourceUnreachable)
    assert api.of["orders"].calls["get_records"] == 10


def test_the_age_of_a_shards_oldest_record_is_known_where_kinesis_refuses_the_number_in_front_of_it() -> None:
    """No record need have had that number, and Kinesis may say that it did not come from the stream."""
    api = Streams("orders")
    (number,) = api.of["orders"].put(b"a")
    api.of["orders"].refusals = [
        refusal(
            "InvalidArgumentException", "GetShardIterator", "StartingSequenceNumber 1 did not come from this stream"
        )
    ]
    fleet = fleet_of(api)
    found = fleet.timestamps({partition("orders"): UserRecord(number).position}, committed_only=False)
    assert found == {partition("orders"): START_SECONDS}


def test_another_position_is_not_read_on_from_the_iterator_of_the_former_one() -> None:
    api = Streams("orders")
    first, second = api.of["orders"].put(b"a", b"b")
    fleet = fleet_of(api)
    fleet.origins([source("orders")])
    assert fleet.timestamps({partition("orders"): position_after_record(second)}, committed_only=False) == {
        partition("orders"): None
    }
    assert fleet.timestamps({partition("orders"): position_after_record(first)}, committed_only=False) == {
        partition("orders"): START_SECONDS
    }
    assert fleet.timestamps({partition("orders"): SHARD_END}, committed_only=False) == {partition("orders"): None}


def test_a_round_ends_in_time_and_the_next_one_begins_with_those_that_were_not_asked() -> None:
    names = [f"stream-{number}" for number in range(10)]
    api = Streams(*names)

    def slow(method: str, stream: str) -> None:
        api.time.seconds += 6.0

    api.before = slow
    fleet = fleet_of(api)
    specs = [source(name) for name in names]
    for ask in (
        lambda: fleet.origins(specs),
        lambda: fleet.timestamps({partition(name): 0 for name in names}, committed_only=False),
    ):
        answered: list[str] = []
        for _ in range(10):
            began = api.time.seconds
            found: dict[Any, Any] = dict(ask())
            assert api.time.seconds - began <= 20 + 12
            assert found
            answered += [str(key) for key, told in found.items() if not isinstance(told, SourceUnreachable)]
        late = [told for told in fleet.origins(specs).values() if isinstance(told, SourceUnreachable)]
        assert "was not asked for stream" in str(late[0]), "nobody takes it for a stream that is missing"
        assert len(set(answered)) == len(names), "nobody is left out for ever"


def test_a_throttled_shard_does_not_hold_up_a_round() -> None:
    api = Streams("bad", "good")

    def before(method: str, stream: str) -> None:
        if (method, stream) == ("get_records", "bad"):
            raise refusal("ProvisionedThroughputExceededException", "GetRecords")

    api.before = before
    fleet = fleet_of(api)
    fleet.origins([source("bad"), source("good")])
    began = api.time.seconds
    for _ in range(2):
        found = fleet.timestamps({partition("bad"): 0, partition("good"): 0}, committed_only=False)
    assert found[partition("good")] is None
    assert isinstance(found[partition("bad")], SourceUnreachable)
    assert api.time.seconds - began <= 41


def test_a_whole_round_of_the_monitor_measures_what_can_be_measured() -> None:
    api = Streams("bad", "good")
    api.of["good"].put(b"a")
    api.of["bad"].is_missing = True
    problems: list[str] = []
    made = Clients(lambda key: fleet_of(api), lambda key: Database({}))
    monitor = Monitor(made, on_problem=problems.append)
    for name in ("bad", "good"):
        monitor.watch(target(name))
    asyncio.run(monitor.round())
    told = {view.key.name: view.snapshot for view in monitor.streams()}
    assert told["good"] is not None
    assert told["good"].source_up
    assert told["bad"] is not None
    assert "The source has no bad" in str(told["bad"].source_problem)
    assert problems == []


class Shards(Database):
    """A ledger in which streams have landed up to these positions of shards."""

    def __init__(self, positions: dict[Partition, int]) -> None:
        super().__init__({})
        self.positions = positions

    def landed(self, schema: str, since: Mapping[str, BatchNumber | None]) -> Mapping[str, Landed]:
        number = BatchNumber(4)
        return {stream: Landed(number, START_SECONDS, number, self.positions) for stream in since}


def test_the_series_of_shards_tell_ages_and_states_and_no_number_that_counts_nothing() -> None:
    """A shard's positions are of 218 bits and its end of 288: neither is an offset."""
    api, idle, ended = Streams("orders"), "shardId-000000000001", "shardId-000000000002"
    stream = api.of["orders"]
    stream.shards |= {idle: StoredShard(), ended: StoredShard(is_closed=True)}
    first, _ = stream.put(b"a", b"b")
    landed = {
        partition("orders"): position_after_record(first),
        partition("orders", idle): TRIM_HORIZON,
        partition("orders", ended): SHARD_END,
    }
    monitor = Monitor(Clients(lambda key: fleet_of(api), lambda key: Shards(landed)), on_problem=pytest.fail)
    monitor.watch(target("orders"))
    asyncio.run(monitor.round())
    found = series_of(monitor)
    assert found["exactlyonce_stream_partitions"] == {
        "shop/orders/behind": 1.0,
        "shop/orders/caught_up": 1.0,
        "shop/orders/ended": 1.0,
        "shop/orders/unknown": 0.0,
    }
    of_shards = {name: values for name, values in found.items() if name.startswith("exactlyonce_partition_")}
    assert of_shards == {
        "exactlyonce_partition_oldest_not_landed_timestamp_seconds": {f"shop/orders/orders/{SHARD}": START_SECONDS}
    }
    assert found["exactlyonce_stream_oldest_not_landed_timestamp_seconds"] == {"shop/orders": START_SECONDS}
    assert list(found["exactlyonce_stream_retention_remaining_seconds"]) == ["shop/orders"]
    assert "exactlyonce_stream_lag_records" not in found
