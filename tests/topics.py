"""Topics as a test needs them, and a source that is asked about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.port import Bounds
from testbed.kafka import Kafka
from tests.rig import eventually


def source(brokers: str, *, secret: Mapping[str, str] | None = None, timeout: float = 30.0, **spec: Any) -> KafkaBounds:
    """A source as a resource describes it."""
    document = {"bootstrapServers": brokers, **spec}
    if secret is not None:
        document["secretRef"] = {"name": "kafka-client"}
    return KafkaBounds(KafkaSource.model_validate(document), secret or {}, timeout)


def made(kafka: Kafka, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Make a topic and wait until the broker that answers knows it."""
    kafka.create_topic(topic, partitions, **(config or {}))
    eventually(lambda: topic in kafka.admin().list_topics(timeout=10).topics, f"the broker knows {topic}")


def produced(kafka: Kafka, topic: str, count: int, partition: int = 0, *, at: int | None = None) -> None:
    """Produce records and wait until the broker has them."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition, **({} if at is None else {"timestamp": at}))
    assert producer.flush(30) == 0


def bounds_of(kafka: Kafka, topic: str, properties: Mapping[str, str] | None = None) -> Bounds:
    """What partition 0 of a topic holds, as a source with these properties sees it."""
    view = source(kafka.bootstrap_servers, topics=[topic], properties=properties or {}).view()
    return view.bounds[Partition(topic, 0)]


@contextmanager
def open_transaction(kafka: Kafka, topic: str, count: int) -> Iterator[Producer]:
    """Records in a transaction that the block may end; it is aborted otherwise."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    ended: list[bool] = []
    try:
        yield producer
        ended.append(True)
    finally:
        if not ended:
            producer.abort_transaction(60)
