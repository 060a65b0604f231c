"""The calls of Kinesis that a source needs: bounded in time, paced per shard, tried again, with errors of our own."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import boto3
import botocore.config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from exactlyonce.connectors.kinesis.aggregation import RawRecord
from exactlyonce.connectors.kinesis.answers import (
    Asked,
    ListingExpired,
    LoginRefused,
    ShardMissing,
    code_of,
    error_of,
    may_be_tried_again,
)
from exactlyonce.connectors.kinesis.pace import Clock, RateLimit, pause_seconds
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.errors import SourceRefused

_CONNECT_SECONDS, _READ_SECONDS, _CALL_SECONDS = 5.0, 10.0, 30.0
_LISTINGS = 3
_SHARDS_A_PAGE = 1000
_MOST_PAGES = 1000
MOST_RECORDS = 10_000
_MOST_CLIENTS = 64
_DESCRIBED_SECONDS = 60.0


@dataclass(frozen=True)
class KinesisAddress:
    """Where Kinesis is, and the login; without one, that of the process is used, such as a web identity."""

    region: str
    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """Region and endpoint in words."""
        return f"Kinesis in {self.region}" + (f" at {self.endpoint}" if self.endpoint else "")


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream. One that is deleted and created again under its name has another time of creation."""

    name: str
    arn: str
    created: datetime
    retention: timedelta
    status: str


@dataclass(frozen=True, slots=True)
class Page:
    """What GetRecords answered. `next_iterator` is None behind the last record of a closed shard."""

    records: tuple[RawRecord, ...]
    next_iterator: str | None
    milliseconds_behind: int


@dataclass(frozen=True, slots=True)
class SeenTip:
    """When a shard of the stream `created` then was asked for what is behind a position, and nothing was there."""

    position: int
    created: datetime
    elapsed_seconds: float
    wall_seconds: float


