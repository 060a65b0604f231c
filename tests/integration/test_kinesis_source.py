"""Kinesis read over HTTP, against the testbed's stand-in: positions, reshards, aggregates, what has expired."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactlyonce.connectors.kinesis.aggregation import UserRecordData
from exactlyonce.connectors.kinesis.client import KinesisAddress, KinesisClient
from exactlyonce.connectors.kinesis.clients import kinesis_client
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
    read_range,
    record_numbered,
)
from exactlyonce.connectors.kinesis.shard_map import ShardMap
from exactlyonce.connectors.kinesis.shards import hash_key_of, require_whole_map
from exactlyonce.connectors.kinesis.start import in_order
from exactlyonce.errors import OriginMissing
from exactlyonce.schema.aws_login import AwsLogin
from exactlyonce_spark.connectors.kinesis.lineage import Lineage
from exactlyonce_spark.connectors.kinesis.rows import arrow_batches
from testbed.kinesis import Kinesis
from tests.decoders import BYTES, NOTHING

AGGREGATES = Path(__file__).parents[1] / "unit" / "kinesis_aggregates.json"


@pytest.fixture(scope="module")
def kinesis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinesis]:
    with Kinesis(tmp_path_factory.mktemp("kinesis")) as service:
        yield service


@pytest.fixture
def client(kinesis: Kinesis) -> KinesisClient:
    return kinesis_client(
        KinesisAddress(kinesis.region, kinesis.endpoint, AwsLogin(kinesis.access_key, kinesis.secret_key))
    )


@pytest.fixture
def stream(kinesis: Kinesis, request: pytest.FixtureRequest) -> str:
    """A stream of the test's own with two shards."""
    name = str(request.node.name)[:100]
    kinesis.create_stream(name, 2)
    return name


def put(kinesis: Kinesis, stream: str, *ids: str) -> list[tuple[str, int]]:
    return kinesis.put(stream, *((f"key {one}", one.encode()) for one in ids))


def read_stream(client: KinesisClient, stream: str, positions: dict[str, int]) -> list[tuple[str, str]]:
    """Read all that may be read, shard by shard, parents first; advance `positions`, return shard and id of each record."""
    found: list[tuple[str, str]] = []
    shards = client.shards(stream)
    positions |= {} if positions else in_order(shards, lambda shard: TRIM_HORIZON)
    waiting = list(positions)
    while waiting:
        shard = waiting.pop(0)
        reader = ShardReader(client, stream, shard, positions[shard])
        while True:
            fetched = reader.fetch()
            found += [(shard, record.data.decode()) for record in fetched.records]
            positions[shard] = fetched.position
            if fetched.at_end or not fetched.records:
                break
        children = dict.fromkeys(Lineage(shards, positions).appearing, TRIM_HORIZON)
        waiting += children
        positions |= children
    return found


def test_the_shard_of_each_record_is_computed_from_its_key_through_splits_and_merges(
    kinesis: Kinesis, client: KinesisClient, stream: str
) -> None:
    """By its number in the map of now, and without one in the map that was recorded when it was put."""
    where: list[tuple[str, tuple[str, int]]] = []
    recorded: list[tuple[ShardMap, list[str], list[tuple[str, int]]]] = []

    def put_more(letter: str) -> None:
        keys = [f"{letter}{number}" for number in range(30)]
        recorded.append((ShardMap(client.shards(stream)), keys, put(kinesis, stream, *keys)))
        where.extend(zip(keys, recorded[-1][2], strict=True))

    put_more("a")
    kinesis.split(stream, "shardId-000000000000")
    put_more("b")
    kinesis.merge(stream, "shardId-000000000003", "shardId-000000000001")
    put_more("c")
    shards = ShardMap(client.shards(stream))
    hash_keys = {one: hash_key_of(f"key {one}", None) for one, _ in where}
    assert {one: shards.shard_of(hash_keys[one], number).id for one, (_, number) in where} == {
        one: shard for one, (shard, _) in where
    }
    for then, keys, put_then in recorded:
        assert [then.shard_of(hash_keys[one]).id for one in keys] == [shard for shard, _ in put_then]
    users = [(shard, UserRecordData(UserRecord(number), f"key {one}", None, b"", 0)) for one, (shard, number) in where]
    rows = [batch for shard, user in users for batch in arrow_batches([user], stream, shard, BYTES, NOTHING, shards)]
    assert all(batch.column("computed_shard").to_pylist() == batch.column("shard_id").to_pylist() for batch in rows)
    assert len({shard for shard, _ in users}) == 5


def test_what_is_put_is_read_once_from_its_shard_and_a_range_gives_it_again(
    kinesis: Kinesis, client: KinesisClient, stream: str
) -> None:
    require_whole_map(client.shards(stream))
    ids = [f"id-{n}" for n in range(40)]
    where = put(kinesis, stream, *ids)
    positions: dict[str, int] = {}
    assert Counter(one for _, one in read_stream(client, stream, positions)) == Counter(ids)
    shards = client.shards(stream)
    for one, (shard_id, _) in zip(ids, where, strict=True):
        assert [shard.id for shard in shards if shard.holds_key(hash_key_of(f"key {one}", None))] == [shard_id]
    for shard_id, position in positions.items():
        again = [record.data.decode() for record in read_range(client, stream, shard_id, TRIM_HORIZON, position)]
        assert again == [one for one, (at, _) in zip(ids, where, strict=True) if at == shard_id]
    assert read_stream(client, stream, positions) == []


