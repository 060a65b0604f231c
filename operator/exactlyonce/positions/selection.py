"""Which partitions a stream reads, by name: whether they exist is not asked. Performs no I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass

from exactlyonce.positions.ranges import Partition
from exactlyonce.schema.name_pattern import selects


@dataclass(frozen=True, slots=True)
class Selection:
    """Origins by name, origins by pattern, or single partitions; one of the three."""

    origins: frozenset[str] = frozenset()
    pattern: str | None = None
    partitions: frozenset[Partition] = frozenset()

    @property
    def by_partition(self) -> bool:
        """Whether single partitions are named, so that a new one of a topic is not read by itself."""
        return bool(self.partitions)

    def reads(self, partition: Partition) -> bool:
        """Whether the partition is named."""
        return partition in self.partitions or self._reads_all_of(partition.origin)

    def reads_origin(self, topic: str) -> bool:
        """Whether the topic, or a partition of it, is named."""
        return self._reads_all_of(topic) or any(partition.origin == topic for partition in self.partitions)

    def to_json(self) -> str:
        """Render it; equal sets give equal texts."""
        if self.pattern is not None:
            return json.dumps({"topicPattern": self.pattern})
        if self.partitions:
            return json.dumps({"assign": sorted([part.origin, part.key] for part in self.partitions)})
        return json.dumps({"topics": sorted(self.origins)})

    @classmethod
    def from_json(cls, text: str) -> Selection:
        """Parse what `to_json` renders."""
        found = json.loads(text)
        assigned = frozenset(Partition(topic, number) for topic, number in found.get("assign", ()))
        return cls(frozenset(found.get("topics", ())), found.get("topicPattern"), assigned)

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern}"
        return ", ".join([*sorted(self.origins), *(str(partition) for partition in sorted(self.partitions))])

    def _reads_all_of(self, topic: str) -> bool:
        return topic in self.origins or (self.pattern is not None and selects(self.pattern, topic))
