"""One slow store delays its own streams only: how many passes may be at a store at once, and who is held back meanwhile.

The idea is the bulkhead of a ship (Nygard, Release It!): what hangs fills its own compartment. A pass that finds a store's
places taken waits for one, unless the calls that have them do not return: then it gives its worker back. Streams of such a
store are not begun at all, and streams of stores that were slow of late have half of the workers together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from exactlyonce.control.wakeups import Key
from exactlyonce.errors import StoreBusy

HANGS_SECONDS = 3.0
"""A call that takes longer does not return, for all that is known; a launch that is given up costs an attempt."""

_SLOW_FOR_SECONDS = 60.0
_LOOK_SECONDS = 0.25


@dataclass
class Store:
    """One store: `places` calls may be at it at once; safe to use from several threads."""

    name: str
    places: int
    clock: Callable[[], float]
    hangs_seconds: float = HANGS_SECONDS
    _begun: dict[object, float] = field(default_factory=dict)
    _slow_until: float = float("-inf")
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Take a place for one call.

        Raises:
            StoreBusy: if none is free, and a call that has one does not return.
        """
        call = object()
        with self._changed:
            while self._is_full():
                if self._hangs():
                    raise StoreBusy(f"{self.name} does not answer {len(self._begun)} passes that ask it; trying again.")
                self._changed.wait(_LOOK_SECONDS)
            self._begun[call] = self.clock()
        try:
            yield
        finally:
            with self._changed:
                now = self.clock()
                if now - self._begun.pop(call) > self.hangs_seconds:
                    self._slow_until = now + _SLOW_FOR_SECONDS
                self._changed.notify()

    @property
    def is_asked(self) -> bool:
        """Whether a call is at it at this moment."""
        with self._changed:
            return bool(self._begun)

    @property
    def hangs(self) -> bool:
        """Whether every place is taken, and at least one by a call that does not return."""
        with self._changed:
            return self._hangs()

    @property
    def is_slow(self) -> bool:
        """Whether a call has taken long of late, or is taking long."""
        with self._changed:
            return self.clock() < self._slow_until or self._oldest_seconds() > self.hangs_seconds

    def _is_full(self) -> bool:
        return len(self._begun) >= self.places

    def _hangs(self) -> bool:
        return self._is_full() and self._oldest_seconds() > self.hangs_seconds

    def _oldest_seconds(self) -> float:
        return self.clock() - min(self._begun.values(), default=float("inf"))


@dataclass(frozen=True)
class Shown:
    """Where the streams of one namespace show what has landed: a call takes a place of the namespace's, and one of all.

    No pass is held back for such a server, so nothing else would keep the tenants of two namespaces from taking all workers.
    """

    bulkheads: Bulkheads
    namespace: str

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Take both places for one call.

        Raises:
            StoreBusy: as `Store.entered`.
        """
        share = self.bulkheads.share
        own = self.bulkheads.store(f"What streams of namespace {self.namespace} show", max(share // 2, 1))
        with own.entered(), self.bulkheads.store("What streams show", share).entered():
            yield


@dataclass
class Bulkheads:
    """The stores of all streams, by name; safe to use from several threads. `workers` is how many passes may run at once."""

    workers: int
    clock: Callable[[], float] = time.monotonic
    hangs_seconds: float = HANGS_SECONDS
    _stores: dict[str, Store] = field(default_factory=dict)
    _of: dict[Key, tuple[Store, ...]] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def share(self) -> int:
        """How many passes may be at one store, and how many of streams with a slow store may run, at once."""
        return max(self.workers // 2, 1)

    def store(self, name: str, places: int | None = None) -> Store:
        """Return the store of that name; one that is new has so many `places`, by default `share`."""
        with self._guard:
            found = self._stores.get(name)
            if found is None:
                found = self._stores[name] = Store(name, places or self.share, self.clock, self.hangs_seconds)
            return found

    def shown(self, namespace: str) -> Shown:
        """Return where streams of a namespace show what has landed, which is not among the stores that a stream has."""
        return Shown(self, namespace)

    def belongs(self, key: Key, *names: str) -> None:
        """Note which stores a stream has."""
        stores = tuple(self.store(name) for name in names)
        with self._guard:
            self._of[key] = stores
            self._drop_unused()

    def belongs_too(self, key: Key, name: str) -> None:
        """Note one more store that a stream has."""
        store = self.store(name)
        with self._guard:
            before = self._of.get(key, ())
            self._of[key] = before if store in before else (*before, store)

    def forget(self, key: Key) -> None:
        """Drop a stream that is gone."""
        with self._guard:
            self._of.pop(key, None)

    def may_run(self, key: Key, in_hand: Iterable[Key]) -> bool:
        """Whether a stream's pass may be begun beside those under way."""
        stores = self._of.get(key, ())
        if any(store.hangs for store in stores):
            return False
        if not any(store.is_slow for store in stores):
            return True
        return sum(1 for other in in_hand if any(store.is_slow for store in self._of.get(other, ()))) < self.share

    def _drop_unused(self) -> None:
        """Stores come and go with resources; what none names any more, and no call is at, is dropped when there are many."""
        if len(self._stores) > 2 * len(self._of) + 64:
            used = {store.name for stores in self._of.values() for store in stores}
            self._stores = {name: store for name, store in self._stores.items() if name in used or store.is_asked}
