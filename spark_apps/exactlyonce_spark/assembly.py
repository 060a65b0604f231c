"""The one place in the driver that knows which connectors a stream has. Nothing is connected to yet."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from exactlyonce.api.spec import StreamSpec
from exactlyonce_spark.connectors.ports import SinkConnector, SourceConnector


def source_connector(spec: StreamSpec) -> SourceConnector:
    """Return the half of a stream's source that runs inside Spark."""
    return connector_of_source(spec.source.connector)


def connector_of_source(name: str) -> SourceConnector:
    """Return the half of a source that runs inside Spark, by the source's name."""
    return cast("SourceConnector", import_module(f"exactlyonce_spark.connectors.{name}.connector").SOURCE)


def sink_connector(spec: StreamSpec) -> SinkConnector:
    """Return the half of a stream's sink that runs inside Spark."""
    return cast("SinkConnector", import_module(f"exactlyonce_spark.connectors.{spec.sink.connector}.connector").SINK)
