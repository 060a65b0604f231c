"""Positions and ranges of a source, as integers.

A position is the offset of the next record to read. Ranges are half-open: `[from, until)` of one partition. Nothing
here performs I/O.

The JSON forms are Spark's own for Kafka positions (`{"topic": {"0": 5}}`, JsonUtils.partitionOffsets in
connector/kafka-0-10-sql) and the same shape with pairs for ranges (`{"topic": {"0": [5, 9]}}`).
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NewType

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.positions.sorted_map import SortedMap

BatchNumber = NewType("BatchNumber", int)
"""The number of a micro-batch; a stream's numbers only go up, over all its generations."""

Epoch = NewType("Epoch", int)
"""An attempt's number as the outside world sees it: a fencing token, counting up from 1."""


PARTITION_END = 1 << 288
"""Where a partition stands that has been read to its end and will never hold another record, such as a Kinesis shard that was
split or merged. It is greater than every position within a partition. A partition that stands there may disappear from plans
and from its source, and nothing is lost with it."""


class MalformedPositions(ValueError):
    """A text is not the JSON of positions or ranges."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of the source: which origin it belongs to, and which of its partitions it is.

    An origin is what has a name and can be deleted and recreated under it: a Kafka topic, a Kinesis stream, a directory.
    Names that begin with lowercase letters, digits or hyphens and then a slash are left to streams with several sources
    (docs/adr/0027).
    The key is a number (Kafka) or a name (a shard).
    """

    origin: str
    key: int | str

    def __lt__(self, other: Partition) -> bool:
        """Order by origin, then by key; numbers come before names."""
        if self.origin == other.origin and type(self.key) is type(other.key):
            return self.key < other.key  # type: ignore[operator] # both are of one type
        return (self.origin, isinstance(self.key, str), self.key) < (
            other.origin,
            isinstance(other.key, str),
            other.key,
        )

    def __str__(self) -> str:
        return f"{self.origin}-{self.key}"


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """The records `[from_offset, until_offset)` of one partition; empty when both are equal."""

    from_offset: int
    until_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset <= self.until_offset:
            raise MalformedPositions(f"[{self.from_offset}, {self.until_offset}) is not a range of offsets")

    @property
    def record_count(self) -> int:
        """How many offsets the range spans; a compacted topic may hold fewer records."""
        return self.until_offset - self.from_offset

    def __str__(self) -> str:
        return self.text(offset_text)

    def text(self, shown: Callable[[int], str]) -> str:
        """Return the range in words; `shown` is how the source writes a position."""
        return f"[{shown(self.from_offset)}, {shown(self.until_offset)})"


