"""One HTTP request to a server of Doris, bounded in time and in the size of its answer. No pyspark here.

The header goes first, with `Expect: 100-continue`; the body follows when the server asks for it, so a server that refuses the
header, or sends us elsewhere, gets no rows.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from exactlyonce.bounded_text import one_line
from exactlyonce_spark.connectors.doris.tls import SecureSocket

MOST_ANSWER_BYTES = 4 << 20
CONNECT_SECONDS = 10.0
CONTINUE_SECONDS = 5.0
"""So long we wait to be asked for a body; then it is sent, as HTTP has it for servers that never ask."""
_CONTINUE = b"HTTP/1.1 100"
Piece: TypeAlias = bytes | memoryview
"""Some bytes of a load. A view is of Arrow's own memory, since each copy of a load is time of a core."""


@dataclass(frozen=True, slots=True)
class Node:
    """Where a server is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Request:
    """A request but its body. Headers may hold a password, so none of it is shown."""

    method: str
    path: str
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; `location` is where it sends us, which may hold a password."""

    status: int
    content: bytes
    location: str | None

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.content)} bytes)"


class NotConnected(Exception):
    """No connection, so nothing was sent; `str()` says why, and holds no text of a server."""


class NotTrusted(Exception):
    """The certificate of a server is not trusted, and nothing was sent; `str()` says why, and what to do."""

    def __init__(self, node: Node, problem: ssl.SSLCertVerificationError) -> None:
        super().__init__(
            f"The certificate of {node} is not trusted ({one_line(problem.verify_message)}), so nothing was sent: put that of "
            "its CA, as PEM, into the key ca.crt of the secret that sink.doris.secretRef names."
        )


class NoAnswer(Exception):
    """The request was sent, and no whole answer came: it may have taken effect, or may take effect later."""


class TooLate(NoAnswer):
    """The request was under way for as long as it may take."""


def exchange(
    node: Node,
    address: str,
    request: Request,
    body: Iterable[Piece] | None,
    seconds: float,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Send a request to a node, at this address of it, and return its answer; with TLS, if there is a `context`.

    What `body` raises is raised as it is, and the server never sees the end of such a body.

    Raises:
        NotConnected, NotTrusted, NoAnswer: as they say.
    """
    connection = http.client.HTTPConnection(address, node.port, timeout=min(seconds, CONNECT_SECONDS))
    try:
        try:
            connection.connect()
            if context is not None:
                connection.sock = secure = SecureSocket(connection.sock, context, node.host)
                with _ended_after(secure, CONNECT_SECONDS):
                    secure.shake_hands()
        except ssl.SSLCertVerificationError as problem:
            raise NotTrusted(node, problem) from None
        except ssl.SSLError:
            raise NotConnected("it does not speak TLS, or no version of it that we speak") from None
        except OSError as problem:
            raise NotConnected(_reason(problem)) from None
        connection.sock.settimeout(None)  # `_ended_after` is the limit, of the whole and not of each step
        with _ended_after(connection.sock, seconds):
            return _exchanged(connection, node, request, body)
    finally:
        connection.close()


def _exchanged(
    connection: http.client.HTTPConnection, node: Node, request: Request, body: Iterable[Piece] | None
) -> Answer:
    try:
        _send_header(connection, node, request, chunked=body is not None)
        wants_body = body is not None and _is_asked_for_body(connection.sock)
    except (OSError, http.client.HTTPException) as problem:
        raise NoAnswer(_reason(problem)) from None
    if body is not None and wants_body:
        _send_body(connection, body)
    try:
        return _answer(connection)
    except (OSError, http.client.HTTPException) as problem:
        raise NoAnswer(_reason(problem)) from None


def _send_header(connection: http.client.HTTPConnection, node: Node, request: Request, *, chunked: bool) -> None:
    connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", str(node))
    connection.putheader("Connection", "close")
    for name, value in request.headers.items():
        connection.putheader(name, value.encode())
    if chunked:
        connection.putheader("Transfer-Encoding", "chunked")
    else:
        connection.putheader("Content-Length", "0")
    connection.endheaders()


def _is_asked_for_body(sock: socket.socket | SecureSocket) -> bool:
    """Whether the server asks for the body; not where it has answered already. The answer is left to be read."""
    if isinstance(sock, SecureSocket):
        first = sock.first(len(_CONTINUE), CONTINUE_SECONDS)
        return first is None or first == _CONTINUE
    readable, _, _ = select.select([sock], [], [], CONTINUE_SECONDS)
    if not readable:
        return True
    return sock.recv(len(_CONTINUE), socket.MSG_PEEK | socket.MSG_WAITALL) == _CONTINUE


def _send_body(connection: http.client.HTTPConnection, body: Iterable[Piece]) -> None:
    """Send a body in chunks, until the server takes no more: its answer may say why.

    A piece is sent as it is, between the lines of its chunk: to put them together would copy each load once more.
    """
    before = b""
    for piece in body:
        if piece:
            if not (_is_sent(connection, before + b"%x\r\n" % len(piece)) and _is_sent(connection, piece)):
                return
            before = b"\r\n"
    _is_sent(connection, before + b"0\r\n\r\n")


def _is_sent(connection: http.client.HTTPConnection, data: Piece) -> bool:
    try:
        connection.send(data)
    except OSError:
        return False
    return True


def _answer(connection: http.client.HTTPConnection) -> Answer:
    answer = connection.getresponse()
    content = answer.read(MOST_ANSWER_BYTES + 1)
    if len(content) > MOST_ANSWER_BYTES:
        raise http.client.HTTPException(f"more than {MOST_ANSWER_BYTES} bytes")
    if answer.length:
        raise http.client.HTTPException("only a part of the answer came")
    return Answer(answer.status, content, answer.getheader("Location"))


@contextmanager
def _ended_after(sock: socket.socket | SecureSocket, seconds: float) -> Iterator[None]:
    """End the connection after so many seconds, however slowly the other side reads or writes.

    Raises:
        TooLate: if it was ended; what came before is a part of an answer.
    """
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except NoAnswer:
        if not is_over.is_set():
            raise
    finally:
        timer.cancel()
    if is_over.is_set():
        raise TooLate(f"no whole answer within {seconds:g} seconds")


def _reason(problem: BaseException) -> str:
    """Say what happened without a text of the other side."""
    if isinstance(problem, http.client.HTTPException) and type(problem) is not http.client.HTTPException:
        return type(problem).__name__
    if isinstance(problem, OSError):
        return problem.strerror or type(problem).__name__
    return str(problem)
