"""Where each batch of a query ends, asked of the brokers at each trigger. No pyspark here."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exactlyonce.connectors.kafka.reading import RecordsGone
from exactlyonce.positions.ranges import Partition, Positions

_LOOK_SECONDS = 5.0
"""How often topics and partitions are looked for that the stream selects and does not read yet."""

_IDLE_SECONDS = 0.025
"""How long a query rests that has nothing to read, so that Spark does not ask a hundred times a second."""


class Topics(Protocol):
    """The topics of a stream (`exactlyonce.connectors.kafka.topics.KafkaTopics`)."""

    def selected(self) -> frozenset[Partition]:
        """Return the partitions that the stream reads."""
        ...

    def earliest(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the offset of the first record of each partition."""
        ...

    def latest(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return where each partition ends for the stream."""
        ...


@dataclass
class Planner:
    """Plans the batches of one query; `most` is how many offsets a batch spans at most."""

    topics: Topics
    most: int
    clock: Callable[[], float] = time.monotonic
    rest: Callable[[float], None] = time.sleep
    _until: Mapping[Partition, int] | None = None
    _selected: frozenset[Partition] = frozenset()
    _looked_at: float | None = field(default=None, repr=False)

    def read_until_now(self) -> None:
        """Read each partition as far as it holds records by now, and no further."""
        self._until = self.topics.latest(self.topics.selected())

    def ends(self, starts: Positions) -> Positions:
        """Return where the batch ends that starts here; where nothing is to be read, it ends where it starts.

        A partition that has appeared is named at its first record, and read from the next batch on: so Spark's log says where
        each partition of a batch starts.

        Raises:
            RecordsGone: if a partition ends before the position that the query is at.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        latest = self._latest(starts)
        shares = shared(self.most, {key: latest[key] - start for key, start in starts.items() if key in latest})
        ends = {key: start + shares.get(key, 0) for key, start in starts.items()}
        appeared = self._now_selected() - starts.keys()
        ends |= self.topics.earliest(appeared) if appeared else {}
        if self._until is None and ends == dict(starts):
            self.rest(_IDLE_SECONDS)
        return Positions(ends)

    def _latest(self, starts: Positions) -> Mapping[Partition, int]:
        if self._until is not None:
            return {key: max(start, self._until[key]) for key, start in starts.items() if key in self._until}
        latest = self.topics.latest(starts)
        if gone := [f"{key} at {latest[key]}, before {start}" for key, start in starts.items() if latest[key] < start]:
            raise RecordsGone(
                f"The log of Kafka ends {', '.join(gone)}, where the stream is: it was truncated, or the topic recreated."
            )
        return latest

    def _now_selected(self) -> frozenset[Partition]:
        if self._until is not None:
            return frozenset(self._until)
        now = self.clock()
        if self._looked_at is None or now >= self._looked_at + _LOOK_SECONDS:
            self._selected, self._looked_at = self.topics.selected(), now
        return self._selected


def shared(most: int, waiting: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return how many offsets of each partition a batch takes: all that wait, or shares in proportion to what waits.

    Together they are exactly `most` then. What division leaves over goes to those that lose most by it.
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    shares = {key: most * count // total for key, count in waiting.items()}
    by_loss = sorted(waiting, key=lambda key: (-(most * waiting[key] % total), key))
    for key in by_loss[: most - sum(shares.values())]:
        shares[key] += 1
    return shares
