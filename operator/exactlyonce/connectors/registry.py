"""Every connector, a line each, and what a resource may say of it. Nothing here opens a connection.

docs/connectors.md tells how to write one. What a connector `x` may be, its module `exactlyonce.connectors.x.spec` says: SOURCE,
SINK and LEDGER there are the classes of its parts of a resource, each where there is such a part. What opens its stores outside
of Spark is `exactlyonce.connectors.x.connector`, what reads and writes inside of it `exactlyonce_spark.connectors.x.connector`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from exactlyonce.schema.model import Model, field_name

CONNECTORS = (
    "kafka",
    "kinesis",
    "postgres",
    "files",
    "delta",
    "iceberg",
    "doris",
    "object_log",
)

NEEDS_A_FOLDER_ONLY = "object_log"
"""The ledger of a stream whose resource names none: it is put beside the checkpoint."""


def _specs(part: str) -> dict[str, Any]:
    modules = {name: import_module(f"exactlyonce.connectors.{name}.spec") for name in CONNECTORS}
    return {name: getattr(module, part) for name, module in modules.items() if hasattr(module, part)}


SOURCES, SINKS, LEDGERS = _specs("SOURCE"), _specs("SINK"), _specs("LEDGER")
"""The class of each connector's spec (a `SourceSpec`, a `SinkSpec`, a `LedgerSpec`) by the connector's name."""


def source_fields(ending: str, of: str | None = None) -> tuple[str, ...]:
    """Return the fields of sources, or of one of them, whose names end so, each as a path in the resource."""
    return tuple(
        f"source.{field_name(name)}.{found}"
        for name, spec in SOURCES.items()
        if of in (None, name)
        for field in spec.model_fields
        if (found := field_name(field)).endswith(ending)
    )


ADVICE: dict[str, Callable[[Any, Mapping[str, Any]], tuple[str, ...]]] = _specs("ADVICE")
"""What connectors have to say of valid streams: a function of a stream's spec and the specs of others, by their ids."""


def _union(name: str, specs: dict[str, Any]) -> type[Model]:
    """Return a model with an optional field for each connector, described by the first line of its spec's docstring."""
    fields: dict[str, Any] = {
        connector: (spec | None, Field(None, description=(inspect.getdoc(spec) or "").split("\n")[0]))
        for connector, spec in specs.items()
    }
    return create_model(name, __base__=Model, __module__=__name__, **fields)


if TYPE_CHECKING:
    # The fields are the connectors' own, and their names are known to nobody else.
    SourceFields = Model
    SinkFields = Model
    LedgerFields = Model
else:
    SourceFields = _union("SourceFields", SOURCES)
    SinkFields = _union("SinkFields", SINKS)
    LedgerFields = _union("LedgerFields", LEDGERS)
