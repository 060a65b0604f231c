"""What Kafka answers about topics and partitions, as the bounds of a source need it. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.positions.ranges import Partition
from exactlyonce.source.port import LeaderEpochs


@dataclass(frozen=True, slots=True)
class Topic:
    """What the brokers say of a topic. `is_internal`: it is Kafka's own, such as __consumer_offsets."""

    topic_id: str
    partitions: frozenset[Partition]
    is_internal: bool


def epochs_in(answers: Mapping[Partition, Any]) -> LeaderEpochs:
    """Return the leaders' epochs of answers that have them."""
    found = {key: answer.leader_epoch for key, answer in answers.items()}
    return {key: int(epoch) for key, epoch in found.items() if epoch is not None and epoch >= 0}
