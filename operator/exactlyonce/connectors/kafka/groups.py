"""Ask Kafka about consumer groups: who is in one, and which offsets it has committed.

A consumer that assigns itself partitions and commits as a group without joining it (librdkafka's and Java's `assign`) is no
member, and nobody can see it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.kafka.admin import CoordinatorMoves, KafkaAdmin, NoGroup
from exactlyonce.connectors.kafka.start import Group
from exactlyonce.errors import GroupUnfit
from exactlyonce.positions.ranges import Partition, Positions

Result = TypeVar("Result")

_ASK_AGAIN_SECONDS = 0.2
_MOST_CHARACTERS = 80


def stopped_group(admin: KafkaAdmin, name: str, partitions: frozenset[Partition]) -> Group:
    """Return a group's members and, where it has none, the offsets that it has committed of these partitions.

    Members are asked for first: the last of them commits before it leaves. It waits for
    offsets that a transaction of the group is about to commit.

    Raises:
        GroupUnfit: if there is no such group.
        SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
    """
    try:
        members = members_of(admin, name)
    except NoGroup as problem:
        raise GroupUnfit(
            f"Kafka at {admin.brokers} has no consumer group {name}; correct source.kafka.start.group."
        ) from problem
    return Group(name, members, Positions() if members else _committed(admin, name, partitions))


def members_of(admin: KafkaAdmin, name: str) -> tuple[str, ...]:
    """Return who is in a group, each in words.

    Raises:
        NoGroup: if there is no such group, or it is of another kind.
        SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
    """
    found = _settled(
        admin,
        lambda: admin.answer(
            admin.client.describe_consumer_groups([name], request_timeout=admin.timeout_seconds)[name]
        ),
    )
    if found.state is ConsumerGroupState.DEAD:
        raise NoGroup(f"Kafka at {admin.brokers} does not know the consumer group {name}.")
    if not found.members and found.state is not ConsumerGroupState.EMPTY:
        return (f"in state {found.state.name}",)  # a member joins or leaves at this moment
    return tuple(
        f"{one_line(member.client_id, _MOST_CHARACTERS)} at {one_line(member.host, _MOST_CHARACTERS)}"
        for member in found.members
    )


def _committed(admin: KafkaAdmin, name: str, partitions: frozenset[Partition]) -> Positions:
    asked = [confluent_kafka.TopicPartition(key.origin, key.key) for key in sorted(partitions)]

    def ask() -> Any:
        request = [ConsumerGroupTopicPartitions(name, asked)]
        answer = admin.answer(
            admin.client.list_consumer_group_offsets(
                request, require_stable=True, request_timeout=admin.timeout_seconds
            )[name]
        )
        for entry in answer.topic_partitions:
            if entry.error is not None:
                admin.named(partial(_raise, entry.error))
        return answer

    entries = _settled(admin, ask).topic_partitions
    return Positions({Partition(entry.topic, entry.partition): entry.offset for entry in entries if entry.offset >= 0})


def _settled(admin: KafkaAdmin, ask: Callable[[], Result]) -> Result:
    """Ask until the group's coordinator can tell, within the time limit."""
    deadline = time.monotonic() + admin.timeout_seconds
    while True:
        try:
            return ask()
        except CoordinatorMoves:
            if time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_SECONDS)


def _raise(error: Any) -> None:
    raise KafkaException(error)