class Positions(SortedMap[Partition, int]):
    """An immutable map from partition to the offset of its next record, in the order of topic and partition."""

    __slots__ = ()

    def __init__(self, offsets: Mapping[Partition, int] | Iterable[tuple[Partition, int]] = ()) -> None:
        super().__init__(offsets)
        for partition, offset in self.items():
            if offset < 0:
                raise MalformedPositions(f"{partition} has the offset {offset}; offsets start at 0")

    def __repr__(self) -> str:
        return f"Positions({self.to_json()})"

    def __str__(self) -> str:
        return self.text(offset_text)

    def text(self, shown: Callable[[int], str]) -> str:
        """Return the positions in words; `shown` is how the source writes a position."""
        return ", ".join(f"{partition}@{shown(offset)}" for partition, offset in self.items()) or "nothing"

    @property
    def ended(self) -> frozenset[Partition]:
        """The partitions that stand at their end: nothing will ever follow in them."""
        return frozenset(partition for partition, offset in self.items() if offset == PARTITION_END)

    def ranges_until(self, until: Positions) -> Ranges:
        """Return the ranges from here to `until`; a partition that is only in `until` starts at 0.

        One that stands at its end may be missing from `until`.

        Raises:
            MalformedPositions: if a partition would move backwards, or is missing from `until` before its end.
        """
        missing = [str(partition) for partition in self if partition not in until and partition not in self.ended]
        if missing:
            raise MalformedPositions(f"no end is given for {', '.join(missing)}")
        return Ranges({partition: OffsetRange(self.get(partition, 0), end) for partition, end in until.items()})

    def have_reached(self, until: Positions) -> bool:
        """Whether nothing before `until` is left; a partition that is missing here has not been read at all."""
        return all(self.get(key, 0) >= offset for key, offset in until.items())

    def without(self, others: Mapping[Partition, object]) -> Positions:
        """Return these positions without the partitions of `others`."""
        return Positions({key: offset for key, offset in self.items() if key not in others})

    def at_least(self, floor: Positions) -> Positions:
        """Return these positions, each raised to the one in `floor` where that is greater."""
        return Positions({partition: max(offset, floor.get(partition, 0)) for partition, offset in self.items()})

    def to_json(self) -> str:
        """Render as Spark writes Kafka positions."""
        return json.dumps(_by_topic(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Positions:
        """Parse Spark's Kafka positions.

        Raises:
            MalformedPositions: if the text is anything else.
        """
        return cls({partition: _whole_number(value, partition) for partition, value in _entries(text)})


class Ranges(SortedMap[Partition, OffsetRange]):
    """An immutable map from partition to its range in one batch, empty ranges included."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Ranges({self.to_json()})"

    def __str__(self) -> str:
        return self.text(offset_text)

    def text(self, shown: Callable[[int], str]) -> str:
        """Return the ranges that are not empty in words; `shown` is how the source writes a position."""
        parts = [f"{partition} {offsets.text(shown)}" for partition, offsets in self.items() if offsets.record_count]
        return ", ".join(parts) or "no records"

    @property
    def record_count(self) -> int:
        """How many offsets all the ranges span together."""
        return sum(offsets.record_count for offsets in self.values())

    @property
    def starts(self) -> Positions:
        """Where each range begins."""
        return Positions({partition: offsets.from_offset for partition, offsets in self.items()})

    @property
    def ends(self) -> Positions:
        """Where each range ends: the positions after the batch."""
        return Positions({partition: offsets.until_offset for partition, offsets in self.items()})

    def non_empty(self) -> Ranges:
        """Return the ranges that hold at least one offset."""
        return Ranges({partition: offsets for partition, offsets in self.items() if offsets.record_count})

    def to_json(self) -> str:
        """Render as `{"topic": {"0": [from, until]}}`."""
        pairs = {partition: [offsets.from_offset, offsets.until_offset] for partition, offsets in self.items()}
        return json.dumps(_by_topic(pairs), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Ranges:
        """Parse what `to_json` renders.

        Raises:
            MalformedPositions: if the text is anything else.
        """
        ranges = {}
        for partition, value in _entries(text):
            if not isinstance(value, list) or len(value) != 2:
                raise MalformedPositions(f"{partition} has {reprlib.repr(value)} where a pair [from, until] belongs")
            ends = [_whole_number(end, partition) for end in value]
            ranges[partition] = OffsetRange(ends[0], ends[1])
        return cls(ranges)

    @classmethod
    def empty_at(cls, positions: Positions) -> Ranges:
        """Return an empty range at each position: the ranges of a batch that reads nothing."""
        return cls({partition: OffsetRange(offset, offset) for partition, offset in positions.items()})


def key_of(text: str) -> int | str:
    """Return the key that a text stands for: a number where it is written as one, else a name."""
    return int(text) if text.isascii() and text.isdigit() else text


def offset_text(offset: int) -> str:
    """Return an offset in words, for a source that has no words of its own for its positions."""
    return "its end" if offset == PARTITION_END else str(offset)


def _by_topic(values: Mapping[Partition, Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for partition, value in values.items():
        topics.setdefault(partition.origin, {})[str(partition.key)] = value
    return topics


def _entries(text: str) -> Iterator[tuple[Partition, Any]]:
    try:
        topics = parse_json(text)
    except JsonRefused as problem:
        raise MalformedPositions(f"{problem}: {text[:80]!r}") from problem
    if not isinstance(topics, dict):
        raise MalformedPositions(f"not a map of topics: {text[:80]!r}")
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise MalformedPositions(
                f"topic {topic!r} has {reprlib.repr(partitions)} where a map of partitions belongs"
            )
        for partition, value in partitions.items():
            if not partition:
                raise MalformedPositions(f"{topic!r} has a partition without a name")
            yield Partition(topic, key_of(partition)), value


def _whole_number(value: object, partition: Partition) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedPositions(f"{partition} has {reprlib.repr(value)} where an offset belongs")
    return value
