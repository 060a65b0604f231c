"""How a client is made: sessions that are shared, clients that are kept, answers that are bounded in size and in time.

A session holds the descriptions of services, megabytes of them, and takes a fifth of a second to be used first. Clients with a
login of their own share one session. One with the login of this process has a session of its own, which keeps what it found,
or that it found none: who looks again makes another client.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import boto3
import botocore.awsrequest
import botocore.config
import botocore.session
import urllib3.exceptions
from botocore.exceptions import BotoCoreError, ConnectionClosedError, IncompleteReadError, ReadTimeoutError

from exactlyonce.aws.deadlines import Budget, budget_of, limit_connections
from exactlyonce.bounded_json import MOST_VALUES, values_in
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, AwsLogin, login_set_aside

_MOST_CLIENTS = 64
_PART_BYTES = 1 << 16
_FIRST_FAILURE = 300
"""From this status on botocore reads an answer whole, whatever was asked for."""

_IDENTITY = botocore.config.Config(
    connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2}
)
"""Of the clients that the library makes by itself, to ask STS and the like for the login of this process."""

Address = TypeVar("Address", bound=Hashable)
Made = TypeVar("Made")


class AnswerTooLarge(ValueError):
    """A service answers with more bytes, or more values, than any answer of its protocol has."""


def few_values(content: bytes) -> None:
    """Require that JSON has few values: they need up to a hundred times the memory of their text.

    They are counted exactly only where there may be many.
    """
    if sum(content.count(mark) for mark in (b"[", b"{", b",")) <= MOST_VALUES:
        return
    if values_in(content.decode(errors="replace"), MOST_VALUES) > MOST_VALUES:
        raise AnswerTooLarge(f"an answer with more than {MOST_VALUES} values")


@dataclass(frozen=True)
class AnswerLimits:
    """What one request may take: to connect, until anything comes, and as a whole, in seconds; what its answer may have.

    `slow` are operations that may take longer as a whole. `require` raises AnswerTooLarge for an answer that is short and would
    need much memory.
    """

    connect_seconds: float
    read_seconds: float
    answer_seconds: float
    most_bytes: int
    require: Callable[[bytes], None] = few_values
    slow: Mapping[str, float] = field(default_factory=dict)

    def seconds_of(self, operation: str) -> float:
        """Return how long a request of this operation may take as a whole."""
        return self.slow.get(operation, self.answer_seconds)


@dataclass(frozen=True)
class ServiceAddress:
    """Where a service is, and the login; without one, that of the process is used, such as a web identity."""

    service: ClassVar[str]
    """What a person calls it."""

    region: str
    endpoint: str | None = None
    login: AwsLogin | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """Region and endpoint in words."""
        return f"{self.service} in {self.region}" + (f" at {self.endpoint}" if self.endpoint else "")


@dataclass
class _Session:
    """The session of all clients with a login of their own. Making clients of it is not safe in two threads at once."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    shared: Any = None

    def client(self, service: str, settings: dict[str, Any]) -> Any:
        with self.guard:
            self.shared = self.shared or boto3.Session()
            return self.shared.client(service, **settings)


_session = _Session()


def make_client(
    service: str,
    limits: AnswerLimits,
    login: AwsLogin | None,
    *,
    region: str | None,
    endpoint: str | None = None,
    certificate: str | None = None,
    **config: Any,
) -> Any:
    """Return a new client of boto3, whose answers are bounded; without a login, that of the process is used.

    It sends a request once: `calls.py` knows which may be sent again, and for how long. `certificate` is a file with the CA of
    the endpoint, and `config` more of botocore's own.
    """
    settings: dict[str, Any] = {
        "region_name": region,
        "endpoint_url": endpoint,
        "verify": certificate,
        "config": botocore.config.Config(
            connect_timeout=limits.connect_seconds,
            read_timeout=limits.read_seconds,
            retries={"mode": "standard", "total_max_attempts": 1},
            **config,
        ),
    }
    if login is None:
        client = _session_of_process().client(service, **settings)
    else:
        settings |= {
            "aws_access_key_id": login.access_key,
            "aws_secret_access_key": login.secret_key,
            "aws_session_token": login.session_token,
        }
        client = _session.client(service, settings)
    return _bounded(client, service, limits)


