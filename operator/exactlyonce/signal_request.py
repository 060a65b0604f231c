"""A request that a signal handler makes and the main thread waits for.

`threading.Event` is not safe in a signal handler: its `set` takes a lock that its `wait` holds for moments, and a handler
interrupts the main thread at any moment. A handler that comes while `wait` holds the lock waits for ever for that very thread.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress


class SignalRequest:
    """Set once, by a signal handler or any thread; stays set. Its pipe lives as long as the process."""

    def __init__(self) -> None:
        self._is_set = False
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def is_set(self) -> bool:
        """Whether it was made."""
        return self._is_set

    def set(self) -> None:
        """Make it; takes no lock, and may be called by a signal handler."""
        self._is_set = True
        with suppress(BlockingIOError):  # it was made so often that the pipe is full
            os.write(self._write, b".")

    def wait(self, seconds: float) -> bool:
        """Wait at most this long for it; return whether it was made."""
        if not self._is_set:
            select.select([self._read], [], [], max(seconds, 0.0))
        return self._is_set
