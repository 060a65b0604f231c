"""What is written to a table's log, in the library's own types. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deltalake import Field, Schema
from deltalake.transaction import AddAction

from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce_spark.connectors.delta.fit import partition_of
from exactlyonce_spark.connectors.delta.table import FileFacts


def added(file: DataFile, facts: FileFacts) -> AddAction:
    """Return the action that adds a file; the library escapes its path, and its partition is in the names of its folders."""
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=partition_of(file),
        modification_time=file.modified_milliseconds,
        data_change=True,
        stats=facts.statistics,
    )


def schema_of(columns: Mapping[str, Type]) -> Schema:
    """Return the schema of a table with these columns, each of which may be NULL."""
    fields = [_document(name, type_) for name, type_ in columns.items()]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def new_field(name: str, type_: Type) -> Field:
    """Return a column as it is added to a table."""
    return Field.from_json(json.dumps(_document(name, type_)))


def _document(name: str, type_: Type) -> dict[str, Any]:
    return {"name": name, "type": _nullable(type_), "nullable": True, "metadata": {}}


def _nullable(type_: Type) -> Any:
    """Return a type in which everything may be NULL, as far as Spark has it."""
    if isinstance(type_, str):
        return type_
    match type_["type"]:
        case "array":
            return {"type": "array", "elementType": _nullable(type_["elementType"]), "containsNull": True}
        case "map":
            key, value = _nullable(type_["keyType"]), _nullable(type_["valueType"])
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case _:
            return {"type": "struct", "fields": [_document(it["name"], it["type"]) for it in type_["fields"]]}