def test_a_split_and_a_merge_lose_nothing_and_parents_come_before_their_children(
    kinesis: Kinesis, client: KinesisClient, stream: str
) -> None:
    positions: dict[str, int] = {}
    put(kinesis, stream, *(f"first-{n}" for n in range(20)))
    found = read_stream(client, stream, positions)
    put(kinesis, stream, *(f"before the split-{n}" for n in range(20)))
    kinesis.split(stream, "shardId-000000000000")
    put(kinesis, stream, *(f"between-{n}" for n in range(20)))
    kinesis.merge(stream, "shardId-000000000003", "shardId-000000000001")
    put(kinesis, stream, *(f"after the merge-{n}" for n in range(20)))
    found += read_stream(client, stream, positions)
    names = ("first", "before the split", "between", "after the merge")
    assert Counter(one for _, one in found) == Counter(f"{name}-{n}" for name in names for n in range(20))
    of_merged = {one.rpartition("-")[0] for shard, one in found if shard == "shardId-000000000004"}
    assert of_merged == {"after the merge"}
    closed = {f"shardId-00000000000{n}" for n in (0, 1, 3)}
    assert {shard for shard, position in positions.items() if position == SHARD_END} == closed
    order = [shard for shard, _ in found]
    last = {shard: place for place, shard in enumerate(order)}
    assert order.index("shardId-000000000002") > last["shardId-000000000000"]
    assert order.index("shardId-000000000004") > max(last[parent] for parent in closed)
    for shard in closed:
        list(read_range(client, stream, shard, TRIM_HORIZON, SHARD_END))


def test_a_read_goes_on_inside_an_aggregate_of_another_language(
    kinesis: Kinesis, client: KinesisClient, stream: str
) -> None:
    vector = next(one for one in json.loads(AGGREGATES.read_text())["aggregates"] if "three" in one["name"])
    ((shard, number), (_, last)) = kinesis.put(stream, ("k", base64.b64decode(vector["data"])), ("k", b"4"))
    cut, end = UserRecord(number, 1).position, position_after_record(last)
    assert [record.data for record in read_range(client, stream, shard, TRIM_HORIZON, cut)] == [b"1"]
    assert [record.data for record in read_range(client, stream, shard, cut, end)] == [b"2", b"3", b"4"]
    assert record_numbered(client, stream, shard, number) is not None


def test_a_position_that_has_expired_is_told_and_an_expired_iterator_is_not(
    kinesis: Kinesis, client: KinesisClient, stream: str
) -> None:
    where = kinesis.put(stream, *(("k", str(n).encode()) for n in range(5)))
    shard = where[0][0]
    reader = ShardReader(client, stream, shard, position_after_record(where[0][1]))
    assert [record.data for record in reader.fetch().records] == [b"1", b"2", b"3", b"4"]
    kinesis.expire_iterators()
    kinesis.put(stream, ("k", b"5"))
    assert [record.data for record in reader.fetch().records] == [b"5"]
    kinesis.expire_records(stream, shard, 3)
    assert record_numbered(client, stream, shard, where[0][1]) is None
    with pytest.raises(PositionExpired, match=f"shard {shard} of stream {stream}"):
        ShardReader(client, stream, shard, position_after_record(where[0][1])).fetch()
    with pytest.raises(PositionExpired):
        list(read_range(client, stream, shard, position_after_record(where[0][1]), position_after_record(where[4][1])))
    with pytest.raises(RangeIncomplete):
        list(read_range(client, stream, shard, position_after_record(where[3][1]), SHARD_END))


def test_an_expired_shard_is_listed_no_more_and_its_children_are_read(
    kinesis: Kinesis, client: KinesisClient, stream: str
) -> None:
    positions: dict[str, int] = {}
    ((shard, number),) = kinesis.put(stream, ("k", b"1"))
    kinesis.split(stream, shard)
    assert [one for _, one in read_stream(client, stream, positions)] == ["1"]
    kinesis.expire_shard(stream, shard)
    assert shard not in [one.id for one in client.shards(stream)]
    kinesis.put(stream, ("k", b"2"))
    assert [one for _, one in read_stream(client, stream, positions)] == ["2"]
    with pytest.raises(PositionExpired, match="lists shard"):
        ShardReader(client, stream, shard, position_after_record(number)).fetch()


def test_a_stream_that_was_created_again_shows_another_time_of_creation(
    kinesis: Kinesis, client: KinesisClient, stream: str
) -> None:
    before = client.describe(stream)
    kinesis.client().delete_stream(StreamName=stream)
    with pytest.raises(OriginMissing, match=f"no stream {stream} in Kinesis in us-east-1 at {kinesis.endpoint}"):
        client.describe(stream)
    kinesis.create_stream(stream, 2)
    assert client.describe(stream).created > before.created
