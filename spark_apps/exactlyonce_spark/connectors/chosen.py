"""The connectors of a stream as their halves inside Spark know them."""

from __future__ import annotations

from exactlyonce.api.spec import StreamSpec
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.postgres.spec import PostgresSink


def kafka_of(spec: StreamSpec) -> KafkaSource:
    """Return what a stream says of Kafka, which is the only source that there is."""
    assert spec.source.kafka is not None, "a stream has exactly one source"
    return spec.source.kafka


def postgres_of(spec: StreamSpec) -> PostgresSink:
    """Return what a stream says of Postgres, which is the only sink that there is."""
    assert spec.sink.postgres is not None, "a stream has exactly one sink"
    return spec.sink.postgres
