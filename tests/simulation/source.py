"""A model of Kafka topics: partitions with growing ends, retention, leaders that lose records, and an id or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.errors import SourceUnreachable
from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID, Fingerprint
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce.source.port import Bounds, LeaderEpochs, SourceNow, SourceView

TOPIC, OTHER_TOPIC = "orders", "returns"

Record = tuple[str, int, int]
"""What a record is in the table: the life of the log it was written in, its partition and its offset."""


@dataclass(frozen=True)
class Life:
    """What one leader has written: the records from `start` on, until the next leader's. `name` tells records apart that
    stood at the same offset.
    """

    start: int
    name: str
    epoch: int


@dataclass
class MemoryTopic:
    """One topic, or a few that are alike. `reads` says what a stream's spec names; without `has_ids` the brokers are old ones.

    `former` are the offsets at which other records once were, and `replaced` the topics that were recreated.
    """

    ends: dict[Partition, int]
    starts: dict[Partition, int] = field(default_factory=dict)
    topic_id: str = "id-1"
    up: bool = True
    step: Callable[[str], None] = lambda label: None
    wait: Callable[[str, Callable[[], bool]], None] = lambda label, may_go: None
    reads: Callable[[Partition], bool] = lambda partition: True
    has_ids: bool = True
    lives: dict[Partition, list[Life]] = field(default_factory=dict)
    former: dict[Partition, set[int]] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)

    address = "memory"
    codec = CODEC

    def earliest(self, partition: Partition) -> int:
        """The first offset that can be read."""
        return self.starts.get(partition, 0)

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return what the topic holds."""
        self._request("ask the source for its bounds")
        selected = frozenset(key for key in self.ends if self.reads(key))
        bounds = {key: Bounds(self.earliest(key), end) for key, end in self.ends.items() if key in selected | also}
        held = {
            key: offset
            for key, offset in (offsets or {}).items()
            if key in bounds and bounds[key].earliest <= offset < bounds[key].latest
        }
        records = self.records_at(held) if held else {}
        return SourceView(bounds, {key.origin: self.id_of(key.origin) for key in self.ends}, selected, records=records)

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Start at the earliest."""
        chosen = view.selected if only is None else only
        return Positions({key: offset for key, offset in view.earliest.items() if key in chosen})

    def now(self, partitions: list[Partition]) -> SourceNow:
        """Return the earliest offsets, the topic's id and the leader epochs."""
        self._request("ask the source for earliest, ids and leader epochs")
        return SourceNow(
            Positions({key: self.earliest(key) for key in partitions}),
            {key.origin: self.id_of(key.origin) for key in partitions},
            self._epochs(partitions),
        )

    def request_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Return the leaders' epochs as of now."""
        self._request("ask the source for leader epochs")
        found = self._epochs(partitions)
        return lambda: found

    def records_at(self, offsets: Mapping[Partition, int]) -> dict[Partition, Fingerprint | None]:
        """Return the fingerprint of the record at each offset."""
        self._request("read single records")
        held = {key: offset for key, offset in offsets.items() if self.earliest(key) <= offset < self.ends[key]}
        return {key: self._fingerprint(key, offset) for key, offset in held.items()}

    def compacted(self, topics: frozenset[str]) -> frozenset[str]:
        """Return the topics that are compacted: none is here."""
        return frozenset()

    def last_records(self, ranges: Ranges) -> MemoryReading:
        """Begin to read the last record of each range; it is read when it is asked for, once the brokers answer."""
        return MemoryReading(self, ranges)

    def read(self, partition: Partition, offsets: OffsetRange) -> list[Record]:
        """Return the records of a range that are there: retention takes them without a word."""
        if offsets.until_offset > self.ends[partition]:
            raise SourceUnreachable(f"{partition} ends before {offsets.until_offset}")
        first = max(offsets.from_offset, self.earliest(partition))
        return [self.record(partition, offset) for offset in range(first, offsets.until_offset)]

    def record(self, partition: Partition, offset: int) -> Record:
        """Return the record that is, or will be, at an offset."""
        return (self._life(partition, offset).name, int(partition.key), offset)

    def move_leader(self, partition: Partition) -> None:
        """Another replica leads, which has everything."""
        latest = self._life(partition, self.ends[partition])
        lives = self.lives.setdefault(partition, [])
        lives.append(Life(self.ends[partition], latest.name, latest.epoch + 1))

    def truncate(self, partition: Partition, at: int) -> None:
        """Another replica leads, which never had the records from `at` on: an unclean leader election."""
        latest = self._life(partition, self.ends[partition])
        self._forget_from(partition, at)
        kept = [life for life in self.lives.get(partition, []) if life.start < at]
        self.lives[partition] = [*kept, Life(at, f"{latest.name}-cut-{latest.epoch + 1}", latest.epoch + 1)]

    def recreate(self, topic: str) -> None:
        """Delete the topic and make it again, with as many partitions: another id, and leader epochs from 0 on."""
        name = f"{self.replaced.get(topic, self.topic_id)}-recreated"
        self.replaced[topic] = name
        for key in [key for key in self.ends if key.origin == topic]:
            self._forget_from(key, 0)
            self.lives[key] = [Life(0, name, 0)]
            self.starts.pop(key, None)

    def naming(self, names: frozenset[str]) -> NamedTopics:
        """Return the source as a spec that names these topics has it."""
        return NamedTopics(self, names)

    def _forget_from(self, partition: Partition, at: int) -> None:
        self.former.setdefault(partition, set()).update(range(at, self.ends[partition]))
        self.ends[partition] = at

    def _life(self, partition: Partition, offset: int) -> Life:
        begun = [life for life in self.lives.get(partition, []) if life.start <= offset]
        return begun[-1] if begun else Life(0, self.topic_id, 0)

    def _fingerprint(self, partition: Partition, offset: int) -> Fingerprint:
        life = self._life(partition, offset)
        return Fingerprint(offset, f"{life.name} {offset}", None, life.epoch)

    def id_of(self, topic: str) -> str:
        return self.replaced.get(topic, self.topic_id) if self.has_ids else ZERO_ORIGIN_ID

    def _epochs(self, partitions: list[Partition]) -> LeaderEpochs:
        return {key: self._life(key, self.ends[key]).epoch for key in partitions}

    def _request(self, what: str) -> None:
        self.step(what)
        if not self.up:
            raise SourceUnreachable("the brokers do not answer")


