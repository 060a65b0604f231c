"""Streams of Kinesis beside a lease table in memory, for tests of what the table shows and of taking over from it."""

from __future__ import annotations

import random

from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.lease_mirror import KnownTable, Seen
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import ShownStream
from tests.kinesis_api import SHARD, STREAM, KinesisApi, StoredShard, client_of
from tests.lease_table_in_memory import LeasesInMemory

STREAM_SHOWN = ShownStream("shop/orders", "system 7 database 5", "0123456789abcdef")


LEFT, RIGHT = "shardId-000000000001", "shardId-000000000002"


HALF = 1 << 127


def bounds(api: KinesisApi, table: LeasesInMemory, start: str = "TrimHorizon") -> KinesisBounds:
    document = {
        "streamName": STREAM,
        "region": "eu-west-1",
        "start": {"from": start},
        "leaseTable": {"tableName": "app"},
    }
    spec = KinesisSource.model_validate(document)
    return KinesisBounds(spec, client_of(api, api.time), KnownTable(table, Seen()))


def with_record_1() -> KinesisApi:
    """A shard whose oldest record is in front of all positions of these tests."""
    api = KinesisApi(next_number=0, chance=SmallSteps())
    api.put(b"1")
    return api


class SmallSteps(random.Random):
    """Sequence numbers without gaps."""

    def randint(self, a: int, b: int) -> int:
        return a


def split(api: KinesisApi) -> None:
    api.shards[LEFT], api.shards[RIGHT] = StoredShard((SHARD,)), StoredShard((SHARD,))
    api.hash_keys = {LEFT: (0, HALF - 1), RIGHT: (HALF, (1 << 128) - 1)}
    api.close_shard()


def at(shard: str, position: int) -> Positions:
    return Positions({Partition(STREAM, shard): position})


def started(api: KinesisApi, table: LeasesInMemory) -> dict[str, int]:
    source = bounds(api, table, "LeaseTable")
    return {str(key.key): position for key, position in source.start(source.view()).items()}
