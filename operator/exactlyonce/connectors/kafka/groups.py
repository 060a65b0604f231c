"""Ask Kafka about a consumer group, who is in it and which offsets it has committed, and commit offsets for it.

A consumer that assigns itself partitions and commits as a group without joining it (librdkafka's and Java's `assign`) is no
member, and nobody can see it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.kafka.admin import CoordinatorMoves, KafkaAdmin, NoGroup
from exactlyonce.connectors.kafka.start import Group
from exactlyonce.errors import GroupUnfit, OriginMissing
from exactlyonce.positions.ranges import Partition, Positions

Result = TypeVar("Result")

_ASK_AGAIN_SECONDS = 0.2
_MOST_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed for a partition: the offset, and the text that came with it."""

    offset: int
    metadata: str


class ConsumerGroup:
    """A consumer group; all of its questions together may take `seconds`."""

    def __init__(self, admin: KafkaAdmin, name: str, seconds: float) -> None:
        self._admin = admin
        self._name = name
        self._deadline = time.monotonic() + seconds

    def members(self) -> tuple[str, ...]:
        """Return who is in the group, each in words.

        Raises:
            NoGroup: if there is no such group, or it is of another kind.
            SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
        """
        client, name = self._admin.client, self._name
        found = self._settled(
            lambda: self._admin.answer(client.describe_consumer_groups([name], request_timeout=self._left())[name])
        )
        if found.state is ConsumerGroupState.DEAD:
            raise NoGroup(f"Kafka at {self._admin.brokers} does not know the consumer group {name}.")
        if not found.members and found.state is not ConsumerGroupState.EMPTY:
            return (f"in state {found.state.name}",)  # a member joins or leaves at this moment
        return tuple(
            f"{one_line(member.client_id, _MOST_CHARACTERS)} at {one_line(member.host, _MOST_CHARACTERS)}"
            for member in found.members
        )

    def committed(self, partitions: frozenset[Partition]) -> dict[Partition, Committed]:
        """Return what the group has committed of these partitions, once no transaction is about to commit anything else.

        Raises:
            SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
        """
        asked = [TopicPartition(key.origin, key.key) for key in sorted(partitions)]
        request = [ConsumerGroupTopicPartitions(self._name, asked)]

        def call() -> Any:
            answers = self._admin.client.list_consumer_group_offsets(
                request, require_stable=True, request_timeout=self._left()
            )
            entries = self._admin.answer(answers[self._name]).topic_partitions
            for entry in entries:
                if entry.error is not None:
                    self._admin.named(partial(_raise, entry.error))
            return entries

        return {
            Partition(entry.topic, entry.partition): Committed(entry.offset, entry.metadata or "")
            for entry in self._settled(call)
            if entry.offset >= 0
        }

    def commit(self, offsets: Mapping[Partition, int], metadata: str) -> None:
        """Commit offsets for the group; partitions that are not there are passed over.

        The brokers refuse it where the group has members.

        Raises:
            SourceUnreachable, SourceRefused: if the brokers do not answer or refuse; some offsets may be committed then.
        """
        asked = [TopicPartition(key.origin, key.key, offset, metadata) for key, offset in sorted(offsets.items())]
        request = [ConsumerGroupTopicPartitions(self._name, asked)]

        def call() -> None:
            answers = self._admin.client.alter_consumer_group_offsets(request, request_timeout=self._left())
            for entry in self._admin.answer(next(iter(answers.values()))).topic_partitions:
                if entry.error is not None:
                    self._passing_over_missing(entry.error)

        self._settled(call)

    def _passing_over_missing(self, error: Any) -> None:
        try:
            self._admin.named(partial(_raise, error))
        except OriginMissing:
            return

    def _left(self) -> float:
        return min(self._admin.timeout_seconds, max(self._deadline - time.monotonic(), 0.5))

    def _settled(self, call: Callable[[], Result]) -> Result:
        """Ask until the group's coordinator can tell, within the time limit."""
        while True:
            try:
                return call()
            except CoordinatorMoves:
                if time.monotonic() > self._deadline:
                    raise
                time.sleep(_ASK_AGAIN_SECONDS)


def stopped_group(admin: KafkaAdmin, name: str, partitions: frozenset[Partition]) -> Group:
    """Return a group's members and, where it has none, the offsets that it has committed of these partitions.

    Members come first: the last of them commits before it leaves.

    Raises:
        GroupUnfit: if there is no such group.
        SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
    """
    group = ConsumerGroup(admin, name, admin.timeout_seconds)
    try:
        members = group.members()
    except NoGroup as problem:
        raise GroupUnfit(
            f"Kafka at {admin.brokers} has no consumer group {name}; correct source.kafka.start.group."
        ) from problem
    if members:
        return Group(name, members, Positions())
    return Group(name, (), Positions({key: found.offset for key, found in group.committed(partitions).items()}))


def _raise(error: Any) -> None:
    raise KafkaException(error)
