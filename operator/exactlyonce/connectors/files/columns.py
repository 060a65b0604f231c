"""What columns a format can hold, and whether rows fit the files that have landed. Performs no I/O.

Columns are as Spark's `StructType.jsonValue()` has them, which needs no Spark to be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from exactlyonce.connectors.files.spec import FileFormat
from exactlyonce.errors import Refused

ORIGIN, PARTITION, OFFSET = "_exactlyonce_origin", "_exactlyonce_partition", "_exactlyonce_offset"
"""The columns with a row's source position (`includePositions`)."""

POSITION_COLUMNS = {"origin": ORIGIN, "partition": PARTITION, "position": OFFSET, "positionText": OFFSET}
"""Their names in files, by the part of a position that each holds."""

_INTEGERS = ("byte", "short", "integer", "long")
_POSITION_TYPES = {
    "origin": ("string",),
    "partition": (*_INTEGERS, "string"),
    "position": _INTEGERS,
    "positionText": ("string",),
}

Type = str | Mapping[str, Any]

_NOWHERE = ("void", "interval", "variant")
_NESTED = ("array", "map", "struct")
_FLAGS = ("nullable", "containsNull", "valueContainsNull", "metadata")
_UNFIT: Mapping[FileFormat, Collection[str]] = {
    FileFormat.PARQUET: _NOWHERE,
    FileFormat.ORC: _NOWHERE,
    FileFormat.JSON: _NOWHERE,
    FileFormat.CSV: (*_NOWHERE, *_NESTED, "binary"),
}


class ColumnsUnfit(Refused):
    """The format cannot hold the rows, or they do not fit the files that have landed."""


def require_columns(columns: Mapping[str, Type], given: FileFormat, partition_by: tuple[str, ...]) -> None:
    """Require that the format holds every column.

    Raises:
        ColumnsUnfit: naming the column and what to do.
    """
    for name, type_ in columns.items():
        unfit = next((kind for kind in map(_without_unit, kinds(type_)) if kind in _UNFIT[given]), None)
        if unfit is not None:
            raise ColumnsUnfit(
                f"The type of column {name} is or contains {unfit}, which {given} files cannot hold; leave it out or convert "
                "it in the transform, or choose another sink.files.format."
            )
        if given is FileFormat.JSON and any(key != "string" for key in _key_types(type_)):
            raise ColumnsUnfit(
                f"The type of column {name} is or contains a map whose keys are not texts, which Spark cannot read from "
                f"{given} files; convert the keys to text in the transform, or choose another sink.files.format."
            )
    require_names(columns, partition_by, "sink.files.partitionBy")


def require_names(columns: Mapping[str, Type], partition_by: Sequence[str], field: str) -> None:
    """Require that columns have names of their own, whatever the case of letters, and that some of them can name folders.

    `field` is what says in the resource which ones do.

    Raises:
        ColumnsUnfit: naming the column and what to do.
    """
    missing = [name for name in partition_by if name not in columns]
    if missing:
        raise ColumnsUnfit(
            f"{field} names {', '.join(missing)}, which the query does not yield; it yields {', '.join(columns)}."
        )
    if len(partition_by) >= len(columns):
        raise ColumnsUnfit(f"{field} names every column, so no column would be left for the files.")
    nested = [name for name in partition_by if _kind(columns[name]) in (*_NESTED, "binary")]
    if nested:
        raise ColumnsUnfit(
            f"{field} names {', '.join(nested)}, whose values cannot be the name of a folder; choose a column "
            "of a simple type."
        )
    lowered = [name.lower() for name in columns]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise ColumnsUnfit(f"The query yields {', '.join(twice)} more than once; rename one of them in the transform.")


def require_positions(columns: Mapping[str, Type], names: Mapping[str, str]) -> None:
    """Require that rows carry their source position, in types whose order in a file's statistics is that of positions.

    `names` has what the source calls the column of each part of a position.

    Raises:
        ColumnsUnfit: naming what is missing, or what has another order.
    """
    missing = [name for name in names.values() if name not in columns]
    if missing:
        raise ColumnsUnfit(
            f"sink.files.includePositions needs {', '.join(missing)}, which the transform does not yield; select "
            f"{', '.join(names.values())} in it, or set includePositions: false."
        )
    for part, name in names.items():
        type_ = columns[name]
        if type_ not in _POSITION_TYPES[part] and not (part == "position" and _is_whole_decimal(type_)):
            raise ColumnsUnfit(
                f"sink.files.includePositions needs the source's own {name}, and the transform changes its type to "
                f"{told(type_)}, which does not sort as positions do; select {name} unchanged."
            )


