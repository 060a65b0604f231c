"""A server that answers a byte now and then, for as long as anybody listens: no wait for it is long, and it has no end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum


class Drips(Enum):
    """What of a request and its answer comes slowly."""

    HEADER = "the header of the answer"
    BODY = "the body of the answer"
    FAILURE = "the body of an answer that says that the call failed"
    REQUEST = "the request, which is taken slowly"


_PAUSE_SECONDS = 0.01
"""Between two bytes: far less than a client waits for anything to come."""

LENGTH = 500_000
"""Of the body that is announced: more than an hour of it."""


@contextmanager
def dripping(what: Drips) -> Iterator[str]:
    """Serve every request so; yield the address."""
    ended = threading.Event()

    def answer(taken: socket.socket) -> None:
        with taken, suppress(OSError):
            if what is Drips.REQUEST:
                while not ended.wait(_PAUSE_SECONDS):
                    taken.recv(1)
                return
            request = b""
            while b"\r\n\r\n" not in request:
                request += taken.recv(65536)
            status = b"403 Forbidden" if what is Drips.FAILURE else b"200 OK"
            head = b'HTTP/1.1 %s\r\nETag: "1"\r\nx-amzn-RequestId: 1\r\n' % status
            if what is Drips.HEADER:
                taken.sendall(head + b"x-filler: ")
            else:
                taken.sendall(head + b"Content-Length: %d\r\n\r\n" % LENGTH)
            while not ended.wait(_PAUSE_SECONDS):
                taken.sendall(b" ")

    def serve() -> None:
        with suppress(OSError):
            while True:
                taken, _ = listening.accept()
                # Small buffers: what is not taken is noticed.
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                threading.Thread(target=answer, args=(taken,), daemon=True).start()

    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        listening.close()
