"""The time that one request to a service may take: its connection's own, in sending, waiting and reading, header and body.

A socket's timeout is that of one wait: a server that sends a byte now and then never meets it. So each wait of a socket is
limited to what is left of the request's time as well. What the caller does between two reads of a body does not count.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any, cast

import botocore.awsrequest

SLOWEST_BYTES_PER_SECOND = 256 * 1024
"""A request's time grows with each byte that is moved, by as much as it takes at this rate: large ones end, too."""

_CHUNK_BYTES = 64 * 1024

_of_thread = local()


class Budget:
    """What is left of the time of one request; it runs only in a block of `running`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = seconds
        self._until = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the time run, and limit the sockets that this thread uses in the block."""
        outer = _of_thread.__dict__.get("budget")
        _of_thread.budget, self._until = self, self._clock() + self._left
        try:
            yield
        finally:
            _of_thread.budget, self._left = outer, self._until - self._clock()

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left, in a block of `running`."""
        return self._until <= self._clock()

    def left_seconds(self) -> float:
        """Return how much is left.

        Raises:
            TimeoutError: if it is used up.
        """
        left = self._until - self._clock()
        if left <= 0:
            raise TimeoutError("the request took longer than it may")
        return left

    def moved(self, count: int) -> None:
        """Count bytes that were sent or received."""
        self._until += count / SLOWEST_BYTES_PER_SECOND


@contextmanager
def each_within(seconds: float | None) -> Iterator[None]:
    """Let no request that this thread makes in the block have more than so many seconds; None limits nothing."""
    outer = _of_thread.__dict__.get("most")
    _of_thread.most = seconds if outer is None or (seconds is not None and seconds < outer) else outer
    try:
        yield
    finally:
        _of_thread.most = outer


def budget_of(seconds: float, clock: Callable[[], float] = time.monotonic) -> Budget:
    """Return the budget of a request that may take so many seconds, or less where `each_within` says so."""
    most = _of_thread.__dict__.get("most")
    return Budget(seconds if most is None else min(seconds, most), clock)


def limit_connections(http: Any) -> None:
    """Let the connections of an HTTP session of botocore keep to the budget of the thread that uses them."""
    pools = {"http": _HttpPool, "https": _HttpsPool}
    # The session gives one to each pool manager that it makes, and has made the first one.
    http._pool_classes_by_scheme = http._manager.pool_classes_by_scheme = pools


class _LimitedSocket:
    """A socket each of whose waits ends with the budget of the thread that waits."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._timeout: float | None = socket.gettimeout()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def settimeout(self, seconds: float | None) -> None:
        """Set the limit of one wait."""
        self._timeout = seconds
        self._socket.settimeout(seconds)

    def makefile(self, mode: str = "rb", buffering: int = -1) -> Any:
        """Return what the answer is read from."""
        assert mode == "rb", "an answer is read"
        raw = _LimitedReader(self, self._socket.makefile("rb", 0))
        return raw if buffering == 0 else io.BufferedReader(raw)

    def sendall(self, content: Any) -> None:
        """Send all of it, piece by piece."""
        left = memoryview(content).cast("B")
        while left:
            budget = self.limited()
            sent = self._socket.send(left[:_CHUNK_BYTES])
            left = left[sent:]
            if budget is not None:
                budget.moved(sent)

    def limited(self) -> Budget | None:
        """Limit the next wait, and return the budget that it is of.

        Raises:
            TimeoutError: if nothing is left.
        """
        budget: Budget | None = _of_thread.__dict__.get("budget")
        if budget is not None:
            left = budget.left_seconds()
            self._socket.settimeout(left if self._timeout is None else min(left, self._timeout))
        return budget


class _LimitedReader(io.RawIOBase):
    def __init__(self, socket: _LimitedSocket, raw: Any) -> None:
        self._socket = socket
        self._raw = raw

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return cast("int", self._raw.fileno())

    def readinto(self, buffer: Any) -> int | None:
        budget = self._socket.limited()
        count = cast("int | None", self._raw.readinto(buffer))
        if budget is not None and count:
            budget.moved(count)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Limited:
    """A connection whose socket keeps to budgets. The library's own makes it, and limits that by its connect timeout."""

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc] # of the class beside it
        self.sock = _LimitedSocket(self.sock)


class _HttpConnection(_Limited, botocore.awsrequest.AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(_Limited, botocore.awsrequest.AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(botocore.awsrequest.AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpConnection


class _HttpsPool(botocore.awsrequest.AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpsConnection
