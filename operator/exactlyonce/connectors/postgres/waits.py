"""End the wait for a server that keeps its connections open and does not answer.

The kernel of a frozen server still answers for it, so no limit of the network ends such a wait, and the server's own limits
stand still with it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg2
import psycopg2.extensions

_LOOK_SECONDS = 0.5
_IDLE_LOOKS = 120


@contextmanager
def answering_within(connection: psycopg2.extensions.connection, seconds: float) -> Iterator[None]:
    """Cut the connection when the block has not ended in time, give or take a second; its statement then fails."""
    waited = _Waited(connection, time.monotonic() + seconds)
    _WATCH.begin(waited)
    try:
        yield
    finally:
        _WATCH.end(waited)


class _Waited:
    """One connection whose answer is awaited."""

    def __init__(self, connection: psycopg2.extensions.connection, until: float) -> None:
        self.until = until
        self._connection = connection

    def cut(self) -> None:
        with suppress(OSError, psycopg2.Error):
            held = socket.socket(fileno=self._connection.fileno())
            try:
                held.shutdown(socket.SHUT_RDWR)
            finally:
                held.detach()


class _Watch:
    """One thread for all connections of the process: starting one a question would cost more than the question."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waited: set[_Waited] = set()
        self._thread: threading.Thread | None = None

    def begin(self, waited: _Waited) -> None:
        with self._guard:
            self._waited.add(waited)
            if self._thread is None or not self._thread.is_alive():  # it is not taken along by a fork
                self._thread = threading.Thread(target=self._examine, name="waits", daemon=True)
                self._thread.start()

    def end(self, waited: _Waited) -> None:
        # Under the guard: never is the socket of a wait that has ended cut, whose number may be another's by then.
        with self._guard:
            self._waited.discard(waited)

    def _examine(self) -> None:
        idle_looks = 0
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._guard:
                now = time.monotonic()
                for waited in [waited for waited in self._waited if waited.until < now]:
                    self._waited.discard(waited)
                    waited.cut()
                idle_looks = 0 if self._waited else idle_looks + 1
                if idle_looks > _IDLE_LOOKS:
                    self._thread = None
                    return


_WATCH = _Watch()
