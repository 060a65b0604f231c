"""A proxy before S3, DynamoDB or Kinesis that answers as a bad day has it: errors, no answer, late, or twice; for tests.

`fate` says for each request what becomes of it. Requests are passed on with the headers that the client has signed.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, assert_never

_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}
_SECONDS = 30.0
_SLOW_SECONDS = 0.5
"""Longer than any other call takes, and shorter than a client waits."""

_TARGET = "X-Amz-Target"
"""The header by which a request to DynamoDB or Kinesis is known, and which action it asks for."""


class Fate(Enum):
    """What becomes of a request."""

    ANSWERED = "it is answered"
    REFUSED_500 = "it has no effect and is answered with 500"
    REFUSED_503 = "it has no effect and is answered with 503"
    THROTTLED = "it has no effect and is turned away, because there are too many"
    TAKEN_500 = "it takes effect and is answered with 500"
    TAKEN_503 = "it takes effect and is answered with 503"
    CUT = "it takes effect and the connection ends without an answer"
    TWICE = "it arrives twice, and the second answer is told"
    LATE = "it is answered with 503 and arrives when `deliver` is called"
    UNANSWERED = "it takes effect and nothing comes back for as long as the client waits"
    SLOW = "it is answered as it should be, only much later than the others"
    ITERATOR_EXPIRED = "it is told that the iterator in it is too old (Kinesis)"


_CODES = {500: "InternalError", 503: "SlowDown"}
_THROTTLED = "ProvisionedThroughputExceededException"
_DYNAMO_DB_CODES = {400: _THROTTLED, 500: "InternalServerError", 503: "ServiceUnavailable"}
_KINESIS_CODES = {400: _THROTTLED, 500: "InternalFailure", 503: "ServiceUnavailable"}


@dataclass(frozen=True)
class Request:
    """A request as the client sent it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def action(self) -> str:
        """What DynamoDB or Kinesis is asked for, such as GetRecords; nothing for S3."""
        return self.headers.get(_TARGET, "").rpartition(".")[2]


@dataclass
class FaultyService:
    """The proxy at `endpoint`, in threads of this process. `seen` are the requests, `late` those that have not arrived yet.

    `answered` is told each answer of the service that reaches the client, with its status.
    """

    port_of_service: int
    fate: Callable[[Request], Fate] = lambda request: Fate.ANSWERED
    seen: list[Request] = field(default_factory=list)
    late: list[Request] = field(default_factory=list)
    answered: Callable[[Request, int, bytes], None] = lambda request, status, body: None
    _server: ThreadingHTTPServer | None = None

    @property
    def endpoint(self) -> str:
        """The address of the proxy."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                proxy._serve(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - the names of the base class

            def log_message(self, format: str, *given: Any) -> None:  # noqa: A002 - the name is the base class's
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def deliver(self) -> list[int]:
        """Let every late request arrive, and return what the service answered to each."""
        waiting, self.late = self.late, []
        return [self._pass_on(request)[0] for request in waiting]

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(handler.command, handler.path, dict(handler.headers.items()), body)
        self.seen.append(request)
        fate = self.fate(request)
        match fate:
            case Fate.ANSWERED | Fate.SLOW:
                threading.Event().wait(_SLOW_SECONDS if fate is Fate.SLOW else 0)  # nobody sets it: only time passes
                self._answer_as_told(handler, request)
            case Fate.TWICE:
                self._pass_on(request)
                self._answer_as_told(handler, request)
            case Fate.CUT:
                self._pass_on(request)
                handler.close_connection = True
            case Fate.LATE:
                self.late.append(request)
                self._refuse(handler, 503)
            case Fate.THROTTLED:
                self._refuse(handler, 400 if _TARGET in request.headers else 503)
            case Fate.TAKEN_500 | Fate.TAKEN_503:
                self._pass_on(request)
                self._refuse(handler, 500 if fate is Fate.TAKEN_500 else 503)
            case Fate.REFUSED_500 | Fate.REFUSED_503:
                self._refuse(handler, 500 if fate is Fate.REFUSED_500 else 503)
            case Fate.UNANSWERED:
                self._pass_on(request)
                with suppress(ConnectionResetError):
                    handler.connection.recv(1)  # returns once the client has given it up
                handler.close_connection = True
            case Fate.ITERATOR_EXPIRED:
                self._refuse(handler, 400, "ExpiredIteratorException")
            case _:
                assert_never(fate)

    def _answer_as_told(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        status, headers, body = self._pass_on(request)
        self.answered(request, status, body)
        self._answer(handler, status, headers, body)

    def _pass_on(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port_of_service, timeout=_SECONDS)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            answer = connection.getresponse()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
            content = answer.read()
            told = answer.getheader("Content-Length") if request.method == "HEAD" else None
            return answer.status, {**headers, "Content-Length": told or str(len(content))}, content
        finally:
            connection.close()

    def _refuse(self, handler: BaseHTTPRequestHandler, status: int, code: str | None = None) -> None:
        if _TARGET in handler.headers:
            is_kinesis = handler.headers[_TARGET].startswith("Kinesis_")
            kind, codes = (
                f"application/x-amz-json-1.{int(is_kinesis)}",
                _KINESIS_CODES if is_kinesis else _DYNAMO_DB_CODES,
            )
            told = {"__type": f"amazonaws#{code or codes[status]}", "message": "a test asked for it"}
            body = json.dumps(told).encode()
        else:
            kind = "application/xml"
            body = f"<Error><Code>{_CODES[status]}</Code><Message>a test asked for it</Message></Error>".encode()
        self._answer(handler, status, {"Content-Type": kind, "Content-Length": str(len(body))}, body)

    @staticmethod
    def _answer(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has given it up
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(body)
