"""The source half of a stream's spec."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from exactlyonce.api.model import Model, SecretRef
from exactlyonce.offsets import Positions, TopicPartition

TopicName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]

KAFKA_SECRET_KEYS = ("username", "password", "ca.crt", "tls.crt", "tls.key")
"""The keys read from the secret of a Kafka source: a SASL login, the brokers' CA and a client certificate, as PEM."""

_REFUSED_PROPERTIES = {
    "key.deserializer": "Spark reads keys and values as bytes",
    "value.deserializer": "Spark reads keys and values as bytes",
    "group.id": "positions are kept in the ledger, never in a consumer group",
    "enable.auto.commit": "positions are kept in the ledger, never in a consumer group",
    "auto.offset.reset": "a missing position is a verdict, not a default; say where to start in source.kafka.start",
    "interceptor.classes": "an interceptor could change or drop records",
    "bootstrap.servers": "it has a field of its own, source.kafka.bootstrapServers",
    "sasl.jaas.config": "a password belongs in the secret that source.kafka.secretRef names (keys username, password)",
}
_SECRET_WORDS = ("password", "secret", "keystore.key", "certificate.chain")


class StartFrom(StrEnum):
    """Where a new stream starts."""

    EARLIEST = "Earliest"
    LATEST = "Latest"
    OFFSETS = "Offsets"
    TIMESTAMP = "Timestamp"


class StartOffset(Model):
    """Where one partition starts."""

    topic: TopicName = Field(description="The topic.")
    partition: int = Field(ge=0, description="The partition.")
    offset: int = Field(ge=0, description="The offset of the first record to read.")


class Start(Model):
    """Where a new stream starts; resolved once, before its first batch. Later changes have no effect."""

    from_: StartFrom = Field(StartFrom.EARLIEST, alias="from", description="Where a new stream starts.")
    offsets: tuple[StartOffset, ...] = Field((), description="With from: Offsets, one entry for every partition.")
    timestamp: AwareDatetime | None = Field(
        None,
        description="With from: Timestamp, the first record at or after this moment (RFC 3339) of every partition.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Start:
        if (self.from_ is StartFrom.OFFSETS) != bool(self.offsets):
            raise ValueError("offsets belongs to from: Offsets, and from: Offsets needs it")
        if (self.from_ is StartFrom.TIMESTAMP) != (self.timestamp is not None):
            raise ValueError("timestamp belongs to from: Timestamp, and from: Timestamp needs it")
        named = [(entry.topic, entry.partition) for entry in self.offsets]
        if len(named) != len(set(named)):
            raise ValueError("offsets names a partition twice")
        return self

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
    partitions: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1, description="The partitions to read.")


class KafkaSource(Model):
    """Records of Kafka topics."""

    bootstrap_servers: str = Field(min_length=1, description="host:port of some brokers, separated by commas.")
    topics: tuple[TopicName, ...] | None = Field(None, min_length=1, description="The topics to read.")
    topic_pattern: str | None = Field(
        None,
        min_length=1,
        description="A regular expression in the syntax that Java and Python share; topics it matches are read.",
    )
    assign: tuple[Assignment, ...] | None = Field(None, min_length=1, description="Chosen partitions to read.")
    start: Start = Field(Start(), description="Where a new stream starts.")
    max_offsets_per_trigger: int | None = Field(None, ge=1, description="The most offsets one batch spans.")
    max_rate_per_partition: int | None = Field(
        None,
        ge=1,
        description="The most records a second, as an average over the partitions; needs trigger.interval.",
    )
    properties: dict[str, str] = Field(
        {}, description="Kafka client properties. isolation.level is read_committed unless it is set here."
    )
    secret_ref: SecretRef | None = Field(
        None, description=f"Credentials; the keys read are {', '.join(KAFKA_SECRET_KEYS)}."
    )

    @model_validator(mode="after")
    def _consistent(self) -> KafkaSource:
        ways = [self.topics, self.topic_pattern, self.assign]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("give exactly one of topics, topicPattern and assign")
        if self.max_offsets_per_trigger is not None and self.max_rate_per_partition is not None:
            raise ValueError("give maxOffsetsPerTrigger or maxRatePerPartition, not both")
        try:
            re.compile(self.topic_pattern or "")
        except re.error as problem:
            raise ValueError(f"topicPattern {self.topic_pattern} is no regular expression ({problem})") from None
        for key in self.properties:
            reason = _REFUSED_PROPERTIES.get(key)
            if reason is None and any(word in key for word in _SECRET_WORDS):
                reason = "credentials belong in the secret that source.kafka.secretRef names"
            if reason is not None:
                raise ValueError(f"properties may not set {key}: {reason}")
        return self


class FormatType(StrEnum):
    """How a record's value is encoded."""

    JSON = "Json"
    CSV = "Csv"
    RAW = "Raw"


class OnMalformed(StrEnum):
    """What happens to a record whose value does not fit the schema."""

    FAIL = "Fail"
    DEAD_LETTER = "DeadLetter"


_FORMAT_OPTIONS = {
    FormatType.JSON: {
        "allowComments", "allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedFieldNames", "dateFormat",
        "locale", "primitivesAsString", "timeZone", "timestampFormat", "timestampNTZFormat",
    },
    FormatType.CSV: {
        "comment", "dateFormat", "emptyValue", "escape", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "locale",
        "nullValue", "quote", "sep", "timeZone", "timestampFormat", "timestampNTZFormat",
    },
    FormatType.RAW: set(),
}  # fmt: skip


class Format(Model):
    """How values are turned into columns."""

    type: FormatType = Field(FormatType.JSON, description="The encoding of a record's value.")
    schema_: str = Field(
        alias="schema",
        min_length=1,
        description="The columns as SQL DDL; NOT NULL makes a record without the value malformed. "
        "Raw takes one column, STRING or BINARY.",
    )
    on_malformed: OnMalformed = Field(
        OnMalformed.FAIL,
        description="Fail ends the batch and names the record; DeadLetter lands it in the ledger's table dead_letters.",
    )
    options: dict[str, str] = Field({}, description="Spark's options of the format, such as sep or timestampFormat.")

    @model_validator(mode="after")
    def _known_options(self) -> Format:
        unknown = sorted(set(self.options) - _FORMAT_OPTIONS[self.type])
        if unknown:
            known = ", ".join(sorted(_FORMAT_OPTIONS[self.type])) or "none"
            raise ValueError(f"options may not set {', '.join(unknown)} for {self.type}; known are: {known}")
        return self


class Source(Model):
    """Where records come from."""

    kafka: KafkaSource = Field(description="Records of Kafka topics.")
    format: Format = Field(description="How values are turned into columns.")
