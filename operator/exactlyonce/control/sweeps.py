"""Which streams of a list are to be looked at, and when: what a watch misses costs time only. Performs no I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from exactlyonce.control.wakeups import Key

PERIOD_SECONDS = 300.0
APART_SECONDS = 0.1
"""The least time between two streams of one sweep: with more than 3,000 of them a sweep takes longer than the period."""


@dataclass
class Sweeps:
    """Decides for one operator process, list after list, from when it begins to lead.

    All streams of the first list are due at once: drivers may have ended while nobody led. Later every stream is due once
    in each sweep, at a moment of its own, so that a large fleet never takes all workers at the same time. A stream that no
    earlier list had was created while the watch was down, or a moment ago; one that has left the list is gone. Both are
    due at once.
    """

    period_seconds: float = PERIOD_SECONDS
    _known: frozenset[Key] = frozenset()
    _begun: float | None = field(default=None)

    def due(self, keys: Collection[Key], now: float) -> dict[Key, float]:
        """Return which streams are due, and in how many seconds.

        `keys` are the streams that there are, `now` is any steady clock's.
        """
        known, self._known = self._known, frozenset(keys)
        if self._begun is None:
            self._begun = now
            return dict.fromkeys(keys, 0.0)
        changed = dict.fromkeys(self._known ^ known, 0.0)
        period_seconds = max(self.period_seconds, len(keys) * APART_SECONDS)
        if now - self._begun < period_seconds:
            return changed
        self._begun = now
        apart_seconds = period_seconds / max(len(keys), 1)
        return {key: number * apart_seconds for number, key in enumerate(keys)} | changed

    def end(self) -> None:
        """Forget what was listed: this operator does not lead any more."""
        self._known, self._begun = frozenset(), None
