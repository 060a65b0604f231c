"""When each stream's next pass is due, and that no stream has two at once. Performs no I/O.

Level-triggered: a wake-up says that something may have changed, never what. Wake-ups of one stream that come before its pass
are one; one that comes during its pass leads to another pass. Streams whose store hangs are held back (`bulkheads`), so that
they do not take the workers of the others.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple


class Key(NamedTuple):
    """Which stream: its namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As a person writes it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Due:
    """A pass that is to be run; `late_seconds` is how long it has waited for a worker."""

    key: Key
    late_seconds: float


_HELD_SECONDS = 0.2


@dataclass
class WakeUps:
    """A queue of streams by the moment at which they are due; for one event loop.

    `may_run` tells whether a stream's pass may be run beside those under way; where not, it is asked again a moment later.
    """

    clock: Callable[[], float]
    may_run: Callable[[Key, Iterable[Key]], bool] = lambda key, in_hand: True
    _due: dict[Key, float] = field(default_factory=dict)
    _asked: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)
    _held: list[Key] = field(default_factory=list)
    _held_until: float = 0.0
    _running: set[Key] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wake(self, key: Key, after_seconds: float = 0.0, head_start_seconds: float = 0.0) -> None:
        """Make a pass of the stream due; an earlier moment wins over a later one.

        With a head start it goes before those that have waited for less than that.
        """
        asked = self.clock() + after_seconds
        moment = asked - head_start_seconds
        if key in self._due and self._due[key] <= moment:
            return
        self._asked[key] = min(asked, self._asked.get(key, asked))
        self._due[key] = moment
        heapq.heappush(self._heap, (moment, key))
        self._changed.set()

    def forget(self, key: Key) -> None:
        """Drop what is due for a stream that is gone."""
        self._due.pop(key, None)
        self._asked.pop(key, None)

    @property
    def waiting(self) -> int:
        """How many streams are due now and have no worker."""
        now = self.clock()
        # It is asked for in the thread that serves the metrics, while the event loop changes both.
        due, running = list(self._due.items()), set(self._running)
        return sum(1 for key, moment in due if moment <= now and key not in running)

    async def next(self) -> Due:
        """Wait for a stream that is due and may run, and take it; the caller owes `done`.

        One worker at a time waits for a change, the others for their turn: a wake-up wakes one of them only.
        """
        async with self._turn:
            while True:
                self._changed.clear()
                taken, pause = self._take()
                if taken is not None:
                    return taken
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), pause)

    def done(self, key: Key) -> None:
        """Give back a stream whose pass has ended."""
        self._running.remove(key)
        if key in self._due:
            heapq.heappush(self._heap, (self._due[key], key))
        self._changed.set()

    def _take(self) -> tuple[Due | None, float | None]:
        """Return a stream that may run now, or how long there is none for."""
        now = self.clock()
        if self._held and now >= self._held_until:
            for key in self._held:
                if key in self._due:
                    heapq.heappush(self._heap, (self._due[key], key))
            self._held.clear()
        while self._heap:
            moment, key = self._heap[0]
            if self._due.get(key) != moment or key in self._running:
                heapq.heappop(self._heap)  # overtaken by an earlier wake-up, forgotten, or pushed again by `done`
                continue
            if moment > now:
                return None, self._pause(now, moment)
            heapq.heappop(self._heap)
            if not self.may_run(key, self._running):
                self._hold(key, now)
                continue
            del self._due[key]
            self._running.add(key)
            return Due(key, max(now - self._asked.pop(key), 0.0)), 0.0
        return None, self._pause(now, None)

    def _hold(self, key: Key, now: float) -> None:
        if not self._held:
            self._held_until = now + _HELD_SECONDS
        self._held.append(key)

    def _pause(self, now: float, moment: float | None) -> float | None:
        """How long there is nothing to do: until the next stream is due, or until those held back are asked about again."""
        moments = [moment] if moment is not None else []
        if self._held:
            moments.append(self._held_until)
        return min(moments) - now if moments else None
