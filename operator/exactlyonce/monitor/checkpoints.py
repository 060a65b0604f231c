"""How large checkpoints are, all generations together: each location is listed once in a while, few at a time.

The stores are those that passes have. A store that does not answer takes nothing away: what was known stays.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from exactlyonce.checkpoint.store import Size, SizedStore
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.monitor.looks import Looks, PlaceAnswer
from exactlyonce.monitor.targets import StreamKey

log = logging.getLogger("exactlyonce.monitor")

INTERVAL_SECONDS = 600.0
"""How long a location is not listed again; a service takes money for each 1,000 objects that it lists."""

MOST_OBJECTS = 1_000_000
"""Where counting stops: what is larger is told as so large. Spark keeps 100 batches, which are hundreds of objects."""


MOST_SECONDS = 900.0
"""Where measuring ends without a size: a server of a tenant's may send pages for ever that hold nothing."""


@dataclass
class _Checkpoint:
    """One stream's checkpoint; `due` is when it may be measured again, `size` what was found last."""

    store: SizedStore
    due: float
    size: Size | None = None


@dataclass
class CheckpointSizes:
    """Measures checkpoints. `begin` is for one event loop, everything else may come from any thread.

    One question is at a bucket at a time. Buckets that did not answer share one of the threads.
    """

    clock: Callable[[], float] = time.monotonic
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _checkpoints: dict[StreamKey, _Checkpoint] = field(default_factory=dict)
    _looks: Looks = field(init=False)

    def __post_init__(self) -> None:
        """Look at locations by measuring them."""
        self._looks = Looks("checkpoint", self._measure)

    def watch(self, key: StreamKey, store: SizedStore | None) -> None:
        """Measure a stream's checkpoint with that store from now on; None for one that is out of the operator's reach."""
        with self._guard:
            known = self._checkpoints.get(key)
            if store is None:
                self._checkpoints.pop(key, None)
            elif known is not None and known.store.location == store.location:
                known.store = store
            else:
                self._checkpoints[key] = _Checkpoint(store, self.clock())

    def forget(self, key: StreamKey) -> None:
        """Drop a stream that is gone."""
        self.watch(key, None)

    def size(self, key: StreamKey) -> Size | None:
        """Return how large a stream's checkpoint was found; None where it was not measured yet, or cannot be."""
        with self._guard:
            known = self._checkpoints.get(key)
            return None if known is None else known.size

    def begin(self, on_problem: Callable[[str], None]) -> list[asyncio.Task[None]]:
        """Measure what is due, but at buckets that are still being asked; `on_problem` is told of each that fails."""
        now = self.clock()
        buckets: dict[str, list[StreamKey]] = defaultdict(list)
        with self._guard:
            for key, checkpoint in self._checkpoints.items():
                if checkpoint.due <= now:
                    buckets[_bucket(checkpoint.store)].append(key)
        return self._looks.begin(buckets, on_problem)

    def end(self) -> None:
        """Stop: a listing that is under way ends with the answer that it waits for."""
        self._looks.end()

    def _measure(self, key: StreamKey) -> PlaceAnswer:
        """List one location; return how its store answered. Blocking."""
        with self._guard:
            checkpoint = self._checkpoints.get(key)
            if checkpoint is None:
                return PlaceAnswer.QUICK
            checkpoint.due = self.clock() + INTERVAL_SECONDS
            store = checkpoint.store
        found, until = Size(), self.clock() + MOST_SECONDS
        name = "/".join(key)
        try:
            for part in store.sizes():
                found += part
                if found.objects >= MOST_OBJECTS or self._is_gone(key, checkpoint):
                    break
                if self.clock() > until:
                    log.warning("the checkpoint of %s was not listed within %.0f seconds", name, MOST_SECONDS)
                    return PlaceAnswer.SILENT
        except ExactlyOnceError as problem:
            log.warning("the checkpoint of %s could not be measured: %s", name, problem)
            return PlaceAnswer.SILENT
        except Exception:
            log.exception("a checkpoint could not be measured: unexpected error")
            return PlaceAnswer.SILENT
        with self._guard:
            checkpoint.size = checkpoint.size if self._looks.ended else found
        return PlaceAnswer.QUICK

    def _is_gone(self, key: StreamKey, checkpoint: _Checkpoint) -> bool:
        """Whether nobody waits for what is being listed."""
        with self._guard:
            return self._looks.ended or self._checkpoints.get(key) is not checkpoint


def _bucket(store: SizedStore) -> str:
    return store.location.partition("://")[2].partition("/")[0]
