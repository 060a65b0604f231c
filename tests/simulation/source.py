"""A model of Kafka topics: partitions with growing ends, retention, and an id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from exactlyonce.errors import SourceUnreachable
from exactlyonce.offsets import OffsetRange, Positions, TopicPartition
from exactlyonce.source.bounds import Bounds, SourceView

TOPIC, OTHER_TOPIC = "orders", "returns"


@dataclass
class MemoryTopic:
    """One topic, or a few that are alike. A record is its partition and offset; `reads` says what a stream's spec names."""

    ends: dict[TopicPartition, int]
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    topic_id: str = "id-1"
    up: bool = True
    step: Callable[[str], None] = lambda label: None
    reads: Callable[[TopicPartition], bool] = lambda partition: True

    brokers = "memory"

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset that can be read."""
        return self.starts.get(partition, 0)

    def view(self, also: frozenset[TopicPartition] = frozenset()) -> SourceView:
        """Return what the topic holds."""
        self._ask("ask the source for its bounds")
        selected = frozenset(key for key in self.ends if self.reads(key))
        bounds = {key: Bounds(self.earliest(key), end) for key, end in self.ends.items() if key in selected | also}
        return SourceView(bounds, {key.topic: self.topic_id for key in self.ends}, selected)

    def start(self, view: SourceView, only: frozenset[TopicPartition] | None = None) -> Positions:
        """Start at the earliest."""
        chosen = view.selected if only is None else only
        return Positions({key: offset for key, offset in view.earliest.items() if key in chosen})

    def earliest_and_ids(self, partitions: list[TopicPartition]) -> tuple[Positions, dict[str, str]]:
        """Return the earliest offsets and the topic's id."""
        self._ask("ask the source for earliest and ids")
        return Positions({key: self.earliest(key) for key in partitions}), {
            key.topic: self.topic_id for key in partitions
        }

    def read(self, partition: TopicPartition, offsets: OffsetRange) -> list[tuple[str, int, int]]:
        """Return the records of a range that are there: retention takes them without a word."""
        first = max(offsets.from_offset, self.earliest(partition))
        return [(self.topic_id, partition.partition, offset) for offset in range(first, offsets.until_offset)]

    def naming(self, names: frozenset[str]) -> NamedTopics:
        """Return the source as a spec that names these topics has it."""
        return NamedTopics(self, names)

    def _ask(self, what: str) -> None:
        self.step(what)
        if not self.up:
            raise SourceUnreachable("the brokers do not answer")


@dataclass(frozen=True)
class NamedTopics:
    """A `Source`: the topics that one version of a resource names, of those that there are."""

    topic: MemoryTopic
    names: frozenset[str]

    brokers = "memory"

    def view(self, also: frozenset[TopicPartition] = frozenset()) -> SourceView:
        """Return what they hold."""
        everything = self.topic.view(frozenset(self.topic.ends))
        selected = frozenset(key for key in everything.selected if key.topic in self.names)
        bounds = {key: found for key, found in everything.bounds.items() if key in selected | also}
        return SourceView(bounds, everything.topic_ids, selected)

    def start(self, view: SourceView, only: frozenset[TopicPartition] | None = None) -> Positions:
        """Start at the earliest."""
        return self.topic.start(view, only)
