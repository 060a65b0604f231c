"""A schema of Avro against the columns of a stream: which field fills which column, and what it means.

Fields are found by their names. A field that no column has is passed over, and a column that no field has is NULL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.api.columns import (
    ArrayType,
    Column,
    ColumnType,
    MapType,
    StructType,
    TextType,
)
from exactlyonce.errors import Refused
from exactlyonce_spark.decode.avro_types import (
    Boolean,
    Branches,
    Bytes,
    Floating,
    Many,
    Named,
    Node,
    Null,
    Number,
    Record,
    Symbols,
    takes,
)
from exactlyonce_spark.decode.rules import TimestampUnit

MOST_BYTES = 1 << 20
"""Bytes of a schema; one of 10 MB is a mistake."""
DEEPEST = 50


class AvroSchemaUnusable(Refused):
    """A schema is no schema of Avro, or its fields cannot become the columns."""


_NUMBERS: Mapping[tuple[str, str | None], Node] = {
    ("int", "date"): Number(32, is_day=True),
    ("long", "timestamp-millis"): Number(64, TimestampUnit.MILLISECONDS),
    ("long", "timestamp-micros"): Number(64, TimestampUnit.MICROSECONDS),
    ("long", "timestamp-nanos"): Number(64, TimestampUnit.NANOSECONDS),
    ("long", "local-timestamp-millis"): Number(64, TimestampUnit.MILLISECONDS, is_local=True),
    ("long", "local-timestamp-micros"): Number(64, TimestampUnit.MICROSECONDS, is_local=True),
    ("long", "local-timestamp-nanos"): Number(64, TimestampUnit.NANOSECONDS, is_local=True),
}
_PLAIN: Mapping[str, Node] = {
    "null": Null(), "boolean": Boolean(), "int": Number(32), "long": Number(64), "float": Floating(32), "double": Floating(64),
    "bytes": Bytes(), "string": Bytes(is_text=True),
}  # fmt: skip


def compiled(schema: str, columns: tuple[Column, ...]) -> Record:
    """Return how records of a schema are read into the columns.

    Raises:
        AvroSchemaUnusable: if they cannot be; the message names the column.
    """
    if len(schema.encode()) > MOST_BYTES:
        raise AvroSchemaUnusable(f"the Avro schema has more than {MOST_BYTES} bytes.")
    try:
        document = json.loads(schema)
    except (ValueError, RecursionError) as problem:
        raise AvroSchemaUnusable(f"the Avro schema is not JSON: {problem}.") from problem
    if not isinstance(document, dict) or document.get("type") != "record":
        raise AvroSchemaUnusable("the Avro schema is not that of a record; a stream's columns are the fields of one.")
    return _Compiler({}, {}).record(document, columns, "", "", 0)


@dataclass(frozen=True)
class _Compiler:
    """Names are defined once, and used after that; a type may be read in one place and passed over in another."""

    documents: dict[str, tuple[dict[str, Any], str]]
    passed_over: dict[str, Named]

    def record(
        self, document: dict[str, Any], columns: tuple[Column, ...] | None, where: str, space: str, depth: int
    ) -> Record:
        """Compile a record; without columns, it is passed over."""
        space = self._define(document, space)
        by_name = {column.name: column for column in columns or ()}
        fields: list[tuple[str | None, Node]] = []
        for each in _list_of(document, "fields"):
            name = each.get("name")
            column = by_name.pop(name, None) if isinstance(name, str) else None
            at = f"{where}{name}"
            node = self.node(each.get("type"), None if column is None else column.type, at, space, depth + 1)
            fields.append((None if column is None else column.name, node))
        missing = [f"{where}{name}" for name, column in by_name.items() if not column.nullable]
        if missing:
            raise AvroSchemaUnusable(f"column {missing[0]} is NOT NULL, and the Avro schema has no such field.")
        return Record(tuple(fields))

    def node(self, document: Any, type_: ColumnType | None, where: str, space: str, depth: int) -> Node:
        """Compile a type, for a column of a type or to be passed over."""
        if depth > DEEPEST:
            raise AvroSchemaUnusable(
                f"column {where}: the types of the Avro schema are nested deeper than {DEEPEST} levels."
            )
        if isinstance(document, list):
            return self._union(document, type_, where, space, depth)
        if isinstance(document, str):
            document = {"type": document}
        if not isinstance(document, dict):
            raise AvroSchemaUnusable(f"field {where} of the Avro schema has no type.")
        kind = document.get("type")
        if isinstance(kind, dict | list):
            return self.node(kind, type_, where, space, depth + 1)
        match kind:
            case "record" | "error":
                return self._named_record(document, type_, where, space, depth)
            case "array":
                element = type_.element if isinstance(type_, ArrayType) else None
                node: Node = Many(self.node(document.get("items"), element, f"{where}[]", space, depth + 1))
                return _fitting(node, type_, where, isinstance(type_, ArrayType), "an array")
            case "map":
                value = type_.value if isinstance(type_, MapType) else None
                node = Many(self.node(document.get("values"), value, f"{where}[]", space, depth + 1), has_keys=True)
                return _fitting(
                    node, type_, where, isinstance(type_, MapType) and type_.key == TextType(), "a map of texts"
                )
            case str():
                return self._plain(kind, document, type_, where, space, depth)
            case _:
                raise AvroSchemaUnusable(f"field {where} of the Avro schema has no type.")

    def _plain(
        self, kind: str, document: dict[str, Any], type_: ColumnType | None, where: str, space: str, depth: int
    ) -> Node:
        if kind in ("enum", "fixed"):
            self._define(document, space)
            node: Node = _symbols(document, where) if kind == "enum" else _fixed(document, where)
        elif kind in _PLAIN:
            logical = document.get("logicalType")
            node = _NUMBERS.get((kind, logical), _PLAIN[kind])
            if kind == "bytes" and logical == "decimal":
                node = Bytes(scale=_whole(document, "scale", where, 0))
        else:
            return self._reference(kind, type_, where, space, depth)
        return (
            node
            if type_ is None or kind == "null"
            else _fitting(node, type_, where, takes(type_, node), json.dumps(document.get("logicalType", kind)))
        )

    def _named_record(
        self, document: dict[str, Any], type_: ColumnType | None, where: str, space: str, depth: int
    ) -> Node:
        if type_ is not None:
            _fitting(Null(), type_, where, isinstance(type_, StructType), "a record")
            assert isinstance(type_, StructType)
            return self.record(document, type_.fields, f"{where}.", space, depth)
        name, _ = _full_name(document, space)
        if name not in self.passed_over:
            self.passed_over[name] = Named()
            self.passed_over[name].node = self.record(document, None, f"{where}.", space, depth)
        return self.passed_over[name]

    def _reference(self, name: str, type_: ColumnType | None, where: str, space: str, depth: int) -> Node:
        full = name if "." in name or f"{space}.{name}" not in self.documents else f"{space}.{name}"
        if full not in self.documents:
            raise AvroSchemaUnusable(
                f"field {where} of the Avro schema has the type {name}, which is not defined before it."
            )
        document, defined_in = self.documents[full]
        return self.node(document, type_, where, defined_in, depth + 1)

    def _union(self, branches: list[Any], type_: ColumnType | None, where: str, space: str, depth: int) -> Node:
        compiled_ = tuple(
            self.node(branch, None if branch in ("null", {"type": "null"}) else type_, where, space, depth + 1)
            for branch in branches
        )
        if type_ is not None and sum(isinstance(branch, Record) for branch in compiled_) > 1:
            raise AvroSchemaUnusable(
                f"column {where} is a union of two records in the Avro schema, and a column has one type."
            )
        return Branches(compiled_)

    def _define(self, document: dict[str, Any], space: str) -> str:
        name, space = _full_name(document, space)
        self.documents.setdefault(name, (document, space))
        return space


def _fitting(node: Node, type_: ColumnType | None, where: str, fits: bool, what: str) -> Node:
    if type_ is not None and not fits:
        raise AvroSchemaUnusable(f"column {where} is {type_}, and the Avro schema has {what} there.")
    return node


def _full_name(document: dict[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a type and the namespace of what is in it."""
    name = str(document.get("name", ""))
    if "." in name:
        return name, name.rpartition(".")[0]
    space = str(document.get("namespace", space))
    return (f"{space}.{name}" if space else name), space


def _list_of(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = document.get(key)
    if not isinstance(found, list) or not all(isinstance(it, dict) for it in found):
        raise AvroSchemaUnusable(f"record {document.get('name')} of the Avro schema has no list of {key}.")
    return found


def _symbols(document: dict[str, Any], where: str) -> Symbols:
    names = document.get("symbols")
    if not isinstance(names, list) or not all(isinstance(it, str) for it in names):
        raise AvroSchemaUnusable(f"field {where} of the Avro schema is an enum without symbols.")
    return Symbols(tuple(names))


def _fixed(document: dict[str, Any], where: str) -> Bytes:
    is_decimal = document.get("logicalType") == "decimal"
    scale = _whole(document, "scale", where, 0) if is_decimal else None
    return Bytes(size=_whole(document, "size", where, None), scale=scale)


def _whole(document: dict[str, Any], key: str, where: str, otherwise: int | None) -> int:
    found = document.get(key, otherwise)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= 1 << 20:
        raise AvroSchemaUnusable(f"field {where} of the Avro schema has no whole number as its {key}.")
    return found
