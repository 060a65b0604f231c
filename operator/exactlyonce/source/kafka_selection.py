"""Which partitions a stream reads, of the topics that there are. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.api.source import KafkaSource
from exactlyonce.api.topic_pattern import selects
from exactlyonce.offsets import TopicPartition

KAFKAS_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that a pattern never selects. Source: org.apache.kafka.common.internals.Topic, INTERNAL_TOPICS."""


def selected(spec: KafkaSource, topics: Mapping[str, int]) -> tuple[frozenset[TopicPartition], tuple[str, ...]]:
    """Return the partitions that a spec reads, and what it names that is not there; `topics` has the partition counts.

    A pattern that matches nothing names nothing that could be missing.
    """
    if spec.assign is not None:
        wanted = {TopicPartition(chosen.topic, number) for chosen in spec.assign for number in chosen.partitions}
        there = frozenset(partition for partition in wanted if partition.partition < topics.get(partition.topic, 0))
        return there, tuple(str(partition) for partition in sorted(wanted - there))
    if spec.topics is not None:
        names, missing = spec.topics, tuple(name for name in spec.topics if name not in topics)
    else:
        assert spec.topic_pattern is not None
        pattern = spec.topic_pattern
        names, missing = tuple(name for name in topics if name not in KAFKAS_OWN and selects(pattern, name)), ()
    return frozenset(TopicPartition(name, number) for name in names for number in range(topics.get(name, 0))), missing
