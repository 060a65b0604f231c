"""What is looked at before a topic is written to: that it is there, what it takes, and that the stream does not read it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType

from exactlyonce.connectors.kafka.clients import destroy_dropped, destroy_later
from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.kafka.tokens import with_tokens
from exactlyonce_spark.connectors.kafka.broker_versions import ToldVersions
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaRefuses, Named, Noted

log = logging.getLogger("exactlyonce.batch")

_ASK_SECONDS = 30.0
_LOGGED_SECONDS = 0.1
_NEEDED = {"READ": AclOperation.READ, "WRITE": AclOperation.WRITE}


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic as its brokers describe it. `most_bytes` is its max.message.bytes."""

    cluster_id: str
    partitions: int
    replicas: int
    most_bytes: int
    least_in_sync: int
    is_compacted: bool


class SinkAdmin:
    """An AdminClient whose every answer is awaited for a bounded time."""

    def __init__(self, named: Named, properties: Mapping[str, Any]) -> None:
        self._named = named
        self._noted, self._versions = Noted(), ToldVersions()
        told = {**with_tokens(properties), **self._versions.properties(), "error_cb": self._noted.kept.append}
        destroy_dropped()
        with named.making_a_client():
            self._client = AdminClient(told, **self._versions.arguments())
        destroy_later(self, self._client)

    def cluster_id(self) -> str:
        """Return the id of the cluster.

        Raises:
            KafkaRefuses, KafkaAway: as they say.
        """
        return self._cluster_id(self._client.describe_cluster(request_timeout=_ASK_SECONDS))

    def topic(self, name: str) -> Topic:
        """Describe the topic, and require the right to write to it, and brokers that can be asked what is committed.

        Raises:
            KafkaRefuses, KafkaAway: as they say.
        """
        cluster = self._client.describe_cluster(request_timeout=_ASK_SECONDS)
        self._require_versions(cluster)
        asked = self._client.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=_ASK_SECONDS
        )[name]
        found = self._answer(f"describing topic {name}", asked)
        self._require_rights(name, found.authorized_operations)
        resource = ConfigResource(ResourceType.TOPIC, name)
        asked = self._client.describe_configs([resource], request_timeout=_ASK_SECONDS)[resource]
        settings = self._answer(f"reading the settings of topic {name}", asked)
        return Topic(
            self._cluster_id(cluster),
            len(found.partitions),
            min(len(one.replicas) for one in found.partitions),
            int(settings["max.message.bytes"].value),
            int(settings["min.insync.replicas"].value),
            "compact" in settings["cleanup.policy"].value,
        )

    def _require_versions(self, asked: Future[Any]) -> None:
        """Require brokers of 2.5 or later, by what the first one that is connected to has answered."""
        while not (self._versions.are_told or asked.done()):
            self._client.poll(_LOGGED_SECONDS)
        self._client.poll(0)  # once: where brokers are away, a client has more to log for as long as it is asked
        if not self._versions.are_told:
            self._cluster_id(asked)  # raises where no broker has answered; one that has may have logged nothing
        self._versions.require_stable_offsets(self._named)

    def _cluster_id(self, asked: Future[Any]) -> str:
        return str(self._answer("asking for the cluster", asked).cluster_id)

    def _require_rights(self, name: str, allowed: Any) -> None:
        """Brokers that do not tell which operations are allowed refuse them when they are asked for."""
        lacking = [word for word, operation in _NEEDED.items() if allowed and operation not in allowed]
        if lacking:
            raise KafkaRefuses(
                f"The login of sink.kafka lacks {' and '.join(lacking)} on the topic {name} of Kafka at {self._named.brokers}; "
                "grant it."
            )

    def _answer(self, doing: str, asked: Future[Any]) -> Any:
        try:
            return asked.result(_ASK_SECONDS + 1)
        except FutureTimeoutError as problem:
            raise self._noted.unanswered(self._named, doing, "no answer in time", self._client.poll) from problem
        except KafkaException as problem:
            raise self._noted.error(self._named, doing, problem.args[0], self._client.poll) from problem


def require_topic(sink: KafkaSink, topic: Topic) -> None:
    """Require that the topic can take what the resource has written to it.

    Raises:
        KafkaRefuses: naming the setting.
    """
    if topic.least_in_sync > topic.replicas:
        raise KafkaRefuses(
            f"Topic {sink.topic} asks for {topic.least_in_sync} replicas in sync (min.insync.replicas) and has "
            f"{topic.replicas}, so it takes no record of a transaction; correct one of the two."
        )
    if topic.is_compacted and sink.key is None:
        raise KafkaRefuses(
            f"Topic {sink.topic} is compacted (cleanup.policy), so it takes no record without a key; name a column in "
            "sink.kafka.key."
        )
    if topic.least_in_sync == 1 and topic.replicas > 1:
        log.warning(
            "Topic %s has min.insync.replicas=1: a record that it has acknowledged is lost with the one broker that has it.",
            sink.topic,
        )


def require_keeps_all(sink: KafkaSink, topic: Topic) -> None:
    """Require that records may come after those of later batches.

    Raises:
        KafkaRefuses: if the topic is compacted.
    """
    if topic.is_compacted:
        raise KafkaRefuses(
            f"Nothing can be replayed into topic {sink.topic}: it is compacted (cleanup.policy), so of each key it keeps what "
            "was written last, and a replay writes older records after newer ones."
        )


def require_not_read(source: KafkaSource, sink: KafkaSink, source_cluster_id: str, topic: Topic) -> None:
    """Require that a stream does not read what it writes.

    Raises:
        KafkaRefuses: if its source selects the topic.
    """
    if source_cluster_id != topic.cluster_id:
        return
    selected, _ = source.selected({sink.topic: range(topic.partitions)})
    if selected:
        raise KafkaRefuses(
            f"The stream reads topic {sink.topic} of this very cluster, which it is to write to: each row would be read as a "
            "record again. Write to another topic, or select others in source.kafka."
        )
