"""The calls of Kinesis that a source needs: bounded in time, paced per shard, tried again, with errors of our own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from exactlyonce.aws.calls import AwsClient, Call, Clock, Patience
from exactlyonce.aws.errors import AwsError
from exactlyonce.connectors.kinesis.answers import ListingExpired, Request, ShardMissing, sentence_of
from exactlyonce.connectors.kinesis.login import KinesisAddress
from exactlyonce.connectors.kinesis.parsed import (
    UNKNOWN_MILLISECONDS,
    Page,
    StreamDescription,
    description_of,
    iterator_of,
    page_of,
    shards_page_of,
)
from exactlyonce.connectors.kinesis.patience import Deadline
from exactlyonce.connectors.kinesis.rate_limit import RateLimit, rest_seconds
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.errors import SourceRefused, SourceUnreachable

__all__ = [
    "MOST_RECORDS",
    "MOST_SHARDS",
    "UNKNOWN_MILLISECONDS",
    "KinesisAddress",
    "KinesisClient",
    "Page",
    "SeenTip",
    "StreamDescription",
]

_PATIENCE = Patience(30.0)
_LISTINGS, _LISTING_SECONDS = 3, 60.0
_SHARDS_A_PAGE = 1000
MOST_RECORDS = 10_000
MOST_SHARDS = 20_000
"""Of one stream, closed ones included: that many may be open in an account by default, in the regions with the most."""
_DESCRIBED_SECONDS = 60.0
_TOLD_SECONDS = 60.0

log = logging.getLogger("exactlyonce.kinesis")

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class SeenTip:
    """When a shard of the stream `created` then was asked for what is behind a position, and nothing was there."""

    position: int
    created: datetime
    elapsed_seconds: float
    wall_seconds: float


class KinesisClient:
    """Kinesis at one address, for one process; threads may share it.

    `connect` makes boto3's client. Where `is_renewable`, it is called again after the login was refused, because it may find
    another one by then. `tips` holds, per stream and shard, the last position with nothing behind it.
    """

    def __init__(
        self,
        address: KinesisAddress,
        connect: Callable[[], Any],
        clock: Clock | None = None,
        is_renewable: bool | None = None,
    ) -> None:
        self.address = address
        renewable = address.login is None if is_renewable is None else is_renewable
        self._aws = AwsClient(connect, _PATIENCE, clock, is_renewable=renewable)
        self.clock = self._aws.clock
        self.tips: dict[tuple[str, str], SeenTip] = {}
        self._guard = threading.Lock()
        self._rate_limit = RateLimit(self.clock)
        self._described: dict[str, tuple[float, StreamDescription]] = {}
        self._limit = threading.local()
        self._told_at: dict[tuple[str, str, str | None], float] = {}

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let what this thread asks in the block give up after so long; each call is made once at least.

        A call that began may take its own time for one answer beyond that.
        """
        outer = self._deadline
        self._limit.deadline = outer.sooner(seconds)
        try:
            yield
        finally:
            self._limit.deadline = outer

    @property
    def is_late(self) -> bool:
        """Whether the time of `within` is over."""
        return self._deadline.has_passed

    def describe(self, stream: str) -> StreamDescription:
        """Ask for a stream by its name or ARN.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        request = self._request_to("kinesis:DescribeStreamSummary", stream)
        description = self._call(request, "DescribeStreamSummary", _named(stream), description_of)
        self._described[stream] = self.clock.elapsed_seconds(), description
        return description

    def described(self, stream: str) -> StreamDescription:
        """Return what `describe` answers, or answered within the last minute."""
        known = self._described.get(stream)
        if known is not None and self.clock.elapsed_seconds() < known[0] + _DESCRIBED_SECONDS:
            return known[1]
        return self.describe(stream)

    def shards(self, stream: str) -> tuple[Shard, ...]:
        """List all shards: open ones, and closed ones that still hold records; in a minute, or not at all.

        Raises:
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        request = self._request_to("kinesis:ListShards", stream)
        with self.within(_LISTING_SECONDS):
            for _ in range(_LISTINGS - 1):
                with suppress(ListingExpired):
                    return self._listed(request)
            return self._listed(request)

    def iterator(self, stream: str, shard_id: str, **start: str | datetime) -> str:
        """Return an iterator of a shard; `start` is `ShardIteratorType` and what belongs to it.

        Raises:
            ShardMissing: if the stream exists and the shard does not.
            SequenceNumberRefused: if the sequence number cannot be of this shard.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        request = self._request_to("kinesis:GetShardIterator", stream, shard_id)
        self._rate_limit.wait(request.action, stream, shard_id)
        try:
            return self._call(
                request, "GetShardIterator", {"ShardId": shard_id, **_named(stream), **start}, iterator_of
            )
        except ShardMissing:
            self.describe(stream)  # says so if there is no stream at all
            raise

    def records(self, stream: str, shard_id: str, iterator: str, most: int = MOST_RECORDS) -> Page:
        """Call GetRecords once, or more often if it is refused for the moment.

        Raises:
            IteratorExpired: if the iterator is too old.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        request = self._request_to("kinesis:GetRecords", stream, shard_id)
        arn = _named(stream) if stream.startswith("arn:") else {}
        called_at = 0.0

        def wait() -> None:
            nonlocal called_at
            called_at = self._rate_limit.wait(request.action, stream, shard_id)

        arguments = {"ShardIterator": iterator, "Limit": most, **arn}
        page = self._call(request, "GetRecords", arguments, page_of, before=wait)
        self._rate_limit.rest(called_at, rest_seconds(page.records), request.action, stream, shard_id)
        return page

    def _listed(self, request: Request) -> tuple[Shard, ...]:
        found: list[Shard] = []
        page: dict[str, Any] = {**_named(request.stream), "MaxResults": _SHARDS_A_PAGE}
        while len(found) <= MOST_SHARDS:
            if self.is_late:
                raise SourceUnreachable(
                    f"{request.place} did not list the shards of stream {request.stream} within {_LISTING_SECONDS:.0f} s; it "
                    f"named {len(found)} and has more."
                )
            answer = self._call(request, "ListShards", page, shards_page_of)
            found += answer.shards
            if answer.next_token is None and len(found) <= MOST_SHARDS:
                return tuple(found)
            page = {"NextToken": answer.next_token, "MaxResults": _SHARDS_A_PAGE}
        raise SourceRefused(
            f"{request.place} lists more than {MOST_SHARDS:,} shards of stream {request.stream}, and no more are read; merge "
            "shards, or correct source.kinesis.endpoint."
        )

    @property
    def _deadline(self) -> Deadline:
        deadline: Deadline | None = getattr(self._limit, "deadline", None)
        return deadline or Deadline.within(self.clock, float("inf"))

    def _request_to(self, action: str, stream: str, shard: str | None = None) -> Request:
        return Request(action, stream, self.address.place, shard)

    def _call(
        self,
        request: Request,
        operation: str,
        arguments: Mapping[str, Any],
        parse: Callable[[Any], Parsed],
        before: Callable[[], None] = lambda: None,
    ) -> Parsed:
        """Make one call, again with growing pauses while that may help and time is left."""
        call = Call(operation, arguments, before, lambda error: self._tell(request, error))
        try:
            return self._aws.call(call, parse, self._deadline.at_seconds)
        except AwsError as error:
            raise sentence_of(error, request) from error

    def _tell(self, request: Request, error: AwsError) -> None:
        """Log that a call is made again, once a minute for each shard: it may be made for long, and nothing else shows it."""
        now, key = self.clock.elapsed_seconds(), (request.action, request.stream, request.shard)
        with self._guard:
            if now < self._told_at.get(key, -_TOLD_SECONDS) + _TOLD_SECONDS:
                return
            if len(self._told_at) >= MOST_SHARDS:
                self._told_at.clear()
            self._told_at[key] = now
        log.warning("%s The call is made again; this is logged at most once a minute.", sentence_of(error, request))


def _named(stream: str) -> dict[str, str]:
    return {"StreamARN": stream} if stream.startswith("arn:") else {"StreamName": stream}
