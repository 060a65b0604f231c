"""Ask one Kafka for many streams at once: every topic in one question, all bounds in two, the age of records in one fetch.

One client per broker cluster and login, shared by the streams that use it, however many they are.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel, KafkaError
from confluent_kafka.admin import OffsetSpec

from exactlyonce.connectors.kafka.admin import KafkaAdmin
from exactlyonce.connectors.kafka.clients import destroy_later
from exactlyonce.connectors.kafka.tokens import with_tokens
from exactlyonce.connectors.specs import Origins, SourceSpec
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.connector import Answer
from exactlyonce.source.port import Bounds

_FETCHED_AT_ONCE = 200
_POLL_SECONDS = 0.5

# One record of each partition is wanted, and the least that a broker sends is a batch of records. One that is larger than
# what is asked for of a partition comes all the same, but each answer then holds one such batch (KIP-74).
_CONSUMER = {
    "group.id": "exactlyonce-monitor",  # the client asks for one; no group is joined and nothing is committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",  # retention has passed the position: what is there is the oldest then
    "enable.partition.eof": True,
    "fetch.message.max.bytes": 262_144,
    "fetch.max.bytes": 8_388_608,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,  # the queue is full at once, and emptied at once
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 16_384,
    "log_level": 0,
}


class KafkaFleet:
    """One Kafka as the monitor asks it; for one thread at a time. `properties` are librdkafka's, the login included.

    Raises:
        SourceRefused: from the constructor, if no client can be made of the properties.
    """

    def __init__(self, properties: Mapping[str, str], timeout_seconds: float = 10.0) -> None:
        self._properties = dict(properties)
        self._timeout = timeout_seconds
        self._admin = KafkaAdmin(properties["bootstrap.servers"], properties, timeout_seconds)
        self._consumers: dict[bool, Any] = {}
        destroy_later(self, self._consumers)

    def close(self) -> None:
        """Close the connections."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def origins(self, specs: Collection[SourceSpec] = ()) -> Origins:
        """Return every topic that may be described, with its partitions; one question tells of all, whoever asks.

        Raises:
            SourceUnreachable, SourceRefused: if the brokers do not answer or refuse.
        """
        metadata = self._admin.named(lambda: self._admin.client.list_topics(timeout=self._timeout))
        return {name: frozenset(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}

    def bounds(self, partitions: Collection[Partition], *, committed_only: bool) -> Answer:
        """Return what each partition holds; one without an answer does not stand in the way of the others.

        Latest is where the partition ends for who reads everything: what an open transaction holds back has not landed either.

        Raises:
            SourceUnreachable: if none was answered.
        """
        if not partitions:
            return Answer({}, {})
        problems: dict[Partition, ExactlyOnceError] = {}
        earliest = self._listed(partitions, OffsetSpec.earliest(), False, problems)
        stable = self._listed(earliest, OffsetSpec.latest(), committed_only, problems)
        latest = self._listed(stable, OffsetSpec.latest(), False, problems) if committed_only else stable
        if not latest:
            raise next(iter(problems.values()))
        return Answer({key: _bounds(earliest[key], stable[key], end) for key, end in latest.items()}, problems)

    def timestamps(self, positions: Mapping[Partition, int], *, committed_only: bool) -> dict[Partition, float | None]:
        """Return the timestamp, in seconds, of the first record at or after each position.

        Where nothing can be read from the position on, it is that of a record which an open transaction holds back. None stands
        for a partition that ends before a record came, as behind a transaction's marker. Those that were not answered in time
        are left out.
        """
        if not positions:
            return {}
        consumer = self._consumer(committed_only)
        found: dict[Partition, float | None] = {}
        unread: set[Partition] = set()
        deadline = time.monotonic() + self._timeout
        waiting = iter(sorted(positions.items()))
        while time.monotonic() < deadline and (chunk := dict(islice(waiting, _FETCHED_AT_ONCE))):
            found |= self._admin.named(partial(_fetched, consumer, chunk, deadline, unread))
        held_back = {key: positions[key] for key in unread} if committed_only else {}
        return found | self.timestamps(held_back, committed_only=False)

    def _listed(
        self,
        partitions: Collection[Partition],
        spec: Any,
        committed_only: bool,
        problems: dict[Partition, ExactlyOnceError],
    ) -> dict[Partition, int]:
        if not partitions:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        asked = {confluent_kafka.TopicPartition(key.origin, key.key): spec for key in partitions}
        futures = self._admin.named(
            lambda: self._admin.client.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout)
        )
        found = {}
        for asked_for, future in futures.items():
            key = Partition(asked_for.topic, asked_for.partition)
            try:
                found[key] = int(self._admin.answer(future).offset)
            except ExactlyOnceError as problem:
                problems[key] = problem
        return found

    def _consumer(self, committed_only: bool) -> Any:
        if committed_only not in self._consumers:
            isolation = "read_committed" if committed_only else "read_uncommitted"
            self._consumers[committed_only] = Consumer(
                {**with_tokens(self._properties), **_CONSUMER, "isolation.level": isolation, "error_cb": _passed_over}
            )
        return self._consumers[committed_only]


def _bounds(earliest: int, stable: int, latest: int) -> Bounds:
    end = max(earliest, stable, latest)
    return Bounds(earliest, end, held_back=end - max(earliest, stable))


def _fetched(
    consumer: Any, positions: Mapping[Partition, int], deadline: float, unread: set[Partition]
) -> dict[Partition, float | None]:
    """Read one record of each partition, and let go of a partition as soon as it has answered.

    `unread` gets those that end where they were to be read from: behind a marker they end later.
    """
    found: dict[Partition, float | None] = {}
    consumer.assign([confluent_kafka.TopicPartition(key.origin, key.key, at) for key, at in positions.items()])
    try:
        while len(found) < len(positions) and time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            for key, timestamp in _answers(message):
                if key in found:
                    continue
                found[key] = timestamp
                if message.error() is not None and message.offset() == positions[key]:
                    unread.add(key)
                consumer.incremental_unassign([confluent_kafka.TopicPartition(key.origin, key.key)])
    finally:
        consumer.unassign()
    return found


def _answers(message: Any) -> Iterator[tuple[Partition, float | None]]:
    if message is None or message.topic() is None:
        return
    key, error = Partition(message.topic(), message.partition()), message.error()
    if error is None:
        kind, milliseconds = message.timestamp()
        yield key, None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000
    elif error.code() == KafkaError._PARTITION_EOF:
        yield key, None


def _passed_over(error: Any) -> None:
    """What goes wrong with a connection shows in the answers; a fetch that brings nothing is repeated."""
