"""What moto's Kinesis lacks, put right in the process that serves it.

moto moves the records of a shard that is split into its children, and copies those of merged ones; it counts sequence numbers
from 1 in each shard, never ends a closed shard, leaves the last hash key of each shard to nobody, and forgets neither
records nor iterators. Here they are as Kinesis documents them: a closed shard keeps its records and is read to its end;
sequence numbers have 56 digits, are sparse, and grow with time over all shards; both ends of a range belong to a shard;
whoever reads a shard to its end is told its children.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.core.utils import unix_time
from moto.kinesis import models, responses
from moto.kinesis.exceptions import InvalidArgumentError

from testbed.kinesis import ORDERS_PATH
from testbed.moto_server import Application

FIRST_SEQUENCE_NUMBER = 49590338271490256608559692538361571095921575989136588898
_STEP = 1_000_003
_MOST_BYTES, _MOST_RECORDS = 10 * 1024 * 1024, 10_000

_numbers = itertools.count(FIRST_SEQUENCE_NUMBER, _STEP)
_iterators_since = [0.0]
"""Iterators made before are expired."""


class Shard(models.Shard):  # type: ignore[misc] # moto has no types
    """A shard that keeps its records when it is closed, and forgets the oldest ones when it is told to."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.starting_number = next(_numbers)
        self.ending_number: int | None = None

    def close(self) -> None:
        """Let no record follow."""
        self.is_open, self.ending_number = False, next(_numbers)

    def put_record(self, partition_key: str, data: str, explicit_hash_key: str) -> str:
        """Add a record."""
        number = next(_numbers)
        self.records[number] = models.Record(partition_key, data, number, explicit_hash_key)
        return str(number)

    def get_max_sequence_number(self) -> int:
        """Return the newest record's number, or one that is before every later record."""
        newest: int = max([self.starting_number, *itertools.islice(reversed(self.records), 1)])
        return newest

    def page(self, after: int, most: int) -> tuple[list[models.Record], int, bool]:
        """Return the next records, behind which number they end, and whether that is all there is."""
        found: list[models.Record] = []
        size = 0
        left = [record for number, record in self.records.items() if number > after]
        for record in left[:most]:
            size += len(record.data) * 3 // 4
            if found and size > _MOST_BYTES:
                break
            found.append(record)
        return found, found[-1].sequence_number if found else after, len(found) == len(left)

    def to_json(self) -> dict[str, Any]:
        """Show the shard as ListShards does."""
        shown: dict[str, Any] = super().to_json()
        numbers = {"StartingSequenceNumber": str(self.starting_number)}
        if self.ending_number is not None:
            numbers["EndingSequenceNumber"] = str(self.ending_number)
        return {**shown, "SequenceNumberRange": numbers}


class Stream(models.Stream):  # type: ignore[misc] # moto has no types
    """A stream that is split and merged as Kinesis does it."""

    def split_shard(self, shard_to_split: str, new_starting_hash_key: str) -> None:
        """Close a shard and open its two children."""
        shard, middle = self.shards[shard_to_split], int(new_starting_hash_key)
        if not shard.is_open or not shard.starting_hash < middle <= shard.ending_hash:
            raise InvalidArgumentError(f"Shard {shard_to_split} cannot be split at {middle}")
        shard.close()
        self._open(shard.starting_hash, middle - 1, shard.shard_id)
        self._open(middle, shard.ending_hash, shard.shard_id)

    def merge_shards(self, shard_to_merge: str, adjacent_shard_to_merge: str) -> None:
        """Close two shards and open their child."""
        one, other = self.shards[shard_to_merge], self.shards[adjacent_shard_to_merge]
        low, high = sorted((one, other), key=lambda shard: shard.starting_hash)
        if not (one.is_open and other.is_open) or low.ending_hash + 1 != high.starting_hash:
            raise InvalidArgumentError(f"Shards {shard_to_merge} and {adjacent_shard_to_merge} cannot be merged")
        one.close()
        other.close()
        self._open(low.starting_hash, high.ending_hash, one.shard_id, other.shard_id)

    def get_shard_for_key(self, partition_key: str, explicit_hash_key: str) -> Shard:
        """Return the open shard of a key."""
        key = int(
            explicit_hash_key or models.md5_hash(partition_key.encode()).hexdigest(), 10 if explicit_hash_key else 16
        )
        shards: list[Shard] = list(self.shards.values())
        return next(shard for shard in shards if shard.is_open and shard.starting_hash <= key <= shard.ending_hash)

    def _open(self, start: int, end: int, parent: str, adjacent: str | None = None) -> None:
        self._made = getattr(self, "_made", len(self.shards) - 1) + 1
        shard = Shard(self._made, start, end, parent, adjacent)
        self.shards[shard.shard_id] = shard


