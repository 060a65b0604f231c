"""How often a shard is asked, and how long to wait before a refused call is made again."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

CALLS_PER_SECOND = 5
"""GetRecords of a shard, of all consumers together, and GetShardIterator as well. Source: Kinesis' quotas."""

_MOST_KEPT = 10_000
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, waiting and chance, as the calls need them.

    `elapsed_seconds` never jumps; `wall_seconds` does not stand still while the machine is suspended.
    """

    elapsed_seconds: Callable[[], float] = time.monotonic
    wall_seconds: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)


class RateLimit:
    """Lets calls of one kind to one shard through, five in any second; threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._calls: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def wait(self, *key: str) -> None:
        """Wait until a call may be made, and count it."""
        with self._guard:
            calls = self._calls.setdefault(key, deque(maxlen=CALLS_PER_SECOND))
            self._calls.move_to_end(key)
            while len(self._calls) > _MOST_KEPT:
                self._calls.popitem(last=False)
            now = self._clock.elapsed_seconds()
            at = max(now, calls[0] + 1.0) if len(calls) == CALLS_PER_SECOND else now
            calls.append(at)
        if at > now:
            self._clock.sleep(at - now)


def pause_seconds(tries: int, chance: random.Random) -> float:
    """Return how long to wait after so many refused calls: somewhere below a bound that doubles each time."""
    return chance.uniform(0.5, 1.0) * min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << min(tries, 16)))
