"""How often a shard is asked."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Protocol

from exactlyonce.aws.calls import Clock

CALLS_PER_SECOND = 5
"""GetRecords of a shard, of all consumers together, and GetShardIterator as well. Source: Kinesis' quotas."""

SHARD_BYTES_PER_SECOND = 2_000_000
"""What GetRecords gives of a shard, to all consumers together. After an answer of 10 MB, calls are refused for 5 s. Source:
GetRecords in the API's reference."""

MOST_REST_SECONDS = 6.0
"""An answer of Kinesis has 10 MiB at most, and keys. Who sends more is not Kinesis, and keeps nobody waiting for longer."""

_MOST_KEPT = 10_000


class Sized(Protocol):
    """A record, as far as its size matters."""

    @property
    def partition_key(self) -> str:
        """The key."""
        ...

    @property
    def data(self) -> bytes:
        """The content."""
        ...


def rest_seconds(records: Iterable[Sized]) -> float:
    """Return for how long a shard gives nothing more once it has given these records."""
    size_bytes = sum(len(record.data) + len(record.partition_key) for record in records)
    return min(size_bytes / SHARD_BYTES_PER_SECOND, MOST_REST_SECONDS)


class RateLimit:
    """Lets calls of one kind to one shard through, five in any second and none while it rests; threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._calls: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()
        self._rests_until: dict[tuple[str, ...], float] = {}

    def wait(self, *key: str) -> float:
        """Wait until a call may be made, count it, and return when that was (`Clock.elapsed_seconds`)."""
        with self._guard:
            calls = self._calls.setdefault(key, deque(maxlen=CALLS_PER_SECOND))
            self._calls.move_to_end(key)
            while len(self._calls) > _MOST_KEPT:
                self._rests_until.pop(self._calls.popitem(last=False)[0], None)
            now = self._clock.elapsed_seconds()
            at = max(now, self._rests_until.get(key, now))
            if len(calls) == CALLS_PER_SECOND:
                at = max(at, calls[0] + 1.0)
            calls.append(at)
        if at > now:
            self._clock.sleep(at - now)
        return at

    def rest(self, called_at: float, seconds: float, *key: str) -> None:
        """Let no call through for so long after one that was made; from call to call it is as long for Kinesis."""
        with self._guard:
            if key in self._calls:
                self._rests_until[key] = max(called_at, self._rests_until.get(key, called_at)) + seconds
