"""Blocking looks at places beside the rounds: one at a place at a time, and few at once.

A place that did not answer, or that took long, shares one of the threads with all others of that kind, so that those which are
quick are never kept waiting by them. A server that sends a byte now and then can hold a thread for as long as it likes: such a
look is left to itself, and others get a thread in place of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from exactlyonce.monitor.targets import StreamKey

log = logging.getLogger("exactlyonce.monitor")

_THREADS = 2

_MOST_LEFT = 4
"""How many looks may be left to themselves, since each keeps the memory of what it has read; one beyond keeps its place."""

LEFT_SECONDS = 60.0
"""When a look is left to itself. What it finds counts still."""


class PlaceAnswer(Enum):
    """How a place answered."""

    QUICK = auto()
    SLOW = auto()
    SILENT = auto()


@dataclass
class Looks:
    """Looks at places, for one event loop. `look` is called in a thread; `kind` is what `on_problem` is told of silence."""

    kind: str
    look: Callable[[StreamKey], PlaceAnswer]
    left_seconds: float = LEFT_SECONDS
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _slow: set[str] = field(default_factory=set)
    _left: dict[str, str] = field(default_factory=dict)
    """The places with a look that was left to itself, and the namespace of each: it gets no other one meanwhile."""
    _places: asyncio.Semaphore | None = None
    _turn_of_slow: asyncio.Semaphore | None = None
    _executor: ThreadPoolExecutor | None = None
    ended: bool = False

    def begin(
        self, places: Mapping[str, Sequence[StreamKey]], on_problem: Callable[[str], None]
    ) -> list[asyncio.Task[None]]:
        """Look at the streams of each place, but at places where that is still being done."""
        self.ended = False
        if not self._asking or self._places is None or self._turn_of_slow is None:
            self._places, self._turn_of_slow = asyncio.Semaphore(_THREADS), asyncio.Semaphore(1)
        for place, keys in places.items():
            if place not in self._asking:
                asking = asyncio.create_task(self._query(place, keys, self._places, self._turn_of_slow, on_problem))
                self._asking[place] = asking
                asking.add_done_callback(partial(self._asked, place))
        return list(self._asking.values())

    def end(self) -> None:
        """Stop: a look that is under way ends with the answer that it waits for."""
        self.ended = True
        for asking in list(self._asking.values()):
            asking.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    async def _query(
        self,
        place: str,
        keys: Sequence[StreamKey],
        places: asyncio.Semaphore,
        turn_of_slow: asyncio.Semaphore,
        on_problem: Callable[[str], None],
    ) -> None:
        for key in keys:
            async with AsyncExitStack() as taken:
                if place in self._slow:
                    await taken.enter_async_context(turn_of_slow)
                await taken.enter_async_context(places)
                if key.namespace in self._left.values():
                    continue
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(_THREADS + _MOST_LEFT, thread_name_prefix=self.kind)
                looking = asyncio.get_running_loop().run_in_executor(self._executor, self.look, key)
                done, _ = await asyncio.wait({looking}, timeout=self.left_seconds)
                if not done and len(self._left) < _MOST_LEFT:
                    self._left[place] = key.namespace
                    self._slow.add(place)
                    log.warning("a look at a %s is left to itself: %s, for %s", self.kind, place, "/".join(key))
                    await taken.aclose()
                answered = await looking
                self._left.pop(place, None)
            if answered is PlaceAnswer.QUICK:
                self._slow.discard(place)
            else:
                self._slow.add(place)
            if answered is PlaceAnswer.SILENT:
                on_problem(self.kind)

    def _asked(self, place: str, _: asyncio.Task[None]) -> None:
        self._asking.pop(place, None)
        self._left.pop(place, None)
