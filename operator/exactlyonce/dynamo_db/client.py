"""Requests to DynamoDB: bounded in time, sent again with pauses while that may help, with errors of our own."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from exactlyonce.aws_clients import AnswerLimits, ClientsByAddress, json_client
from exactlyonce.bounded_json import MALFORMED
from exactlyonce.dynamo_db.answers import (
    LEASE_TABLE,
    ConditionFailed,
    LoginRefused,
    NamedAt,
    Request,
    condition_failed,
    error_of,
    may_be_sent_again,
    not_dynamo_db,
)
from exactlyonce.errors import StoreForbidden
from exactlyonce.schema.aws_login import AwsLogin

_CALL_SECONDS = 15.0
"""After so long a request is not sent again. A pass has a limit of its own."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0
_LIMITS = AnswerLimits(3.0, 5.0, 5.0, 4 * 1024 * 1024)
"""A page has 1 MB of items, a third more as base64, and their names."""


@dataclass(frozen=True)
class DynamoDbAddress:
    """Where DynamoDB is, and the login; without one, that of the process is used, such as a web identity."""

    region: str
    endpoint: str | None = None
    login: AwsLogin | None = field(default=None, repr=False)
    named_at: NamedAt = LEASE_TABLE

    @property
    def place(self) -> str:
        """Region and endpoint in words."""
        return f"DynamoDB in {self.region}" + (f" at {self.endpoint}" if self.endpoint else "")


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, waiting and chance, as requests need them; `elapsed_seconds` never jumps."""

    elapsed_seconds: Callable[[], float] = time.monotonic
    wall_seconds: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)


class DynamoDbClient:
    """DynamoDB at one address, for one process; threads may share it.

    `connect` makes boto3's client. It is called again after the login of the process was refused, since boto3 keeps what it
    found, or that it found none.
    """

    def __init__(self, address: DynamoDbAddress, connect: Callable[[], Any], clock: Clock | None = None) -> None:
        self.address = address
        self.clock = clock or Clock()
        self._connect = connect
        self._api: Any = None
        self._guard = threading.Lock()

    def call(self, name: str, table: str, **arguments: Any) -> Mapping[str, Any]:
        """Send a request, again with growing pauses while that may help and time is left.

        Raises:
            ConditionFailed: if a condition does not hold. A request that was sent twice may have failed its own condition.
            TableMissing, StoreForbidden, StoreUnreachable: by situation.
        """
        request = Request(f"dynamodb:{name}", table, self.address.place, self.address.named_at)
        give_up_at = self.clock.elapsed_seconds() + _CALL_SECONDS
        tries = 0
        while True:
            tries += 1
            send = getattr(self._connected(request), _method(name))
            try:
                answer: Mapping[str, Any] = send(**arguments)
            except (ClientError, BotoCoreError, ResponseParserError) as problem:
                if condition_failed(problem):
                    raise ConditionFailed(name) from problem
                error = error_of(problem, request)
                if isinstance(error, LoginRefused) and self.address.login is None:
                    self._api = None
                pause = _pause_seconds(tries, self.clock.chance)
                if not may_be_sent_again(problem) or self.clock.elapsed_seconds() + pause > give_up_at:
                    raise error from problem
                self.clock.sleep(pause)
            except MALFORMED as problem:  # of botocore, which believes an answer, and AnswerTooLarge
                raise not_dynamo_db(request) from problem
            else:
                if not answer.get("ResponseMetadata", {}).get("RequestId"):
                    raise not_dynamo_db(request)  # what is no answer would be read as one that there is nothing
                return answer

    def _connected(self, request: Request) -> Any:
        with self._guard:
            if self._api is None:
                try:
                    self._api = self._connect()
                except (ValueError, BotoCoreError) as problem:
                    raise StoreForbidden(
                        f"no client can be made for {request.what} ({type(problem).__name__}); correct region, endpoint or the "
                        f"secret of {request.named_at.table}."
                    ) from problem
            return self._api


def dynamo_db_client(address: DynamoDbAddress) -> DynamoDbClient:
    """Return the client of this process for an address; a rotated login is another address."""
    client: DynamoDbClient = _CLIENTS.get(address)
    return client


def _connect(address: DynamoDbAddress) -> Any:
    return json_client("dynamodb", address.region, address.endpoint, address.login, _LIMITS)


_CLIENTS: ClientsByAddress[DynamoDbAddress] = ClientsByAddress(
    lambda address: DynamoDbClient(address, lambda: _connect(address))
)
# Connections are not shared with a process that was forked; it makes clients of its own.
os.register_at_fork(after_in_child=_CLIENTS.after_fork)


def _method(name: str) -> str:
    """Return boto3's name of an action: `PutItem` is `put_item`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def _pause_seconds(tries: int, chance: random.Random) -> float:
    """Return how long to wait before the next try: somewhere below a bound that doubles each time."""
    return chance.uniform(0.3, 1.0) * min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << min(tries, 16)))
