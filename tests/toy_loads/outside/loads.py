"""Loads in the memory of one process, which others reach by XML-RPC. It imports nothing of the product."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCServer


@dataclass
class Load:
    """One load."""

    label: str
    rows: list[str]
    state: str = "prepared"


@dataclass
class Loads:
    """`aborts` and `silent` are numbers of requests to commit, counted from 1: the server aborts the load by itself before it,
    or gives no answer.
    """

    aborts: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    loads: list[Load] = field(default_factory=list)
    commits: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self, label: str, rows: list[str]) -> int:
        """Take rows under a label that no load has, and return the number of the load."""
        with self._lock:
            if any(load.label == label and load.state != "aborted" for load in self.loads):
                raise RuntimeError(f"the label {label} is in use")
            self.loads.append(Load(label, rows))
            return len(self.loads) - 1

    def commit(self, number: int) -> bool:
        """Commit a load: whether it is committed now."""
        with self._lock:
            self.commits += 1
            load = self.loads[number]
            if self.commits in self.aborts and load.state == "prepared":
                load.state = "aborted"
            if load.state == "prepared":
                load.state = "committed"
            if self.commits in self.silent:
                raise RuntimeError("the answer is lost")
            return load.state == "committed"

    def abort(self, number: int) -> bool:
        """Abort a load that is prepared."""
        with self._lock:
            load = self.loads[number]
            if load.state == "prepared":
                load.state = "aborted"
        return True

    def find(self, label: str) -> list[Any]:
        """Return the number and the state of the latest load of a label, or nothing."""
        with self._lock:
            found = [[number, load.state] for number, load in enumerate(self.loads) if load.label == label]
        return found[-1] if found else []

    def prepared(self) -> list[list[Any]]:
        """Return label and number of each load that is prepared."""
        with self._lock:
            return [[load.label, number] for number, load in enumerate(self.loads) if load.state == "prepared"]

    def rows(self) -> list[str]:
        """Return what readers see."""
        with self._lock:
            return [row for load in self.loads if load.state == "committed" for row in load.rows]


@contextmanager
def served(loads: Loads) -> Iterator[str]:
    """Serve loads in a thread, and yield host:port."""
    with SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False, allow_none=True) as server:
        server.register_instance(loads)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def client_of(server: str) -> Any:
    """Return a client of the server at host:port; it is for one thread at a time."""
    return ServerProxy(f"http://{server}", allow_none=True)
