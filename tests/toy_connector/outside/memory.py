"""Records and rows in the memory of one process, which others reach by XML-RPC. It imports nothing of the product."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from xmlrpc.client import ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCServer

ORIGIN = "memory"
"""The only origin that a memory has."""

_SECONDS = 10.0


@dataclass
class Memory:
    """`records` are texts by partition; `written` are rows by tag, and `shown` says which tag each batch is read from."""

    records: dict[str, list[str]]
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    written: dict[str, list[str]] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> dict[str, Any]:
        """Return the identity of the source, and the end of each partition."""
        with self._lock:
            return {"identity": self.identity, "ends": {key: len(texts) for key, texts in self.records.items()}}

    def read(self, key: str, start: int, end: int) -> list[str]:
        """Return the records of a range."""
        with self._lock:
            return self.records[key][start:end]

    def write(self, tag: str, rows: list[str]) -> bool:
        """Keep rows that nobody reads yet."""
        with self._lock:
            self.written[tag] = rows
        return True

    def show(self, batch: str, tag: str) -> bool:
        """Let readers read a batch from these rows; False if they are not there. It may be done twice."""
        with self._lock:
            if tag not in self.written:
                return False
            self.shown[batch] = tag
        return True

    def rows(self) -> list[str]:
        """Return what readers read."""
        with self._lock:
            return [row for tag in self.shown.values() for row in self.written[tag]]


@contextmanager
def served(memory: Memory) -> Iterator[str]:
    """Serve a memory in a thread, and yield its host:port."""
    with SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False, allow_none=True) as server:
        server.register_instance(memory)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Bounded(Transport):
    """Gives up when nothing answers."""

    def make_connection(self, host: Any) -> Any:
        connection = super().make_connection(host)
        connection.timeout = _SECONDS
        return connection


def client_of(server: str) -> Any:
    """Return a client of the memory at host:port; nothing is connected to yet. It is for one thread at a time."""
    return ServerProxy(f"http://{server}", transport=_Bounded(), allow_none=True)
