"""A TCP proxy before Postgres that cuts a connection at its next COMMIT, on the way there or on the way back."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from testbed.processes import free_port


class Cut(Enum):
    """Where the connection is lost."""

    BEFORE_THE_SERVER_SAW_IT = "before"
    AFTER_THE_SERVER_SAW_IT = "after"


@dataclass
class PostgresProxy:
    """Listens on `port` and passes everything to the server; `arm` makes the next COMMIT of any connection the last.

    The server's answer to a COMMIT that was let through is never passed on: the client learns of the cut alone.
    """

    server_port: int
    port: int = field(default_factory=free_port)
    cuts: list[Cut] = field(default_factory=list)
    _armed: Cut | None = None
    _listener: socket.socket | None = None
    _way_is_free: threading.Event = field(default_factory=threading.Event)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()

    def arm(self, cut: Cut, *, delayed: bool = False) -> None:
        """Cut the connection that sends the next COMMIT; a delayed one is under way until `deliver`."""
        self._way_is_free.clear() if delayed else self._way_is_free.set()
        with self._guard:
            self._armed = cut

    def deliver(self) -> None:
        """Let the COMMIT that is under way reach the server."""
        self._way_is_free.set()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
                threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                cut = self._cut_here(data)
                if cut is None:
                    server.sendall(data)
                    continue
                self.cuts.append(cut)
                if cut is Cut.BEFORE_THE_SERVER_SAW_IT:
                    break
                client.close()  # first, so that no answer can come through
                self._way_is_free.wait()
                server.sendall(data)
                server.recv(65536)  # the answer, so that the COMMIT is carried out before the connection ends
                break
        client.close()
        server.close()

    def _cut_here(self, data: bytes) -> Cut | None:
        """A simple query is one message: 'Q', its length, the text, a zero byte."""
        if data[:1] != b"Q" or data[5:].rstrip(b"\0").lower() != b"commit":
            return None
        with self._guard:
            cut, self._armed = self._armed, None
        return cut


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
