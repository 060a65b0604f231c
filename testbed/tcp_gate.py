"""A TCP address on loopback whose server can be exchanged, or cut off from its clients."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import Self

from testbed.processes import free_port


@dataclass
class TcpGate:
    """Listens on `port` and passes every connection on to `target`; a context manager.

    While it is cut, connections end as soon as they are made. Clients keep the address whatever stands behind it, as with
    the virtual address or the Service of a database that fails over.
    """

    target: int | None = None
    port: int = field(default_factory=free_port)
    _listener: socket.socket | None = None
    _open: set[socket.socket] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the wait for the next client, which a close alone does not
        self._listener.close()
        self.cut()

    def lead_to(self, target: int) -> None:
        """Pass new connections on to that port of this machine."""
        with self._guard:
            self.target = target

    def cut(self) -> None:
        """End every connection, and each new one, until `lead_to`; nothing more passes once this has returned."""
        with self._guard:
            self.target = None
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        """Connect a client with the server; under the guard, so that a cut finds all that are connected."""
        server: socket.socket | None = None
        with self._guard, contextlib.suppress(OSError):
            if self.target is not None:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
                server.settimeout(None)
                self._open |= {client, server}
        if server is None:
            client.close()
            return
        back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
        back.start()
        _pass_on(client, server)
        back.join()
        with self._guard:
            self._open -= {client, server}
        client.close()
        server.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
