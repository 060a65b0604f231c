"""Every connector, a line each: what a resource may say of it, and nothing that opens a connection.

docs/connectors.md tells how to write one.
A source `x` is a field of `SourceFields`, a sink one of `SinkFields`, a ledger one of `LedgerFields`. What opens its stores
outside of Spark is `exactlyonce.connectors.x.connector`, what reads and writes inside of it
`exactlyonce_spark.connectors.x.connector`.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args

from pydantic import Field

from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.object_log.spec import ObjectLogLedger
from exactlyonce.connectors.postgres.ledger_spec import LedgerInPostgres
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.schema.model import Model


class SourceFields(Model):
    """Where records can come from: a source for each field."""

    kafka: KafkaSource | None = Field(None, description="Records of Kafka topics.")


class SinkFields(Model):
    """Where rows can take effect: a sink for each field."""

    postgres: PostgresSink | None = Field(None, description="Rows of a Postgres table.")
    files: FilesSink | None = Field(None, description="Files of rows in a folder.")


class LedgerFields(Model):
    """Where the ledger can be, of a stream whose sink does not hold it: a ledger for each field."""

    postgres: LedgerInPostgres | None = Field(None, description="In a schema of a Postgres database.")
    object_log: ObjectLogLedger | None = Field(None, description="In a folder, as objects that are created once.")


NEEDS_A_FOLDER_ONLY = "object_log"
"""The ledger of a stream whose resource names none: it is put beside the checkpoint."""


def _specs(fields: type[Model]) -> dict[str, Any]:
    return {
        name: next(kind for kind in get_args(field.annotation) if kind is not NoneType)
        for name, field in fields.model_fields.items()
    }


SOURCES, SINKS, LEDGERS = _specs(SourceFields), _specs(SinkFields), _specs(LedgerFields)
"""The class of each connector's spec (a `SourceSpec`, a `SinkSpec`, a `LedgerSpec`) by the connector's name."""