class KinesisClient:
    """Kinesis at one address, for one process; threads may share it.

    `connect` makes boto3's client. It is called again after the login of the process was refused, since boto3 keeps what it
    found, or that it found none. `retried` counts the calls that were made again, by what Kinesis had answered. `tips` holds,
    per stream and shard, the last position with nothing behind it.
    """

    def __init__(self, address: KinesisAddress, connect: Callable[[], Any], clock: Clock | None = None) -> None:
        self.address = address
        self.clock = clock or Clock()
        self.retried: Counter[str] = Counter()
        self.tips: dict[tuple[str, str], SeenTip] = {}
        self._connect = connect
        self._api: Any = None
        self._guard = threading.Lock()
        self._pace = RateLimit(self.clock)
        self._described: dict[str, tuple[float, StreamDescription]] = {}

    def describe(self, stream: str) -> StreamDescription:
        """Ask for a stream by its name or ARN.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        asked = self._asked("kinesis:DescribeStreamSummary", stream)
        answer = self._call(asked, "describe_stream_summary", _named(stream))
        told = answer["StreamDescriptionSummary"]
        description = StreamDescription(
            name=told["StreamName"],
            arn=told["StreamARN"],
            created=told["StreamCreationTimestamp"],
            retention=timedelta(hours=told["RetentionPeriodHours"]),
            status=told["StreamStatus"],
        )
        self._described[stream] = self.clock.elapsed_seconds(), description
        return description

    def described(self, stream: str) -> StreamDescription:
        """Return what `describe` answers, or answered within the last minute."""
        known = self._described.get(stream)
        if known is not None and self.clock.elapsed_seconds() < known[0] + _DESCRIBED_SECONDS:
            return known[1]
        return self.describe(stream)

    def shards(self, stream: str) -> tuple[Shard, ...]:
        """List all shards: open ones, and closed ones that still hold records.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        asked = self._asked("kinesis:ListShards", stream)
        for _ in range(_LISTINGS - 1):
            with contextlib.suppress(ListingExpired):
                return self._listed(asked)
        return self._listed(asked)

    def iterator(self, stream: str, shard_id: str, **start: str | datetime) -> str:
        """Return an iterator of a shard; `start` is `ShardIteratorType` and what belongs to it.

        Raises:
            ShardMissing: if the stream exists and the shard does not.
            SequenceNumberRefused: if the sequence number cannot be of this shard.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        asked = self._asked("kinesis:GetShardIterator", stream, shard_id)
        self._pace.wait(asked.action, stream, shard_id)
        try:
            answer = self._call(asked, "get_shard_iterator", {"ShardId": shard_id, **_named(stream), **start})
        except ShardMissing:
            self.describe(stream)  # says so if there is no stream at all
            raise
        return str(answer["ShardIterator"])

    def records(self, stream: str, shard_id: str, iterator: str, most: int = MOST_RECORDS) -> Page:
        """Call GetRecords once, or more often if it is refused for the moment.

        Raises:
            IteratorExpired: if the iterator is too old.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        asked = self._asked("kinesis:GetRecords", stream, shard_id)
        arn = _named(stream) if stream.startswith("arn:") else {}
        answer = self._call(
            asked,
            "get_records",
            {"ShardIterator": iterator, "Limit": most, **arn},
            before=lambda: self._pace.wait(asked.action, stream, shard_id),
        )
        return Page(
            records=tuple(_raw(record) for record in answer["Records"]),
            next_iterator=answer.get("NextShardIterator") or None,
            milliseconds_behind=int(answer.get("MillisBehindLatest") or 0),
        )

    def _listed(self, asked: Asked) -> tuple[Shard, ...]:
        found: list[Shard] = []
        page: dict[str, Any] = {**_named(asked.stream), "MaxResults": _SHARDS_A_PAGE}
        for _ in range(_MOST_PAGES):
            answer = self._call(asked, "list_shards", page)
            found += map(_shard, answer["Shards"])
            if not answer.get("NextToken"):
                return tuple(found)
            page = {"NextToken": answer["NextToken"], "MaxResults": _SHARDS_A_PAGE}
        raise SourceRefused(f"The list of the shards of stream {asked.stream} of {asked.place} does not end.")

    def _asked(self, action: str, stream: str, shard: str | None = None) -> Asked:
        return Asked(action, stream, self.address.place, shard)

    def _call(
        self, asked: Asked, method: str, arguments: Mapping[str, Any], before: Callable[[], None] = lambda: None
    ) -> Any:
        """Make one call, again with growing pauses while that may help and time is left."""
        give_up_at = self.clock.elapsed_seconds() + _CALL_SECONDS
        tries = 0
        while True:
            before()
            tries += 1
            try:
                return getattr(self._connected(), method)(**arguments)
            except (ClientError, BotoCoreError, ResponseParserError) as problem:
                error = error_of(problem, asked)
                if isinstance(error, LoginRefused) and self.address.access_key is None:
                    self._api = None
                pause = pause_seconds(tries, self.clock.chance)
                if not may_be_tried_again(problem) or self.clock.elapsed_seconds() + pause > give_up_at:
                    raise error from problem
                self.retried[code_of(problem) if isinstance(problem, ClientError) else type(problem).__name__] += 1
                self.clock.sleep(pause)

    def _connected(self) -> Any:
        with self._guard:
            if self._api is None:
                try:
                    self._api = self._connect()
                except (ValueError, BotoCoreError) as problem:
                    raise SourceRefused(
                        f"No client can be made for {self.address.place} ({type(problem).__name__}); correct "
                        "source.kinesis.region, endpoint, or the secret."
                    ) from problem
            return self._api


@lru_cache(maxsize=_MOST_CLIENTS)
def kinesis_client(address: KinesisAddress) -> KinesisClient:
    """Return the client of this process for an address."""
    return KinesisClient(address, lambda: _connect(address))


# Connections are not shared with a process that was forked; it makes clients of its own.
os.register_at_fork(after_in_child=kinesis_client.cache_clear)


def _connect(address: KinesisAddress) -> Any:
    return boto3.Session().client(
        "kinesis",
        region_name=address.region,
        endpoint_url=address.endpoint,
        aws_access_key_id=address.access_key,
        aws_secret_access_key=address.secret_key,
        aws_session_token=address.session_token,
        config=botocore.config.Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": 1},  # we try again ourselves, and count it
        ),
    )


def _named(stream: str) -> dict[str, str]:
    return {"StreamARN": stream} if stream.startswith("arn:") else {"StreamName": stream}


def _raw(record: Any) -> RawRecord:
    return RawRecord(
        sequence_number=int(record["SequenceNumber"]),
        partition_key=record["PartitionKey"],
        data=record["Data"],
        arrival_milliseconds=round(record["ApproximateArrivalTimestamp"].timestamp() * 1000),
    )


def _shard(told: Any) -> Shard:
    numbers = told["SequenceNumberRange"]
    ending = numbers.get("EndingSequenceNumber")
    return Shard(
        id=told["ShardId"],
        parents=tuple(told[name] for name in ("ParentShardId", "AdjacentParentShardId") if told.get(name)),
        starting_hash_key=int(told["HashKeyRange"]["StartingHashKey"]),
        ending_hash_key=int(told["HashKeyRange"]["EndingHashKey"]),
        starting_sequence_number=int(numbers["StartingSequenceNumber"]),
        ending_sequence_number=None if ending is None else int(ending),
    )
