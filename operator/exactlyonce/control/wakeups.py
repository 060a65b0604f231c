"""When each stream's next pass is due, and that no stream has two at once. Performs no I/O.

Level-triggered: a wake-up says that something may have changed, never what. Wake-ups of one stream that come before its pass
are one; one that comes during its pass leads to another pass. A group (streams of one store) has a share of the
workers only, so that a slow store delays its own streams.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable
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


@dataclass
class WakeUps:
    """A queue of streams by the moment at which they are due; for one event loop.

    `group_of` names the group of a stream as far as it is known. `group_share` is how many passes of one group may run at once.
    """

    clock: Callable[[], float]
    group_of: Callable[[Key], str] = lambda key: ""
    group_share: int = 1
    _due: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)
    _held_back: dict[str, list[Key]] = field(default_factory=dict)
    _running: dict[Key, str] = field(default_factory=dict)
    _groups: Counter[str] = field(default_factory=Counter)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self, key: Key, after_seconds: float = 0.0) -> None:
        """Make a pass of the stream due; an earlier moment wins over a later one."""
        moment = self.clock() + after_seconds
        if key in self._due and self._due[key] <= moment:
            return
        self._due[key] = moment
        heapq.heappush(self._heap, (moment, key))
        self._changed.set()

    def forget(self, key: Key) -> None:
        """Drop what is due for a stream that is gone."""
        self._due.pop(key, None)

    @property
    def waiting(self) -> int:
        """How many streams are due now and have no worker."""
        now = self.clock()
        return sum(1 for key, moment in self._due.items() if moment <= now and key not in self._running)

    async def next(self) -> Due:
        """Wait for a stream that is due and may run, and take it; the caller owes `done`."""
        while True:
            self._changed.clear()
            taken, pause = self._take()
            if taken is not None:
                return taken
            try:
                await asyncio.wait_for(self._changed.wait(), pause)
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """Give back a stream whose pass has ended."""
        group = self._running.pop(key)
        self._groups[group] -= 1
        for held in self._held_back.pop(group, []):
            if held in self._due:
                heapq.heappush(self._heap, (self._due[held], held))
        if key in self._due:
            heapq.heappush(self._heap, (self._due[key], key))
        self._changed.set()

    def _take(self) -> tuple[Due | None, float | None]:
        """Return a stream that may run now, or how long there is none for."""
        now = self.clock()
        while self._heap:
            moment, key = self._heap[0]
            if self._due.get(key) != moment or key in self._running:
                heapq.heappop(self._heap)  # overtaken by an earlier wake-up, forgotten, or pushed again by `done`
                continue
            if moment > now:
                return None, moment - now
            heapq.heappop(self._heap)
            group = self.group_of(key)
            if self._groups[group] >= self.group_share:
                self._held_back.setdefault(group, []).append(key)
                continue
            del self._due[key]
            self._running[key] = group
            self._groups[group] += 1
            if self._heap:
                self._changed.set()  # another worker may find more
            return Due(key, now - moment), 0.0
        return None, None