def _session_of_process() -> boto3.Session:
    """Return a session with the login that this process was given, whatever its JVM was given beside it."""
    beneath = botocore.session.Session()
    beneath.set_default_client_config(_IDENTITY)
    own = login_set_aside(os.environ)
    if own is not None and ACCESS_KEY in own:
        beneath.set_credentials(own.get(ACCESS_KEY), own.get(SECRET_KEY), own.get(SESSION_TOKEN))
    elif own is not None:
        beneath.get_component("credential_provider").remove("env")
    return boto3.Session(botocore_session=beneath)


class ClientsByAddress(Generic[Address, Made]):
    """Clients by what they are made of, the login included: a rotated secret is another address, with another client.

    A process that was forked makes clients of its own: connections are not shared between processes.
    """

    def __init__(self, make: Callable[[Address], Made]) -> None:
        self._make = make
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._guard = threading.Lock()
        self._made: OrderedDict[Address, Made] = OrderedDict()

    def get(self, address: Address) -> Made:
        """Return the client of an address; the one that was used longest ago goes when there are too many."""
        with self._guard:
            if address not in self._made:
                self._made[address] = self._make(address)
            self._made.move_to_end(address)
            while len(self._made) > _MOST_CLIENTS:
                self._made.popitem(last=False)
            return self._made[address]


def _bounded(client: Any, service: str, limits: AnswerLimits) -> Any:
    """Bound the answers of a client; return it.

    botocore reads answers without a limit, and a server of a tenant may send what it likes. A call then raises AnswerTooLarge,
    ReadTimeoutError, or IncompleteReadError where an answer is cut off. What a caller reads as a stream has its size, but for
    the answer that it failed, and is bounded in time.
    """
    # It is made of the client's settings, proxies and certificates, and nothing else shows it.
    http = client._endpoint.http_session
    limit_connections(http)

    def send(request: Any, event_name: str, **_: Any) -> Any:
        is_stream = request.stream_output
        request.stream_output = True  # nothing of the body is read yet
        budget = budget_of(limits.seconds_of(event_name.rpartition(".")[2]))
        with budget.running():
            try:
                answer = http.send(request)
            except BotoCoreError as problem:
                if budget.is_used_up:
                    raise ReadTimeoutError(endpoint_url=request.url, error=problem) from problem
                raise
            if is_stream and answer.status_code < _FIRST_FAILURE:
                content: Any = _Stream(answer, budget)
            else:
                content = _Body(_read(answer, limits.most_bytes, has_body=request.method != "HEAD"))
                limits.require(content.content)
        return botocore.awsrequest.AWSResponse(answer.url, answer.status_code, answer.headers, content)

    client.meta.events.register(f"before-send.{service}", send)
    return client


@dataclass(frozen=True)
class _Body:
    content: bytes

    def stream(self) -> Iterator[bytes]:
        """Yield the body; botocore reads it by this."""
        yield self.content


class _Stream:
    """The body of an answer as its reader takes it, in what is left of the request's time."""

    def __init__(self, answer: Any, budget: Budget) -> None:
        self._answer = answer
        self._budget = budget

    def read(self, count: int | None = None) -> bytes:
        """Return so many bytes, or all: less at the end alone."""
        with self._budget.running(), _named(self._answer):
            found: bytes = self._answer.raw.read(count)
            return found

    def close(self) -> None:
        """Leave the rest, and the connection."""
        self._answer.raw.close()


def _read(answer: Any, most_bytes: int, *, has_body: bool) -> bytes:
    """Read the body of an answer; its connection is used again only if it was read to its end."""
    content = bytearray()
    try:
        with _named(answer):
            while part := answer.raw.read1(_PART_BYTES):
                content += part
                if len(content) > most_bytes:
                    raise AnswerTooLarge(f"an answer of more than {most_bytes} bytes")
        expected = str(answer.headers.get("content-length") or len(content))
        if has_body and expected != str(len(content)):
            raise IncompleteReadError(actual_bytes=len(content), expected_bytes=expected[:20])
    finally:
        answer.raw.close()
    return bytes(content)


@contextmanager
def _named(answer: Any) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as problem:
        raise ReadTimeoutError(endpoint_url=answer.url, error=problem) from problem
    except urllib3.exceptions.HTTPError as problem:
        raise ConnectionClosedError(endpoint_url=answer.url, error=problem) from problem


def _after_fork() -> None:
    global _session
    _session = _Session()


os.register_at_fork(after_in_child=_after_fork)
