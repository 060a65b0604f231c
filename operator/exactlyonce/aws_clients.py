"""Clients of services that speak a protocol of AWS: sessions that are shared, clients that are kept, answers that are bounded.

A session holds the descriptions of services, megabytes of them, and takes a fifth of a second to be used first. Clients with a
login of their own share one session. One with the login of this process has a session of its own, which keeps what it found,
or that it found none: who looks again makes another client.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import boto3
import botocore.awsrequest
import botocore.config
import botocore.session
import urllib3.exceptions
from botocore.exceptions import ConnectionClosedError, IncompleteReadError, ReadTimeoutError

from exactlyonce.bounded_json import MOST_VALUES, values_in
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, AwsLogin, login_set_aside

_MOST_CLIENTS = 64
_PART_BYTES = 1 << 16
_FIRST_FAILURE = 300
"""From this status on botocore reads an answer whole, whatever was asked for."""

Address = TypeVar("Address", bound=Hashable)


class AnswerTooLarge(ValueError):
    """A service answers with more bytes, or more values, than any answer of its protocol has."""


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


def new_client(service: str, *, has_login: bool, **settings: Any) -> Any:
    """Return a new client of a service; `settings` are boto3's, with the login in them where it `has_login`."""
    return _session.client(service, settings) if has_login else _session_of_process().client(service, **settings)


def _session_of_process() -> boto3.Session:
    """Return a session with the login that this process was given, whatever its JVM was given beside it."""
    own = login_set_aside(os.environ)
    if own is None:
        return boto3.Session()
    if ACCESS_KEY in own:
        return boto3.Session(own.get(ACCESS_KEY), own.get(SECRET_KEY), own.get(SESSION_TOKEN))
    beneath = botocore.session.Session()
    beneath.get_component("credential_provider").remove("env")
    return boto3.Session(botocore_session=beneath)


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How long a service may take to connect, to send anything, and to send all of an answer; how much it may send."""

    connect_seconds: float
    read_seconds: float
    answer_seconds: float
    most_bytes: int


def json_client(service: str, region: str, endpoint: str | None, login: AwsLogin | None, limits: AnswerLimits) -> Any:
    """Return a new client of a service whose answers are JSON and bounded; without a login, that of the process is used.

    It sends a request once: who calls it knows which may be sent again, and for how long.
    """
    client = new_client(
        service,
        has_login=login is not None,
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=None if login is None else login.access_key,
        aws_secret_access_key=None if login is None else login.secret_key,
        aws_session_token=None if login is None else login.session_token,
        config=botocore.config.Config(
            connect_timeout=limits.connect_seconds,
            read_timeout=limits.read_seconds,
            retries={"mode": "standard", "total_max_attempts": 1},
        ),
    )
    return bound_answers(client, service, limits.most_bytes, limits.answer_seconds, _require_few_values)


class ClientsByAddress(Generic[Address]):
    """Clients by what they are made of, the login included: a rotated secret is another address, with another client."""

    def __init__(self, make: Callable[[Address], Any]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._made: OrderedDict[Address, Any] = OrderedDict()

    def get(self, address: Address) -> Any:
        """Return the client of an address; the one that was used longest ago goes when there are too many."""
        with self._guard:
            if address not in self._made:
                self._made[address] = self._make(address)
            self._made.move_to_end(address)
            while len(self._made) > _MOST_CLIENTS:
                self._made.popitem(last=False)
            return self._made[address]

    def forget(self, address: Address) -> None:
        """Let the next request have a new client."""
        with self._guard:
            self._made.pop(address, None)

    def after_fork(self) -> None:
        """Have a process that was forked make clients of its own: connections are not shared between processes."""
        self._guard, self._made = threading.Lock(), OrderedDict()


def bound_answers(
    client: Any, calls: str, most_bytes: int, seconds: float, require: Callable[[bytes], None] = lambda content: None
) -> Any:
    """Let each answer of a client have at most `most_bytes`, and come to its end within `seconds`; return the client.

    `calls` is a service, or one operation of it such as `s3.ListObjectsV2`; `require` raises AnswerTooLarge for an answer that
    is short and would need much memory. botocore reads answers without a limit, and a server of a tenant may send what it
    likes. A call then raises AnswerTooLarge, ReadTimeoutError, or IncompleteReadError where one is cut off. What a caller reads
    as a stream is left to it, but for the answer that it failed.
    """
    # It is made of the client's settings, proxies and certificates, and nothing else shows it.
    http = client._endpoint.http_session

    def send(request: Any, **_: Any) -> Any:
        is_stream = request.stream_output
        request.stream_output = True  # nothing of the body is read yet
        answer = http.send(request)
        if is_stream and answer.status_code < _FIRST_FAILURE:
            return answer
        content = _read(answer, most_bytes, time.monotonic() + seconds)
        require(content)
        return botocore.awsrequest.AWSResponse(answer.url, answer.status_code, answer.headers, _Body(content))

    client.meta.events.register(f"before-send.{calls}", send)
    return client


@dataclass(frozen=True)
class _Body:
    content: bytes

    def stream(self) -> Iterator[bytes]:
        """Yield the body; botocore reads it by this."""
        yield self.content


def _read(answer: Any, most_bytes: int, until: float) -> bytes:
    """Read the body of an answer; its connection is used again only if it was read to its end."""
    content = bytearray()
    try:
        # `read1` returns whatever has come, so that a server that sends a byte now and then is noticed.
        while part := answer.raw.read1(_PART_BYTES):
            content += part
            if len(content) > most_bytes:
                raise AnswerTooLarge(f"an answer of more than {most_bytes} bytes")
            if time.monotonic() > until:
                raise ReadTimeoutError(endpoint_url=answer.url)
        expected = str(answer.headers.get("content-length") or len(content))
        if expected != str(len(content)):
            raise IncompleteReadError(actual_bytes=len(content), expected_bytes=expected[:20])
    except urllib3.exceptions.ReadTimeoutError as problem:
        raise ReadTimeoutError(endpoint_url=answer.url, error=problem) from problem
    except urllib3.exceptions.HTTPError as problem:
        raise ConnectionClosedError(endpoint_url=answer.url, error=problem) from problem
    finally:
        answer.raw.close()
    return bytes(content)


def _require_few_values(content: bytes) -> None:
    """Values need up to a hundred times the memory of their text; they are counted exactly only where there may be many."""
    if sum(content.count(mark) for mark in (b"[", b"{", b",")) <= MOST_VALUES:
        return
    if values_in(content.decode(errors="replace"), MOST_VALUES) > MOST_VALUES:
        raise AnswerTooLarge(f"an answer with more than {MOST_VALUES} values")


def _after_fork() -> None:
    global _session
    _session = _Session()


os.register_at_fork(after_in_child=_after_fork)
