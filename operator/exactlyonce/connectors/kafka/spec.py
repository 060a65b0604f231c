"""What a stream says of Kafka: its topics, where it starts, how much it reads at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from exactlyonce.connectors.kafka.client_properties import (
    ISOLATION,
    READ_COMMITTED,
    Properties,
    rules_of_login,
)
from exactlyonce.connectors.kafka.names import KAFKA_SECRET_KEYS, KAFKAS_OWN, TopicName
from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.connectors.kafka.stream_rules import STREAM_RULES
from exactlyonce.connectors.specs import Origins
from exactlyonce.positions.ranges import Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import LARGEST, Model, SecretRef, Whole
from exactlyonce.schema.moment import Moment
from exactlyonce.schema.name_pattern import NamePattern, selects

PartitionNumber = Annotated[Whole, Field(ge=0, le=2**31 - 1)]

GroupName = Annotated[
    str,
    Field(min_length=1, max_length=255),
    matches("[!-~]([ -~]*[!-~])?", "write a consumer group's name in printable ASCII, without spaces around it"),
]

DEFAULT_BATCH_OFFSETS = 1_000_000
"""The most offsets of a batch where the resource sets no limit: a first backlog has to fit into transactionTimeout."""


class StartFrom(StrEnum):
    """Where a new stream starts."""

    EARLIEST = "Earliest"
    LATEST = "Latest"
    OFFSETS = "Offsets"
    TIMESTAMP = "Timestamp"
    CONSUMER_GROUP = "ConsumerGroup"


class StartOffset(Model):
    """Where one partition starts."""

    topic: TopicName = Field(description="The topic.")
    partition: PartitionNumber = Field(description="The partition.")
    offset: Whole = Field(ge=0, le=LARGEST, description="The offset of the first record to read.")


class Start(Model):
    """Where a new stream starts; resolved once, before its first batch. What a changed spec adds later begins there too."""

    from_: StartFrom = Field(StartFrom.EARLIEST, alias="from", description="Where a new stream starts.")
    offsets: Annotated[tuple[StartOffset, ...], Field(max_length=10_000), Unique(("topic", "partition"))] = Field(
        (), description="With from: Offsets, one entry for every partition."
    )
    timestamp: Moment | None = Field(
        None,
        description="With from: Timestamp, the first record at or after this moment (RFC 3339) of every partition; a "
        "partition without such a record starts at its end, as in Spark with startingOffsetsByTimestampStrategy: latest.",
    )
    group: GroupName | None = Field(
        None,
        description="With from: ConsumerGroup, the consumer group whose committed offsets are the start. Its members have to "
        "be stopped before. It is not read again once a batch has landed. A partition of which it has committed no offset has "
        "to be empty.",
    )

    rules = (
        Rule(
            "(self.from == 'Offsets') == (has(self.offsets) && size(self.offsets) > 0)",
            lambda it: (it.from_ is StartFrom.OFFSETS) == bool(it.offsets),
            "offsets belongs to from: Offsets, and from: Offsets needs it",
        ),
        Rule(
            "(self.from == 'Timestamp') == has(self.timestamp)",
            lambda it: (it.from_ is StartFrom.TIMESTAMP) == (it.timestamp is not None),
            "timestamp belongs to from: Timestamp, and from: Timestamp needs it",
        ),
        Rule(
            "(self.from == 'ConsumerGroup') == has(self.group)",
            lambda it: (it.from_ is StartFrom.CONSUMER_GROUP) == (it.group is not None),
            "group belongs to from: ConsumerGroup, and from: ConsumerGroup needs it",
        ),
    )

    @property
    def positions(self) -> Positions:
        """The offsets given, as positions."""
        return Positions({Partition(entry.topic, entry.partition): entry.offset for entry in self.offsets})

    @property
    def moment(self) -> datetime:
        """The timestamp given; only where from is Timestamp."""
        assert self.timestamp is not None
        return self.timestamp

    @property
    def consumer_group(self) -> str:
        """The group given; only where from is ConsumerGroup."""
        assert self.group is not None
        return self.group


class Assignment(Model):
    """Chosen partitions of one topic."""

    topic: TopicName = Field(description="The topic.")
    partitions: Annotated[tuple[PartitionNumber, ...], Field(min_length=1, max_length=10_000), Unique()] = Field(
        description="The partitions to read."
    )


class MirrorOffsets(Model):
    """A consumer group that shows where the stream has landed, for kafka-consumer-groups, Burrow and the like."""

    group: GroupName = Field(
        description="The group; nothing else may use it, unless the stream starts from it. It is written at each launch, about "
        "once a minute while a driver runs, and when it ends. A group that has members, or offsets of another stream or "
        "consumer, is not written to, and an event says so. The login needs DESCRIBE and READ on the group."
    )


class KafkaSource(Model):
    """Records of Kafka topics."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    own_fields: ClassVar[tuple[str, ...]] = ("start", "mirrorOffsets")
    folder_fields: ClassVar[tuple[str, ...]] = ()
    origin_noun: ClassVar[str] = "topic"
    positions_count_records: ClassVar[bool] = True
    positions_can_be_chosen: ClassVar[bool] = True
    tasks_show_ranges: ClassVar[bool] = True
    field: ClassVar[str] = "source.kafka"

    bootstrap_servers: str = Field(
        min_length=1, max_length=4096, description="host:port of some brokers, separated by commas."
    )
    topics: Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=1000), Unique()] | None = Field(
        None, description="The topics to read."
    )
    topic_pattern: NamePattern | None = Field(
        None,
        description="A regular expression; the topics whose whole name it matches are read. It may use what Java and RE2 "
        r"read alike: letters, digits, ., _, -, \d, \w, \s, escaped punctuation, classes such as [a-z0-9_-], groups, |, ^, $, "
        "and *, +, ? or {2,5}.",
    )
    assign: Annotated[tuple[Assignment, ...], Field(min_length=1, max_length=1000), Unique(("topic",))] | None = Field(
        None, description="Chosen partitions to read."
    )
    start: Start = Field(
        Start(), description="Where a new stream starts, and topics or partitions that are added to it later."
    )
    mirror_offsets: MirrorOffsets | None = Field(
        None, description="A consumer group that shows where the stream has landed; nothing is read back from it."
    )
    max_offsets_per_trigger: Whole | None = Field(
        None,
        ge=1,
        le=LARGEST,
        description="The maximum number of offsets per batch. Without it and without maxRatePerPartition a batch spans at most "
        f"{DEFAULT_BATCH_OFFSETS:,}.",
    )
    max_rate_per_partition: Whole | None = Field(
        None,
        ge=1,
        le=LARGEST,
        description="The maximum number of records per second and partition, averaged over all partitions. It needs "
        "trigger.interval.",
    )
    properties: Properties = Field(
        {}, description="Kafka client properties. isolation.level is read_committed unless it is set here."
    )
    secret_ref: SecretRef | None = Field(
        None, description=f"Credentials; the keys read are {', '.join(KAFKA_SECRET_KEYS)}."
    )

    rules = (
        Rule(
            "[has(self.topics), has(self.topicPattern), has(self.assign)].filter(given, given).size() == 1",
            lambda it: [it.topics, it.topic_pattern, it.assign].count(None) == 2,
            "give exactly one of topics, topicPattern and assign",
        ),
        Rule(
            "!has(self.maxOffsetsPerTrigger) || !has(self.maxRatePerPartition)",
            lambda it: None in (it.max_offsets_per_trigger, it.max_rate_per_partition),
            "give maxOffsetsPerTrigger or maxRatePerPartition, not both",
        ),
        *rules_of_login("source"),
    )

    @property
    def address(self) -> str:
        """The bootstrap servers."""
        return self.bootstrap_servers

    @property
    def shown_in(self) -> str | None:
        """The consumer group to which landed positions are written."""
        return None if self.mirror_offsets is None else f"group {self.mirror_offsets.group} at {self.address}"

    @property
    def takes_over(self) -> str | None:
        """The consumer group, if the stream starts from the one that it shows itself in."""
        shows_itself_there = self.mirror_offsets is not None and self.mirror_offsets.group == self.start.group
        return self.shown_in if shows_itself_there else None

    @property
    def committed_only(self) -> bool:
        """Whether records of transactions that are open or were aborted are left out."""
        return self.properties.get(ISOLATION, READ_COMMITTED) == READ_COMMITTED

    def selection(self) -> Selection:
        """Return what the stream reads, by name."""
        assigned = frozenset(
            Partition(chosen.topic, number) for chosen in self.assign or () for number in chosen.partitions
        )
        return Selection(frozenset(self.topics or ()), self.topic_pattern, assigned)

    def selected(self, origins: Origins) -> tuple[frozenset[Partition], tuple[str, ...]]:
        """Return the partitions that the stream reads, and what it names that is not there.

        A pattern that matches nothing names nothing that could be missing.
        """
        if self.assign is not None:
            wanted = {Partition(chosen.topic, number) for chosen in self.assign for number in chosen.partitions}
            there = frozenset(partition for partition in wanted if partition.key in origins.get(partition.origin, ()))
            return there, tuple(str(partition) for partition in sorted(wanted - there))
        if self.topics is not None:
            names, missing = self.topics, tuple(name for name in self.topics if name not in origins)
        else:
            assert self.topic_pattern is not None
            pattern = self.topic_pattern
            names, missing = tuple(name for name in origins if name not in KAFKAS_OWN and selects(pattern, name)), ()
        return frozenset(Partition(name, number) for name in names for number in origins.get(name, ())), missing

    def batch_limit(self, interval: timedelta | None) -> str:
        """Return how large a batch may be, in words that are the same as long as the limit is."""
        if self.max_rate_per_partition is not None:
            assert interval is not None, "the resource's rules ask for an interval"
            return f"{self.max_rate_per_partition} records per second and partition for {interval.total_seconds():g} s"
        return f"{self.max_offsets_per_trigger or DEFAULT_BATCH_OFFSETS} offsets"

    def most_records(self, ranges: Ranges) -> int:
        """Return how many offsets the ranges span."""
        return ranges.record_count

    @staticmethod
    def position_text(position: int) -> str:
        """Return an offset as it is."""
        return str(position)


SOURCE = KafkaSource
SINK = KafkaSink
