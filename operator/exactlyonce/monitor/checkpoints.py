"""How large checkpoints are, all generations together: each location is listed once in a while, few at a time.

The stores are those that passes have. A store that does not answer takes nothing away: what was known stays.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from exactlyonce.checkpoint.store import Size, SizedStore
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.monitor.targets import StreamKey

log = logging.getLogger("exactlyonce.monitor")

INTERVAL_SECONDS = 600.0
"""How long a location is not listed again; a service takes money for each 1,000 objects that it lists."""

MOST_OBJECTS = 1_000_000
"""Where counting stops: what is larger is told as so large. Spark keeps 100 batches, which are hundreds of objects."""

_THREADS = 2


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
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)
    _place_of_silent: asyncio.Semaphore | None = None
    _executor: ThreadPoolExecutor | None = None
    _ended: bool = False

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
        self._ended, now = False, self.clock()
        buckets: dict[str, list[StreamKey]] = defaultdict(list)
        with self._guard:
            for key, checkpoint in self._checkpoints.items():
                if checkpoint.due <= now:
                    buckets[_bucket(checkpoint.store)].append(key)
        for bucket, keys in buckets.items():
            if bucket not in self._asking:
                asking = asyncio.create_task(self._query(bucket, keys, on_problem))
                self._asking[bucket] = asking
                asking.add_done_callback(partial(self._asked, bucket))
        return list(self._asking.values())

    def end(self) -> None:
        """Stop: a listing that is under way ends with the answer that it waits for."""
        self._ended = True
        for asking in list(self._asking.values()):
            asking.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = self._place_of_silent = None

    async def _query(self, bucket: str, keys: Sequence[StreamKey], on_problem: Callable[[str], None]) -> None:
        if self._executor is None or self._place_of_silent is None:
            self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="checkpoints")
            self._place_of_silent = asyncio.Semaphore(1)
        for key in keys:
            async with self._place_of_silent if bucket in self._silent else nullcontext():
                answered = await asyncio.get_running_loop().run_in_executor(self._executor, self._measure, key)
            if answered:
                self._silent.discard(bucket)
            else:
                self._silent.add(bucket)
                on_problem("checkpoint")

    def _asked(self, bucket: str, _: asyncio.Task[None]) -> None:
        self._asking.pop(bucket, None)

    def _measure(self, key: StreamKey) -> bool:
        """List one location; return whether its store answered. Blocking."""
        with self._guard:
            checkpoint = self._checkpoints.get(key)
            if checkpoint is None:
                return True
            checkpoint.due = self.clock() + INTERVAL_SECONDS
            store = checkpoint.store
        found = Size()
        try:
            for part in store.sizes():
                found += part
                if found.objects >= MOST_OBJECTS or self._is_gone(key, checkpoint):
                    break
        except ExactlyOnceError as problem:
            log.warning("the checkpoint of %s could not be measured: %s", "/".join(key), problem)
            return False
        except Exception:
            log.exception("a checkpoint could not be measured: unexpected error")
            return False
        with self._guard:
            checkpoint.size = checkpoint.size if self._ended else found
        return True

    def _is_gone(self, key: StreamKey, checkpoint: _Checkpoint) -> bool:
        """Whether nobody waits for what is being listed."""
        with self._guard:
            return self._ended or self._checkpoints.get(key) is not checkpoint


def _bucket(store: SizedStore) -> str:
    return store.location.partition("://")[2].partition("/")[0]
