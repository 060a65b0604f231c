"""Servers that speak Postgres's protocol only as far as it suits them: they accept, and then keep their client waiting."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from testbed.processes import free_port

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104
_REPORTED = {
    "server_version": "18.0",
    "client_encoding": "UTF8",
    "server_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
}


class Manner(Enum):
    """How far a server goes along."""

    SILENT = "accepts and never says a word"
    TALKS_FOR_EVER = "reports settings and is never ready"
    ANSWERS_NO_QUERY = "logs its client in and answers no query"


@dataclass
class HostilePostgres:
    """Listens on `port` and treats every client in its manner, with TLS where `tls` is given; a context manager.

    `clients` counts them.
    """

    manner: Manner
    port: int = field(default_factory=free_port)
    tls: ssl.SSLContext | None = None
    clients: int = 0
    _listener: socket.socket | None = None
    _open: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self._open:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.clients += 1
                self._open.append(client)
                threading.Thread(target=self._treat, args=(client,), daemon=True).start()

    def _treat(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), client:
            if self.manner is Manner.SILENT:
                client.recv(1)
                threading.Event().wait()
            while struct.unpack("!ii", client.recv(8))[1] in (_SSL_REQUEST, _GSS_REQUEST):
                client.sendall(b"N" if self.tls is None else b"S")
                if self.tls is not None:
                    client = self.tls.wrap_socket(client, server_side=True)
            client.recv(65536)  # the rest of the start-up message
            client.sendall(_message(b"R", struct.pack("!i", 0)))
            while self.manner is Manner.TALKS_FOR_EVER:
                client.sendall(_message(b"S", b"TimeZone\0UTC\0") * 100)
            for name, value in _REPORTED.items():
                client.sendall(_message(b"S", f"{name}\0{value}\0".encode()))
            client.sendall(_message(b"K", struct.pack("!ii", 1, 1)) + _message(b"Z", b"I"))
            while client.recv(65536):
                pass


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content
