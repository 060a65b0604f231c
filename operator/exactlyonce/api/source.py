"""The source half of a stream's spec."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema

from exactlyonce.api.constraints import Rule, Unique, cel_list, matches
from exactlyonce.api.model import LARGEST, Model, SecretRef, Texts, Whole
from exactlyonce.api.refused_properties import Properties
from exactlyonce.api.topic_pattern import TopicPattern
from exactlyonce.offsets import Positions, TopicPartition

TopicName = Annotated[
    str,
    Field(min_length=1, max_length=249),
    matches("[a-zA-Z0-9._-]*", "write a topic's name: letters, digits, dots, underscores and hyphens"),
]

Partition = Annotated[Whole, Field(ge=0, le=2**31 - 1)]

KAFKA_SECRET_KEYS = ("username", "password", "ca.crt", "tls.crt", "tls.key")
"""The keys read from the secret of a Kafka source: a SASL login, the brokers' CA and a client certificate, as PEM."""


_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def _is_moment(value: object) -> object:
    if not isinstance(value, datetime) and not (isinstance(value, str) and _RFC_3339.fullmatch(value)):
        raise ValueError(f"{value!r} is no moment; write it as 2026-01-31T00:00:00Z")
    return value


Moment = Annotated[
    AwareDatetime, BeforeValidator(_is_moment), WithJsonSchema({"type": "string", "format": "date-time"})
]


DEFAULT_BATCH_OFFSETS = 1_000_000
"""The most offsets of a batch where the resource sets no limit: a first backlog has to fit into transactionTimeout."""


class StartFrom(StrEnum):
    """Where a new stream starts."""

    EARLIEST = "Earliest"
    LATEST = "Latest"
    OFFSETS = "Offsets"
    TIMESTAMP = "Timestamp"


class StartOffset(Model):
    """Where one partition starts."""

    topic: TopicName = Field(description="The topic.")
    partition: Partition = Field(description="The partition.")
    offset: Whole = Field(ge=0, le=LARGEST, description="The offset of the first record to read.")


class Start(Model):
    """Where a new stream starts; resolved once, before its first batch. What a changed spec adds later begins there too."""

    from_: StartFrom = Field(StartFrom.EARLIEST, alias="from", description="Where a new stream starts.")
    offsets: Annotated[tuple[StartOffset, ...], Field(max_length=10_000), Unique(("topic", "partition"))] = Field(
        (), description="With from: Offsets, one entry for every partition."
    )
    timestamp: Moment | None = Field(
        None,
        description="With from: Timestamp, the first record at or after this moment (RFC 3339) of every partition.",
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
    )

    @property
    def positions(self) -> Positions:
        """The offsets given, as positions."""
        return Positions({TopicPartition(entry.topic, entry.partition): entry.offset for entry in self.offsets})

    @property
    def moment(self) -> datetime:
        """The timestamp given; only where from is Timestamp."""
        assert self.timestamp is not None
        return self.timestamp


class Assignment(Model):
    """Chosen partitions of one topic."""

    topic: TopicName = Field(description="The topic.")
    partitions: Annotated[tuple[Partition, ...], Field(min_length=1, max_length=10_000), Unique()] = Field(
        description="The partitions to read."
    )


class KafkaSource(Model):
    """Records of Kafka topics."""

    bootstrap_servers: str = Field(
        min_length=1, max_length=4096, description="host:port of some brokers, separated by commas."
    )
    topics: Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=1000), Unique()] | None = Field(
        None, description="The topics to read."
    )
    topic_pattern: TopicPattern | None = Field(
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
    max_offsets_per_trigger: Whole | None = Field(
        None,
        ge=1,
        le=LARGEST,
        description="The most offsets one batch spans. Without it and without maxRatePerPartition a batch spans at most "
        f"{DEFAULT_BATCH_OFFSETS:,}.",
    )
    max_rate_per_partition: Whole | None = Field(
        None,
        ge=1,
        le=LARGEST,
        description="The most records a second, as an average over the partitions; needs trigger.interval.",
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
    )


class FormatType(StrEnum):
    """How a record's value is encoded."""

    JSON = "Json"
    CSV = "Csv"
    RAW = "Raw"


class OnMalformed(StrEnum):
    """What happens to a record whose value does not fit the schema."""

    FAIL = "Fail"
    DEAD_LETTER = "DeadLetter"


class OnTombstone(StrEnum):
    """What a record without a value is: in a compacted topic it deletes its key."""

    FAIL = "Fail"
    SKIP = "Skip"
    DELETE = "Delete"


DELETED = "_deleted"
"""With onTombstone: Delete, the column that says whether a row deletes its key: of the view `source`, of what the query yields,
and of what is staged."""

_FORMAT_OPTIONS = {
    FormatType.JSON: (
        "allowComments", "allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedFieldNames", "dateFormat",
        "locale", "primitivesAsString", "timeZone", "timestampFormat", "timestampNTZFormat",
    ),
    FormatType.CSV: (
        "comment", "dateFormat", "emptyValue", "escape", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "locale",
        "nullValue", "quote", "sep", "timeZone", "timestampFormat", "timestampNTZFormat",
    ),
    FormatType.RAW: (),
}  # fmt: skip


def _options_rule(kind: FormatType, known: tuple[str, ...]) -> Rule:
    allowed = f"nothing but {', '.join(known)}" if known else "nothing"
    return Rule(
        f"self.type != '{kind}' || !has(self.options) || self.options.all(name, name in {cel_list(known)})",
        lambda it: it.type is not kind or set(it.options) <= set(known),
        f"options may set {allowed} for {kind}",
    )


class Format(Model):
    """How values are turned into columns."""

    type: FormatType = Field(FormatType.JSON, description="The encoding of a record's value.")
    schema_: str = Field(
        alias="schema",
        min_length=1,
        max_length=100_000,
        description="The columns as SQL DDL; NOT NULL makes a record without the value malformed. "
        "Raw takes one column, STRING or BINARY.",
    )
    on_malformed: OnMalformed = Field(
        OnMalformed.FAIL,
        description="Fail ends the batch and names the record; DeadLetter lands it in the ledger's table dead_letters.",
    )
    on_tombstone: OnTombstone = Field(
        OnTombstone.FAIL,
        description="What a record without a value does, which deletes its key in a compacted topic. Fail: it is malformed, "
        "unless the format is Raw with BINARY. Skip: it yields no row. Delete, with write: Upsert: it deletes the row of its "
        "key. The view `source` then has a column _deleted, true for a tombstone; of its other columns only those that "
        "begin with an underscore have values. The transform yields _deleted and takes the keys from _key, and a condition on "
        "other columns must not leave tombstones out (WHERE _deleted OR amount > 0). Kafka itself forgets tombstones: a stream "
        "that is further behind than the topic's delete.retention.ms misses deletions.",
    )
    options: Texts = Field({}, description="Spark's options of the format, such as sep or timestampFormat.")

    rules = tuple(_options_rule(kind, known) for kind, known in _FORMAT_OPTIONS.items())


class Source(Model):
    """Where records come from."""

    kafka: KafkaSource = Field(description="Records of Kafka topics.")
    format: Format = Field(description="How values are turned into columns.")

    one_of = ("kafka",)
