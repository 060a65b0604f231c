"""Kinesis' answers as values of our own; one of another shape is not Kinesis'. Performs no I/O.

A tenant names the server that answers. So nothing of an answer is relied on: each field is there, is of its type, and is what
Kinesis writes, or the parser raises `KeyError`, `TypeError`, `ValueError` or another of `aws.answers.RAISED`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from exactlyonce.connectors.kinesis.aggregation import RawRecord
from exactlyonce.connectors.kinesis.positions import position_after_record
from exactlyonce.connectors.kinesis.shards import GREATEST_HASH_KEY, NAME, Shard

_NAME = re.compile(NAME)
_ARN = re.compile(r"arn:[ -~]{1,508}")
_NUMBER = re.compile("0|[1-9][0-9]{0,99}")
_STATUS = re.compile("[A-Z_]{1,64}")
_MOST_TOKEN_CHARACTERS = 1 << 20
_MOST_SECONDS = 62_135_596_800
"""From 1970 to the year 1, the first that a datetime holds; as far the other way is long enough."""
_MOST_RETENTION_HOURS = 10 * 365 * 24

UNKNOWN_MILLISECONDS = 366 * 24 * 3600 * 1000
"""How far behind a page is that does not say so: longer than Kinesis keeps any record."""


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream. One that was deleted and created again under its name has another time of creation."""

    name: str
    arn: str
    created: datetime
    retention: timedelta
    status: str


@dataclass(frozen=True, slots=True)
class Page:
    """What GetRecords answered. `next_iterator` is None behind the last record of a closed shard, and `children` follow on it.

    `milliseconds_behind` is `UNKNOWN_MILLISECONDS` where the answer does not have it: never 0, which would say that nothing
    more is there.
    """

    records: tuple[RawRecord, ...]
    next_iterator: str | None
    milliseconds_behind: int
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardsPage:
    """What ListShards answered. `next_token` is None on the last page."""

    shards: tuple[Shard, ...]
    next_token: str | None


def description_of(answer: Any) -> StreamDescription:
    """Parse what DescribeStreamSummary answered."""
    told = answer["StreamDescriptionSummary"]
    created = told["StreamCreationTimestamp"]
    if not isinstance(created, datetime) or created.tzinfo is None:
        raise TypeError("StreamCreationTimestamp is not a timestamp")
    hours = _integer(told["RetentionPeriodHours"])
    if not 1 <= hours <= _MOST_RETENTION_HOURS:
        raise ValueError("RetentionPeriodHours is not a number of hours")
    return StreamDescription(
        name=_text(told["StreamName"], _NAME, "StreamName"),
        arn=_text(told["StreamARN"], _ARN, "StreamARN"),
        created=created,
        retention=timedelta(hours=hours),
        status=_text(told["StreamStatus"], _STATUS, "StreamStatus"),
    )


def shards_page_of(answer: Any) -> ShardsPage:
    """Parse what ListShards answered."""
    return ShardsPage(tuple(_shard(told) for told in answer["Shards"]), _token(answer.get("NextToken"), "NextToken"))


def iterator_of(answer: Any) -> str:
    """Parse what GetShardIterator answered."""
    iterator = _token(answer["ShardIterator"], "ShardIterator")
    if iterator is None:
        raise ValueError("ShardIterator is empty")
    return iterator


def page_of(answer: Any) -> Page:
    """Parse what GetRecords answered; its records come in the order of their sequence numbers."""
    records = tuple(_record(told) for told in answer["Records"])
    for before, after in pairwise(records):
        if after.sequence_number <= before.sequence_number:
            raise ValueError(f"record {after.sequence_number} comes behind record {before.sequence_number}")
    behind = _integer(answer.get("MillisBehindLatest", UNKNOWN_MILLISECONDS))
    if behind < 0:
        raise ValueError("MillisBehindLatest is negative")
    children = tuple(_text(child["ShardId"], _NAME, "ShardId") for child in answer.get("ChildShards") or ())
    return Page(records, _token(answer.get("NextShardIterator"), "NextShardIterator"), behind, children)


def _record(told: Any) -> RawRecord:
    """Parse a record, as it is on the wire or as the AWS library parses it."""
    number, key, data = _number(told["SequenceNumber"], "SequenceNumber"), told["PartitionKey"], told["Data"]
    position_after_record(number)  # raises MalformedPosition
    if isinstance(data, str):
        data = b64decode(data, validate=True)
    if not isinstance(key, str) or not isinstance(data, bytes):
        raise TypeError("PartitionKey is not a string, or Data are not bytes")
    key.encode()  # raises UnicodeEncodeError for half of a pair, which JSON can name and no table can hold
    arrival = told["ApproximateArrivalTimestamp"]
    arrival_seconds = arrival.timestamp() if isinstance(arrival, datetime) else arrival
    if (
        isinstance(arrival_seconds, bool)
        or not isinstance(arrival_seconds, int | float)
        or not abs(arrival_seconds) < _MOST_SECONDS
    ):
        raise TypeError("ApproximateArrivalTimestamp is not a timestamp")
    return RawRecord(number, key, data, round(arrival_seconds * 1000))


def _shard(told: Any) -> Shard:
    numbers, keys = told["SequenceNumberRange"], told["HashKeyRange"]
    ending = numbers.get("EndingSequenceNumber")
    parents = (told[name] for name in ("ParentShardId", "AdjacentParentShardId") if told.get(name))
    shard = Shard(
        id=_text(told["ShardId"], _NAME, "ShardId"),
        parents=tuple(_text(parent, _NAME, "ParentShardId") for parent in parents),
        starting_hash_key=_number(keys["StartingHashKey"], "StartingHashKey"),
        ending_hash_key=_number(keys["EndingHashKey"], "EndingHashKey"),
        starting_sequence_number=_number(numbers["StartingSequenceNumber"], "StartingSequenceNumber"),
        ending_sequence_number=None if ending is None else _number(ending, "EndingSequenceNumber"),
    )
    if not shard.starting_hash_key <= shard.ending_hash_key <= GREATEST_HASH_KEY:
        raise ValueError("HashKeyRange is not a range of hash keys")
    position_after_record(max(shard.starting_sequence_number, shard.ending_sequence_number or 0))
    return shard


def _text(told: object, pattern: re.Pattern[str], name: str) -> str:
    if not isinstance(told, str) or pattern.fullmatch(told) is None:
        raise ValueError(f"{name} is not one that Kinesis gives")
    return told


def _number(told: object, name: str) -> int:
    return int(_text(told, _NUMBER, name))


def _integer(told: object) -> int:
    if not isinstance(told, int) or isinstance(told, bool):
        raise TypeError("a number is not an integer")
    return told


def _token(told: object, name: str) -> str | None:
    if told is None or told == "":
        return None
    if not isinstance(told, str) or len(told) > _MOST_TOKEN_CHARACTERS:
        raise ValueError(f"{name} is not a token")
    return told
