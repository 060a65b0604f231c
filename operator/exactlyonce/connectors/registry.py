"""Every connector, a line each: what a resource may say of it, and nothing that opens a connection.

docs/connectors.md tells how to write one.
A source `x` is a field of `SourceFields`, a sink one of `SinkFields`. What opens its stores outside of Spark is
`exactlyonce.connectors.x.connector`, what reads and writes inside of it `exactlyonce_spark.connectors.x.connector`.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args

from pydantic import Field

from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.schema.model import Model


class SourceFields(Model):
    """Where records can come from: a source for each field."""

    kafka: KafkaSource | None = Field(None, description="Records of Kafka topics.")


class SinkFields(Model):
    """Where rows can take effect: a sink for each field."""

    postgres: PostgresSink | None = Field(None, description="Rows of a Postgres table.")


def _specs(fields: type[Model]) -> dict[str, Any]:
    return {
        name: next(kind for kind in get_args(field.annotation) if kind is not NoneType)
        for name, field in fields.model_fields.items()
    }


SOURCES, SINKS = _specs(SourceFields), _specs(SinkFields)
"""The class of each connector's spec (a `SourceSpec`, a `SinkSpec`) by the connector's name."""
