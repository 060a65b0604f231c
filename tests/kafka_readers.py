"""Readers of a topic that are not ours: a consumer that sees only what was committed, to the end of every partition."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from testbed.kafka import Kafka

_SECONDS = 20.0


def committed_records(kafka: Kafka, topic: str, isolation: str = "read_committed") -> list[Any]:
    """Return every record that a reader at this isolation sees, up to where it comes now."""
    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "counts",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        numbers = reader.list_topics(topic, _SECONDS).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        found, ended = [], set[int]()
        while len(ended) < len(numbers):
            record = reader.poll(_SECONDS)
            assert record is not None, f"a reader at {isolation} came to the end of {len(ended)} partitions alone"
            if record.error() is None:
                found.append(record)
            else:
                ended.add(record.partition())
        return found
    finally:
        reader.close()
