"""What the brokers have committed as a marker, asked of a client of its own. No pyspark here.

The broker that coordinates the group answers, which is seldom the one that was asked for the topic; so it is here that the
versions of requests that it knows are looked at. The client is let go of with its answer: what it logs would be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from exactlyonce.connectors.kafka.clients import destroy_dropped, destroy_later
from exactlyonce.connectors.kafka.tokens import with_tokens
from exactlyonce_spark.connectors.kafka.broker_versions import ToldVersions
from exactlyonce_spark.connectors.kafka.sink_errors import Named


class MarkerReader:
    """Reads what is committed of one partition in the group that is named as the transactional id.

    Raises:
        KafkaRefuses: from the constructor, if no client can be made of the properties.
    """

    def __init__(self, named: Named, properties: Mapping[str, Any]) -> None:
        self._named = named
        self._versions = ToldVersions()
        destroy_dropped()
        with named.making_a_client():
            self._client = AdminClient(
                {**with_tokens(properties), **self._versions.properties()}, **self._versions.arguments()
            )
        destroy_later(self, self._client)

    def read(self, marked: TopicPartition, seconds: float) -> TopicPartition:
        """Ask for the offset; one that a transaction is still to commit or to abort is not stable, and is to be asked again.

        Raises:
            KafkaException: what the brokers, or the client, say instead.
            TimeoutError: where nobody answers.
            KafkaRefuses: if a broker is of a version that would answer with what is not stable, too.
        """
        group = self._named.transactional_id
        asked = [ConsumerGroupTopicPartitions(group, [marked])]
        answers = self._client.list_consumer_group_offsets(asked, require_stable=True, request_timeout=seconds)
        found: TopicPartition = answers[group].result(seconds + 1).topic_partitions[0]
        if found.error is not None:
            raise KafkaException(found.error)
        self._client.poll(0)  # which hands out all that it has logged
        self._versions.require_stable_offsets(self._named)
        return found