def _is_whole_decimal(type_: Type) -> bool:
    """Positions of more than 64 bits are decimals without a fraction."""
    return isinstance(type_, str) and type_.startswith("decimal(") and type_.endswith(",0)")


def require_fit(landed: Mapping[str, Type], columns: Mapping[str, Type], given: FileFormat, path: str) -> None:
    """Require that readers can read the rows together with the files that have landed.

    A column may be added, except to CSV files, which know columns by their place.

    Raises:
        ColumnsUnfit: naming what differs.
    """
    gone = [name for name in landed if name not in columns]
    added = [name for name in columns if name not in landed]
    other = [name for name in landed if name in columns and landed[name] != columns[name]]
    sentences = [
        *(f"{name} was {told(landed[name])} and is {told(columns[name])}" for name in other),
        *(f"{name} is gone" for name in gone),
    ]
    if given is FileFormat.CSV:
        sentences += [f"{name} is new" for name in added]
        if not sentences and list(landed) != list(columns):
            sentences.append(f"the order was {', '.join(landed)} and is {', '.join(columns)}")
    if sentences:
        raise ColumnsUnfit(
            f"The rows do not fit the {given} files that have landed in {path}: {'; '.join(sentences)}. Change the transform "
            "so that they do, or use another path."
        )


def to_json(columns: Mapping[str, Type]) -> str:
    """Render columns in their order; equal columns give equal texts."""
    return json.dumps(list(columns.items()), separators=(",", ":"), sort_keys=True)


def from_json(content: bytes, name: str) -> dict[str, Type] | None:
    """Parse what `to_json` rendered; None for anything but the columns of this name."""
    return dict(json.loads(content)) if _digest(content) == name else None


def digest(columns: Mapping[str, Type]) -> str:
    """Return the name of these columns, under which they are kept beside the files."""
    return _digest(to_json(columns).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _kind(type_: Type) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


def _parts(type_: Type) -> Iterator[Type]:
    """Yield a type and all types within."""
    yield type_
    if isinstance(type_, str):
        return
    for name in ("elementType", "keyType", "valueType"):
        if name in type_:
            yield from _parts(type_[name])
    for field in type_.get("fields", []):
        yield from _parts(field["type"])


def plain(type_: Type) -> Type:
    """Return a type without what it says of NULL and without comments: neither makes rows of one unfit for the other."""
    if isinstance(type_, str):
        return type_
    kept: dict[str, Any] = {}
    for name, value in type_.items():
        if name == "fields":
            kept[name] = [{"name": field["name"], "type": plain(field["type"])} for field in value]
        elif name not in _FLAGS:
            kept[name] = plain(value) if name in ("elementType", "keyType", "valueType") else value
    return kept


def described_columns(metadata: Mapping[bytes, bytes] | None) -> dict[str, Type] | None:
    """Return the columns of a Parquet file as Spark's writer has described them in its footer, `plain`; None if none has.

    Source: ParquetReadSupport.SPARK_METADATA_KEY, Spark 4.2.0.
    """
    told = (metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata")
    return None if told is None else {it["name"]: plain(it["type"]) for it in json.loads(told)["fields"]}


def kinds(type_: Type) -> Iterator[str]:
    """Yield the kind of a type and of all types within."""
    return map(_kind, _parts(type_))


def _without_unit(kind: str) -> str:
    return "interval" if kind.startswith("interval") else kind


def _key_types(type_: Type) -> Iterator[Type]:
    """Yield the type of the keys of each map within a type."""
    for part in _parts(type_):
        if not isinstance(part, str) and "keyType" in part:
            yield part["keyType"]


def told(type_: Type) -> str:
    """Return a type as a person reads it."""
    return type_ if isinstance(type_, str) else f"another kind of {_kind(type_)}"
