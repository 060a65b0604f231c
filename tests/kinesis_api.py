"""Kinesis in memory, as boto3 shows it: iterators expire, pages are empty, calls are refused, records pass their retention."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from exactlyonce.aws.calls import Clock
from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.client import KinesisAddress, KinesisClient
from exactlyonce.connectors.kinesis.reading import read_range
from exactlyonce.connectors.kinesis.spec import KinesisSource

STREAM, SHARD = "orders", "shardId-000000000000"
START_SECONDS = 1_700_000_000.0
ITERATOR_SECONDS = 300.0
GREATEST_HASH_KEY = (1 << 128) - 1


class ManualTime:
    """A clock that moves when somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waited: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.seconds += seconds

    def clock(self, seed: int = 0) -> Clock:
        return Clock(lambda: self.seconds, lambda: START_SECONDS + self.seconds, self.sleep, random.Random(seed))


def refusal(code: str, method: str, message: str = "", status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, method)


@dataclass
class StoredShard:
    """The records of a shard, those that have expired as None. `opened_at` is the lowest number that one of them may have."""

    parents: tuple[str, ...] = ()
    records: list[dict[str, Any] | None] = field(default_factory=list)
    is_closed: bool = False
    opened_at: int = 1


@dataclass
class KinesisApi:
    """What `boto3.client("kinesis")` gives, for one stream.

    `page_records` is the most of one answer, however much is asked for. `refuse` is called before each call and may raise. Of
    the answers of GetRecords, `empty_share` are empty although something follows.
    """

    time: ManualTime = field(default_factory=ManualTime)
    page_records: int = 3
    empty_share: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    shards: dict[str, StoredShard] = field(default_factory=lambda: {SHARD: StoredShard()})
    created: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    retention_hours: int = 24
    shards_a_page: int = 100
    calls: Counter[str] = field(default_factory=Counter)
    call_seconds: list[tuple[str, float]] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    mangled: list[Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=list)
    """What becomes of the next answers of GetRecords, one after the other."""
    hash_keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The range of each shard that does not hold all hash keys."""
    is_missing: bool = False
    next_number: int = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898

    def put(self, *data: bytes, shard: str = SHARD) -> list[int]:
        """Add records and return their sequence numbers, which are sparse."""
        numbers = []
        for content in data:
            self.next_number += self.chance.randint(1, 1 << 40)
            numbers.append(self.next_number)
            arrived = datetime.fromtimestamp(START_SECONDS + self.time.seconds, UTC)
            record = {
                "SequenceNumber": str(self.next_number),
                "Data": content,
                "PartitionKey": "key",
                "ApproximateArrivalTimestamp": arrived,
            }
            self.shards[shard].records.append(record)
        return numbers

    def halve(self, shard: str, *children: str) -> None:
        """Close a shard whose range is known and open two, which hold a half of it each."""
        self.close_shard(shard)
        first, last = self.hash_keys[shard]
        middle = (first + last) // 2
        self.next_number += 1
        for child, hash_keys in zip(children, ((first, middle), (middle + 1, last)), strict=True):
            self.shards[child] = StoredShard((shard,), opened_at=self.next_number)
            self.hash_keys[child] = hash_keys

    def close_shard(self, shard: str = SHARD) -> None:
        self.shards[shard].is_closed = True

    def expire(self, count: int, shard: str = SHARD) -> None:
        """Let the oldest records pass their retention."""
        records = self.shards[shard].records
        left = [place for place, record in enumerate(records) if record is not None]
        for place in left[:count]:
            records[place] = None

    def expire_by_age(self) -> None:
        oldest = datetime.fromtimestamp(START_SECONDS + self.time.seconds, UTC) - timedelta(hours=self.retention_hours)
        for shard in self.shards.values():
            shard.records[:] = [r if r and r["ApproximateArrivalTimestamp"] > oldest else None for r in shard.records]

    def describe_stream_summary(self, **arguments: Any) -> dict[str, Any]:
        self._called("describe_stream_summary")
        self._require_stream()
        summary = {
            "StreamName": STREAM,
            "StreamARN": f"arn:aws:kinesis:eu-west-1:1:stream/{STREAM}",
            "StreamStatus": "ACTIVE",
            "StreamCreationTimestamp": self.created,
            "RetentionPeriodHours": self.retention_hours,
        }
        return {"StreamDescriptionSummary": summary}

    def list_shards(self, **arguments: Any) -> dict[str, Any]:
        self._called("list_shards")
        self._require_stream()
        assert ("NextToken" in arguments) != ("StreamName" in arguments), "Kinesis takes one of both"
        first = int(arguments.get("NextToken", 0))
        names = list(self.shards)[first : first + self.shards_a_page]
        more = first + self.shards_a_page < len(self.shards)
        told = [self._told(name, self.shards[name]) for name in names]
        return {"Shards": told} | ({"NextToken": str(first + self.shards_a_page)} if more else {})

    def get_shard_iterator(self, **arguments: Any) -> dict[str, Any]:
        self._called("get_shard_iterator")
        self._require_stream()
        shard_id = arguments["ShardId"]
        if shard_id not in self.shards:
            raise refusal("ResourceNotFoundException", "GetShardIterator", f"Shard {shard_id} does not exist")
        records = self.shards[shard_id].records
        if arguments["ShardIteratorType"] == "TRIM_HORIZON":
            return {"ShardIterator": self._iterator(shard_id, 0)}
        if arguments["ShardIteratorType"] == "AT_TIMESTAMP":
            moment = arguments["Timestamp"]
            later = (n for n, r in enumerate(records) if r and r["ApproximateArrivalTimestamp"] >= moment)
            return {"ShardIterator": self._iterator(shard_id, next(later, len(records)))}
        if arguments["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER":
            arguments = {**arguments, "StartingSequenceNumber": int(arguments["StartingSequenceNumber"]) + 1}
        else:
            assert arguments["ShardIteratorType"] == "AT_SEQUENCE_NUMBER"
        wanted = int(arguments["StartingSequenceNumber"])
        first = next((n for n, r in enumerate(records) if r and int(r["SequenceNumber"]) >= wanted), len(records))
        return {"ShardIterator": self._iterator(shard_id, first)}

    def get_records(self, **arguments: Any) -> dict[str, Any]:
        self._called("get_records")
        self._require_stream()
        shard_id, at, made_at = arguments["ShardIterator"].split(":")
        if self.time.seconds > float(made_at) + ITERATOR_SECONDS:
            raise refusal("ExpiredIteratorException", "GetRecords", "Iterator expired")
        shard, first = self.shards[shard_id], int(at)
        if self.chance.random() < self.empty_share and first < len(shard.records):
            return {"Records": [], "NextShardIterator": self._iterator(shard_id, first), "MillisBehindLatest": 1000}
        found: list[dict[str, Any]] = []
        while first < len(shard.records) and len(found) < min(self.page_records, arguments["Limit"]):
            record = shard.records[first]
            found += [] if record is None else [record]
            first += 1
        behind = 0
        if first < len(shard.records):
            next_one = next((record for record in shard.records[first:] if record), None)
            arrived = next_one["ApproximateArrivalTimestamp"].timestamp() if next_one else START_SECONDS
            behind = max(1, round((START_SECONDS + self.time.seconds - arrived) * 1000))
        answer = {"Records": found, "MillisBehindLatest": behind}
        if first < len(shard.records) or not shard.is_closed:
            answer["NextShardIterator"] = self._iterator(shard_id, first)
        return self.mangled.pop(0)(answer) if self.mangled else answer

    def _iterator(self, shard_id: str, at: int) -> str:
        return f"{shard_id}:{at}:{self.time.seconds}"

    def _called(self, method: str) -> None:
        self.calls[method] += 1
        self.call_seconds.append((method, self.time.seconds))
        if self.refusals and (method == "get_records" or "ExpiredIterator" not in str(self.refusals[0])):
            raise self.refusals.pop(0)

    def _require_stream(self) -> None:
        if self.is_missing:
            raise refusal("ResourceNotFoundException", "Any", "Stream orders under account 1 not found")

    def _told(self, name: str, shard: StoredShard) -> dict[str, Any]:
        parents = dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False))
        ending = {"EndingSequenceNumber": str(self.next_number)} if shard.is_closed else {}
        first, last = self.hash_keys.get(name, (0, GREATEST_HASH_KEY))
        return {
            "ShardId": name,
            "HashKeyRange": {"StartingHashKey": str(first), "EndingHashKey": str(last)},
            "SequenceNumberRange": {"StartingSequenceNumber": str(shard.opened_at), **ending},
            **parents,
        }


def client_of(api: Any, time: ManualTime, seed: int = 0, address: KinesisAddress | None = None) -> KinesisClient:
    """The client under test, over an API in memory."""
    return KinesisClient(address or KinesisAddress("eu-west-1"), lambda: api, time.clock(seed))


def bounds_of(api: KinesisApi, **start: Any) -> KinesisBounds:
    """The stream as the operator asks for it, over that API."""
    document = {"streamName": STREAM, "region": "eu-west-1", "start": start}
    return KinesisBounds(KinesisSource.model_validate(document), client_of(api, api.time))


def range_of(client: KinesisClient, start: int, end: int) -> list[bytes]:
    """The data of a range of the shard."""
    return [record.data for record in read_range(client, STREAM, SHARD, start, end)]
