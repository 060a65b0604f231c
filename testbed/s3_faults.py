"""A proxy before an S3 service that answers some requests badly, as real services do now and then.

A fault is named by what the caller sees: a refusal (500, or 503 `SlowDown`), or an answer that is lost after the request took
effect.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_KEPT = ("content-type", "etag", "last-modified", "content-range")


class Fault(Enum):
    """How a request is answered."""

    INTERNAL_ERROR = "InternalError"
    SLOW_DOWN = "SlowDown"
    ANSWER_LOST = "the request takes effect and the connection is closed"


@dataclass(frozen=True)
class Request:
    """What a client asks for: `number` counts all requests from 1."""

    number: int
    method: str
    path: str


Plan = Callable[[Request], Fault | None]


@contextmanager
def s3_with_faults(port: int, plan: Plan) -> Iterator[str]:
    """Serve what the service at `port` of this machine serves, with the faults of a plan; yields the address."""
    counted, lock = [0], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:  # one at a time, so that a plan is followed in order
                counted[0] += 1
                fault = plan(Request(counted[0], self.command, self.path))
                if fault in (Fault.INTERNAL_ERROR, Fault.SLOW_DOWN):
                    self._answer(500 if fault is Fault.INTERNAL_ERROR else 503, {}, _refusal(fault))
                    return
                status, headers, content = self._forward(body)
            if fault is Fault.ANSWER_LOST:
                self.close_connection = True
                self.connection.close()
                return
            self._answer(status, headers, content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - the names that http.server calls

        def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                headers = {name: value for name, value in answer.getheaders() if name.lower() in _KEPT}
                if self.command == "HEAD":
                    headers["Content-Length"] = answer.getheader("Content-Length") or "0"
                return answer.status, headers, answer.read()
            finally:
                connection.close()

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that http.server gives it
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="s3 with faults", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _refusal(fault: Fault) -> bytes:
    return (
        f"<?xml version='1.0'?><Error><Code>{fault.value}</Code><Message>Please try again.</Message></Error>".encode()
    )
