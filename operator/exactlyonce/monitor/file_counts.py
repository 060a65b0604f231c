"""How many files of each stream have not landed, where a source is a folder: counted beside the rounds while no driver runs.

A folder may hold a million files, so none is listed within a round: each has a look of its own, with an end, and is left alone
for a multiple of the time that it took. While a driver runs, it tells the same by what it lists anyway.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from exactlyonce.bounded_text import one_line
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.monitor.gathering import Watched
from exactlyonce.monitor.looks import Looks, PlaceAnswer
from exactlyonce.monitor.snapshot import FilesSeen, after_files, landed_positions
from exactlyonce.monitor.targets import StreamKey
from exactlyonce.source.counted_files import FileCounter

log = logging.getLogger("exactlyonce.monitor")

INTERVAL_SECONDS = 60.0
"""How long a folder is not counted again; a service takes money for each 1,000 objects that it lists."""

_PAUSE_SHARE = 20
"""A folder that took long to count is left alone for that many times as long."""

_SLOW_SECONDS = 2.0

_LEDGER_FORGOT = (
    "How many files wait is not known: batches have landed, and the ledger does not know the stream, so it does not say which "
    "files they have read."
)


@dataclass
class _Counted:
    """One stream's files; `due` is when they may be counted again."""

    counter: FileCounter
    due: float


@dataclass
class FileCounts:
    """Counts files. `begin` is for one event loop, everything else may come from any thread."""

    clock: Callable[[], float] = time.monotonic
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _counted: dict[StreamKey, _Counted] = field(default_factory=dict)
    _at_rest: dict[StreamKey, Watched] = field(default_factory=dict)
    _has_landed: frozenset[StreamKey] = frozenset()
    _looks: Looks = field(init=False)

    def __post_init__(self) -> None:
        """Look at folders by counting them."""
        self._looks = Looks("source", self._count)

    def watch(self, key: StreamKey, counter: FileCounter | None) -> None:
        """Count a stream's files by this from now on; None for a source that counts none."""
        with self._guard:
            known = self._counted.get(key)
            if counter is None:
                self._counted.pop(key, None)
            elif known is not None:
                known.counter = counter
            else:
                self._counted[key] = _Counted(counter, self.clock())

    def forget(self, key: StreamKey) -> None:
        """Drop a stream that is gone."""
        self.watch(key, None)

    def begin(
        self, at_rest: Collection[Watched], has_landed: Collection[StreamKey], on_problem: Callable[[str], None]
    ) -> list[asyncio.Task[None]]:
        """Count what is due of streams of which no driver runs; `on_problem` is told of each folder that does not answer.

        `has_landed` are those whose status remembers a batch.
        """
        now = self.clock()
        places: dict[str, list[StreamKey]] = defaultdict(list)
        with self._guard:
            self._at_rest = {watched.target.key: watched for watched in at_rest}
            self._has_landed = frozenset(has_landed)
            for key, counted in self._counted.items():
                if key in self._at_rest and counted.due <= now:
                    places[counted.counter.place].append(key)
        return self._looks.begin(places, on_problem)

    def end(self) -> None:
        """Stop: a listing that is under way ends with the answer that it waits for."""
        self._looks.end()

    def _count(self, key: StreamKey) -> PlaceAnswer:
        """Count one stream's files; return how its folder answered. Blocking."""
        with self._guard:
            counted, watched, has_landed = self._counted.get(key), self._at_rest.get(key), key in self._has_landed
        if counted is None or watched is None or self._looks.ended:
            return PlaceAnswer.QUICK
        landed = landed_positions(watched.snapshot)
        if landed is None:
            return PlaceAnswer.QUICK  # the ledger is asked every few seconds: until it has answered, nothing is due
        began = self.clock()
        answered = PlaceAnswer.QUICK
        try:
            is_forgotten = has_landed and watched.snapshot.landed is None
            seen = (
                FilesSeen(landed, problem=_LEDGER_FORGOT)
                if is_forgotten
                else FilesSeen(landed, counted.counter.count(landed))
            )
        except ExactlyOnceError as problem:
            seen = FilesSeen(landed, problem=str(problem))
            answered = PlaceAnswer.QUICK if isinstance(problem, Refused) else PlaceAnswer.SILENT
        except Exception as problem:
            log.exception("files could not be counted: unexpected error")
            said = f"The files that wait could not be counted: {one_line(problem)}."
            seen, answered = FilesSeen(landed, problem=said), PlaceAnswer.SILENT
        took_seconds = self.clock() - began
        counted.due = self.clock() + max(INTERVAL_SECONDS, _PAUSE_SHARE * took_seconds)
        watched.learn(partial(after_files, seen=seen))
        if answered is PlaceAnswer.QUICK and took_seconds > _SLOW_SECONDS:
            return PlaceAnswer.SLOW
        return answered