@dataclass(frozen=True)
class MemoryReading:
    """The last records of some ranges; the model never runs out of time, so that each landing has its fingerprints."""

    topic: MemoryTopic
    ranges: Ranges

    def result(self) -> dict[Partition, Fingerprint]:
        """Return the fingerprint of the last record of each range that is still there."""
        self.topic.wait("the last records", lambda: self.topic.up)
        offsets = {key: span.until_offset - 1 for key, span in self.ranges.non_empty().items()}
        if not offsets or not self.topic.up:
            return {}
        found = self.topic.records_at(offsets)
        return {key: fingerprint for key, fingerprint in found.items() if fingerprint is not None}


@dataclass(frozen=True)
class NamedTopics:
    """A `Source`: the topics that one version of a resource names, of those that there are."""

    topic: MemoryTopic
    names: frozenset[str]

    address = "memory"
    codec = CODEC

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return what they hold."""
        everything = self.topic.view(frozenset(self.topic.ends), offsets)
        selected = frozenset(key for key in everything.selected if key.origin in self.names)
        bounds = {key: found for key, found in everything.bounds.items() if key in selected | also}
        return SourceView(bounds, everything.origin_ids, selected, records=everything.records)

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Start at the earliest."""
        return self.topic.start(view, only)

    def compacted(self, topics: frozenset[str]) -> frozenset[str]:
        """Return the topics that are compacted."""
        return self.topic.compacted(topics)
