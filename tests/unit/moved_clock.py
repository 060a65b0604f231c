"""A clock in seconds that a test moves, for what is handed `time.monotonic` otherwise."""

from __future__ import annotations


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