def _iterator(stream_name: str | None, shard: Shard, after: int) -> str:
    return base64.b64encode(f"{stream_name}:{shard.shard_id}:{after}:{time.time()}".encode()).decode()


def _new_iterator(stream_name: str | None, shard: Shard, kind: str, number: str | None, at: Any) -> str:
    match kind:
        case "TRIM_HORIZON":
            after = 0
        case "LATEST":
            after = shard.get_max_sequence_number()
        case "AT_SEQUENCE_NUMBER" | "AFTER_SEQUENCE_NUMBER":
            after = int(number or 0) - (kind == "AT_SEQUENCE_NUMBER")
        case "AT_TIMESTAMP":
            seconds = at if isinstance(at, int | float) else unix_time(at)
            after = max((n for n, record in shard.records.items() if record.created_at < seconds), default=0)
        case _:
            raise InvalidArgumentError(f"Invalid ShardIteratorType: {kind}")
    return _iterator(stream_name, shard, after)


def _get_records(backend: models.KinesisBackend, stream_arn: str | None, iterator: str, limit: int | None) -> Any:
    name, shard_id, after, made_at = base64.b64decode(iterator).decode().rsplit(":", 3)
    if float(made_at) < _iterators_since[0]:
        raise JsonRESTError("ExpiredIteratorException", "Iterator expired")
    stream = backend.describe_stream(stream_arn, None if name == "None" else name)
    shard = stream.get_shard(shard_id)
    records, reached, is_all = shard.page(int(after), min(limit or _MOST_RECORDS, _MOST_RECORDS))
    newest = max((record.created_at for record in shard.records.values()), default=0)
    behind = 0 if is_all else max(1, round(1000 * (newest - records[-1].created_at)))
    return None if is_all and not shard.is_open else _iterator(name, shard, reached), records, behind


def _answer_of_get_records(response: responses.KinesisResponse) -> ActionResult:
    """Answer GetRecords; at a shard's end its children are named, without which Amazon's own library goes no further."""
    arn, iterator = response._get_param("StreamARN"), response._get_param("ShardIterator")
    backend = response.kinesis_backend
    following, records, behind = backend.get_records(arn, iterator, response._get_param("Limit"))
    answer = {
        "NextShardIterator": following,
        "Records": [record.to_json() for record in records],
        "MillisBehindLatest": behind,
    }
    if following is None:
        name, shard_id, *_ = base64.b64decode(iterator).decode().rsplit(":", 3)
        stream = backend.describe_stream(arn, None if name == "None" else name)
        answer["ChildShards"] = list(_children(stream, shard_id))
    return ActionResult(answer)


def _children(stream: Stream, parent: str) -> Iterable[dict[str, Any]]:
    for shown in [shard.to_json() for shard in stream.shards.values()]:
        parents = [shown[name] for name in ("ParentShardId", "AdjacentParentShardId") if shown.get(name)]
        if parent in parents:
            yield {"ShardId": shown["ShardId"], "ParentShards": parents, "HashKeyRange": shown["HashKeyRange"]}


def mend() -> None:
    """Let moto's backend use what is above."""
    responses.KinesisResponse.get_records = _answer_of_get_records
    models.Shard = Shard
    models.Stream = Stream
    models.compose_new_shard_iterator = _new_iterator
    models.KinesisBackend.get_records = _get_records


def with_orders(application: Application) -> Application:
    """Add what retention does, at once and by an order of the test."""

    def serve(environment: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if environment["PATH_INFO"] != ORDERS_PATH:
            return application(environment, respond)
        order = json.loads(environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"])))
        _obey(order)
        respond("204 No Content", [])
        return []

    return serve


def _obey(order: dict[str, Any]) -> None:
    if order["what"] == "expire iterators":
        _iterators_since[0] = time.time()
        return
    backends = models.kinesis_backends["123456789012"]
    stream = next(
        backend.streams[order["stream"]] for backend in backends.values() if order["stream"] in backend.streams
    )
    if order["what"] == "expire shard":
        del stream.shards[order["shard"]]
        return
    records = stream.shards[order["shard"]].records
    for number in list(records)[: order["count"]]:
        del records[number]
