"""What a stream says of a Kafka topic that it writes to: where it is, what a record is made of, how long a batch may take."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import Field

from exactlyonce.connectors.kafka.client_properties import LOGIN, REFUSED, rules_of_login, rules_of_properties
from exactlyonce.connectors.kafka.names import KAFKA_SECRET_KEYS, KAFKAS_OWN, TopicName
from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.constraints import Rule, Unique, cel_list
from exactlyonce.schema.model import Duration, Model, SecretRef, Texts, within

SINK_ALLOWED = ("client.id", "compression.type", "linger.ms", *LOGIN)
"""Every other one is refused: it would read a file, load code, or let a record be lost, doubled or put elsewhere."""

_OF_THE_SOURCE = ("key.deserializer", "value.deserializer", "auto.offset.reset", "enable.auto.commit", "group.id")
SINK_REFUSED = {
    **{name: why.replace("source.", "sink.") for name, why in REFUSED.items() if name not in _OF_THE_SOURCE},
    "acks": "every replica in sync has to have a record before its batch is decided; it is always all",
    "enable.idempotence": "without it a record that is sent again would be there twice; it is always on",
    "transactional.id": "it is made of the stream, so that an earlier driver is fenced",
    "transaction.timeout.ms": "it has a field of its own, sink.kafka.transactionTimeout",
    "partitioner": "a record goes to the partition that Kafka's own clients choose by its key",
}

SinkProperties = Annotated[Texts, rules_of_properties(SINK_ALLOWED, SINK_REFUSED, "sink")]
"""Properties of the producer, without those that a stream may not have."""

ColumnName = Annotated[str, Field(min_length=1, max_length=256)]


def _reads_what_it_writes(it: Any) -> bool:
    source, sink = getattr(it.source, "kafka", None), getattr(it.sink, "kafka", None)
    if source is None or sink is None or source.bootstrap_servers != sink.bootstrap_servers:
        return False
    return sink.topic in (source.topics or ())


STREAM_RULES = (
    *manifest_rules("kafka"),
    Rule(
        "!has(self.sink.kafka) || !has(self.source.kafka) || !has(self.source.kafka.topics) || "
        "self.source.kafka.bootstrapServers != self.sink.kafka.bootstrapServers || "
        "!(self.sink.kafka.topic in self.source.kafka.topics)",
        lambda it: not _reads_what_it_writes(it),
        "sink.kafka.topic is a topic that the stream reads, so each row would be read as a record again; write to another "
        "topic",
    ),
)
"""Rules of the whole spec. What else comes to the same topic, such as a pattern, the driver finds out."""


class Header(Model):
    """A header of each record."""

    name: Annotated[str, Field(min_length=1, max_length=256)] = Field(description="The header's name.")
    column: ColumnName = Field(description="The column with its value, of type STRING or BINARY.")


class KafkaSink(Model):
    """A Kafka topic, written in transactions: the rows of a batch in one."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    fixed_fields: ClassVar[tuple[str, ...]] = ("bootstrapServers", "topic")
    holds_ledger: ClassVar[bool] = False
    two_phases: ClassVar[bool] = True
    tells_latest_load: ClassVar[bool] = True
    folder_field: ClassVar[str | None] = None
    field: ClassVar[str] = "sink.kafka"

    bootstrap_servers: str = Field(
        min_length=1, max_length=4096, description="host:port of some brokers, separated by commas."
    )
    topic: Annotated[
        TopicName,
        Rule(
            f"!(self in {cel_list(sorted(KAFKAS_OWN))})",
            lambda topic: topic not in KAFKAS_OWN,
            "this topic is Kafka's own; write to another one",
        ),
    ] = Field(description="The topic; it is not created. Readers have to read at isolation.level read_committed.")
    secret_ref: SecretRef | None = Field(
        None,
        description=f"Credentials; the keys read are {', '.join(KAFKA_SECRET_KEYS)}. The login needs DESCRIBE, "
        "DESCRIBE_CONFIGS, READ and WRITE on the topic, DESCRIBE and WRITE on the transactional ids of the stream and READ on "
        "the groups, both of which begin with `exactlyonce:NAME:`. NAME is the first 24 characters of the stream id, with "
        "`_` for each run of others than letters and digits, such as `exactlyonce:shop_orders:`. Where the NAMEs of two "
        "streams are equal, as those of `shop/a-orders` and `shop-a/orders`, grant what begins with the id in full, which a "
        "refusal names; each replay has an id that begins with it. "
        "Who may write to all that "
        "begin with `exactlyonce:` can end the transactions of other streams and forge their markers.",
    )
    key: ColumnName | None = Field(
        None,
        description="The column with the record's key, of type STRING or BINARY. Without it records have no key, and are "
        "spread over the partitions.",
    )
    value: ColumnName | None = Field(
        None,
        description="The column with the record's value, of type STRING or BINARY; NULL makes a tombstone. Without it the "
        "value is a JSON object of all columns that are neither key nor header.",
    )
    headers: Annotated[tuple[Header, ...], Field(max_length=50), Unique(("name",))] = Field(
        (), description="Headers of each record; one whose column is NULL is left out."
    )
    transaction_timeout: Annotated[Duration, within("10s", "1h")] = Field(
        timedelta(minutes=10),
        description="How long the transaction of a batch may be open: its rows are made, sent and decided within it. Brokers "
        "abort it then, and allow at most their transaction.max.timeout.ms, 15m by default. While it is open, no reader at "
        "read_committed sees later records of the partitions that it wrote to.",
    )
    properties: SinkProperties = Field({}, description="Properties of the producer.")

    rules = rules_of_login("sink")

    @property
    def replay_refusal(self) -> None:
        """Nothing in the resource forbids it; whether the topic is compacted, the process of the replay finds out."""
        return

    @property
    def landing_place(self) -> str:
        """The topic, at the brokers that are named."""
        return f"kafka {self.topic} at {self.bootstrap_servers}"

    @property
    def further_secrets(self) -> tuple[SecretRef, ...]:
        """There are none."""
        return ()

    @property
    def place_on_s3(self) -> None:
        """Rows go to Kafka."""
        return

    @property
    def commit(self) -> Commit:
        """A batch lands as a whole."""
        return Commit.BATCH
