"""Ask Kafka about the topics and partitions of one stream: which there are, and offsets in each."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka.admin import OffsetSpec

from exactlyonce.connectors.kafka.admin import KafkaAdmin, LeaderMoves
from exactlyonce.connectors.kafka.answers import Topic
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import OriginMissing
from exactlyonce.positions.ranges import Partition

_ASK_AGAIN_SECONDS = 0.1
_ABSENCE_SECONDS, _ABSENCE_PAUSE_SECONDS = 3.0, 0.5
"""A topic is gone when every answer of this time said so: a broker that has just started, or has not yet applied what is new,
says that it does not know a topic, too. Source: UNKNOWN_TOPIC_OR_PARTITION is retriable (Kafka's protocol guide, error 3)."""


class KafkaTopics:
    """The topics that a stream names, as the brokers know them; each request has `timeout_seconds`.

    All methods raise SourceUnreachable or SourceRefused if the brokers do not answer or refuse.
    """

    def __init__(self, spec: KafkaSource, admin: KafkaAdmin, timeout_seconds: float) -> None:
        self._spec = spec
        self._admin = admin
        self._selection = spec.selection()
        self._timeout = timeout_seconds
        self._isolation = IsolationLevel.READ_COMMITTED if spec.committed_only else IsolationLevel.READ_UNCOMMITTED

    def names(self) -> set[str]:
        """Return the topics that the stream names, existing or not; for a pattern, those that match it."""
        if self._spec.topics is not None:
            return set(self._spec.topics)
        if self._spec.assign is not None:
            return {assignment.topic for assignment in self._spec.assign}
        metadata = self._admin.named(lambda: self._admin.client.list_topics(timeout=self._timeout))
        return {topic for topic in metadata.topics if self._selection.reads_origin(topic)}

    def selected(self) -> frozenset[Partition]:
        """Return the partitions that the stream reads and that one answer knows.

        Topics that a pattern matches leave out Kafka's own, as Admin.listTopics does.
        """
        described = self._described(sorted(self.names()))
        own = self._spec.topic_pattern is not None
        there = (key for topic in described.values() if not (own and topic.is_internal) for key in topic.partitions)
        return frozenset(key for key in there if self._selection.reads(key))

    def describe(self, topics: list[str]) -> dict[str, Topic]:
        """Return each topic that exists; those that seem not to are asked for again before that is believed."""
        found = self._described(topics)
        until = time.monotonic() + _ABSENCE_SECONDS
        while len(found) < len(topics) and time.monotonic() < until:
            time.sleep(_ABSENCE_PAUSE_SECONDS)
            found |= self._described([topic for topic in topics if topic not in found])
        return found

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offset of the first record of each partition."""
        return self.list_offsets({key: OffsetSpec.earliest() for key in partitions})

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return where each partition ends for the stream: with read_committed, its last stable offset."""
        return self.list_offsets({key: OffsetSpec.latest() for key in partitions})

    def list_offsets(self, wanted: Mapping[Partition, Any]) -> dict[Partition, int]:
        """Return an offset of each partition, by its OffsetSpec."""
        return self.offsets(self.request_offsets(wanted), wanted)

    def offsets(self, asked: Mapping[Partition, Future[Any]], wanted: Mapping[Partition, Any]) -> dict[Partition, int]:
        """Await the answers, and return the offset in each."""
        return {key: int(answer.offset) for key, answer in self.answers(asked, wanted).items()}

    def answers(self, asked: Mapping[Partition, Future[Any]], wanted: Mapping[Partition, Any]) -> dict[Partition, Any]:
        """Await the answers, and ask again for partitions whose leader moves or does not know them yet, within the time limit.

        First of all the client's list of topics is renewed, which does not know partitions that are newer.
        """
        deadline = time.monotonic() + self._timeout
        found: dict[Partition, Any] = {}
        renewed = False
        while asked:
            again: dict[Partition, Any] = {}
            for partition, future in asked.items():
                try:
                    found[partition] = self._admin.answer(future)
                except (LeaderMoves, OriginMissing):
                    if time.monotonic() > deadline:
                        raise
                    again[partition] = wanted[partition]
            if again and renewed:
                time.sleep(_ASK_AGAIN_SECONDS)
            elif again:
                self._admin.named(lambda: self._admin.client.list_topics(timeout=self._timeout))
                renewed = True
            asked = self.request_offsets(again)
        return found

    def request_offsets(self, wanted: Mapping[Partition, Any]) -> dict[Partition, Future[Any]]:
        """Ask for an offset of each partition; nothing is awaited."""
        if not wanted:
            return {}
        asked = {confluent_kafka.TopicPartition(key.origin, key.key): spec for key, spec in wanted.items()}
        futures = self._admin.named(
            lambda: self._admin.client.list_offsets(
                asked, isolation_level=self._isolation, request_timeout=self._timeout
            )
        )
        return {Partition(key.topic, key.partition): future for key, future in futures.items()}

    def _described(self, topics: list[str]) -> dict[str, Topic]:
        """Return each topic that this one answer knows."""
        if not topics:
            return {}
        futures = self._admin.named(
            lambda: self._admin.client.describe_topics(TopicCollection(topics), request_timeout=self._timeout)
        )
        found = {}
        for topic, future in futures.items():
            try:
                description = self._admin.answer(future)
            except OriginMissing:
                continue
            partitions = frozenset(Partition(topic, part.id) for part in description.partitions)
            found[topic] = Topic(str(description.topic_id), partitions, bool(description.is_internal))
        return found
