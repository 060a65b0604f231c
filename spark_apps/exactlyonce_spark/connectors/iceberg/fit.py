"""Which columns an Iceberg table can have here, and what it asks of its writers that is not done here. Performs no I/O.

Source: the Iceberg table specification, version 2: "Primitive Types", "Partition Transforms", "Parquet" (data type mappings).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from exactlyonce.connectors.files.columns import ColumnsUnfit, Type, kinds, require_names

_TYPES: Mapping[str, PrimitiveType] = {
    "string": StringType(),
    "long": LongType(),
    "integer": IntegerType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SMALL = ("byte", "short")
_NESTED = ("array", "map", "struct")
PARTITIONS = ("string", "long", "integer", "boolean", "date")
"""Types whose values the name of a folder says exactly, whatever the time zone."""

WRITTEN_VERSION = 2

_LOCATION_CLASS = "write.py-location-provider.impl"
_KEY = "encryption.key-id"
_PATHS = ("write.metadata.path", "write.data.path")


def iceberg_type(type_: Type) -> PrimitiveType | None:
    """Return the type of a column in a table; None if there is none that readers would get back as it is."""
    if not isinstance(type_, str):
        return None
    decimal = _DECIMAL.fullmatch(type_)
    return DecimalType(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(type_)


def spark_type(type_: IcebergType) -> str:
    """Return a column's type as Spark names it, or as Iceberg does where none of Spark's is written here."""
    if isinstance(type_, DecimalType):
        return f"decimal({type_.precision},{type_.scale})"
    return _NAMES.get(type_, str(type_)) if isinstance(type_, PrimitiveType) else str(type_)


def new_fields(columns: Mapping[str, Type]) -> Iterator[tuple[str, PrimitiveType]]:
    """Yield the columns of a table that is to be created, or that are to be added."""
    for name, type_ in columns.items():
        found = iceberg_type(type_)
        assert found is not None, "require_holdable comes first"
        yield name, found


def schema_of(columns: Mapping[str, Type]) -> Schema:
    """Return the schema of a new table with these columns, each of which may be NULL."""
    return Schema(*(NestedField(at, name, type_) for at, (name, type_) in enumerate(new_fields(columns), start=1)))


def require_holdable(columns: Mapping[str, Type], partition_by: Sequence[str]) -> None:
    """Require that a table can have these columns, each with an id of its own in every file, partitioned so.

    Raises:
        ColumnsUnfit: naming the column and what to do.
    """
    for name, type_ in columns.items():
        kind = next(kinds(type_))
        if kind in _NESTED:
            raise ColumnsUnfit(
                f"Column {name} is of a nested type ({kind}), which sink.iceberg does not write, since Spark's files cannot "
                "say the ids of its parts; select its fields as columns, or make a text of it with to_json in the transform."
            )
        if kind in _SMALL:
            raise ColumnsUnfit(
                f"The type of column {name} is {kind}, which an Iceberg table does not have; cast it to INT in the transform."
            )
        if iceberg_type(type_) is None:
            raise ColumnsUnfit(
                f"The type of column {name} is {kind}, which an Iceberg table cannot hold here; leave it out or convert it in "
                "the transform."
            )
        if "." in name:
            raise ColumnsUnfit(
                f"The name of column {name!r} has a dot in it, which in an Iceberg table leads to a part of a column; rename "
                "it in the transform."
            )
    require_names(columns, partition_by, "sink.iceberg.partitionBy")
    for name in partition_by:
        if columns[name] not in PARTITIONS:
            raise ColumnsUnfit(
                f"sink.iceberg.partitionBy names {name}, whose type is {columns[name]}; choose a column of type "
                f"{', '.join(PARTITIONS[:-1])} or {PARTITIONS[-1]}, such as CAST({name} AS DATE) or CAST({name} AS STRING)."
            )


def unwritable(metadata: TableMetadata, location: str) -> str | None:
    """Return, as a clause, why a table may not be written here; None if it may. `location` is that of the resource."""
    return next(_reasons(metadata, location), None)


def _reasons(metadata: TableMetadata, location: str) -> Iterator[str]:
    if metadata.format_version != WRITTEN_VERSION:
        yield f"its format version is {metadata.format_version}, and only version {WRITTEN_VERSION} is written here"
    if plain_location(metadata.location) != plain_location(location):
        yield f"its folder is {metadata.location}, and sink.iceberg.location says {location}"
    for part in metadata.spec().fields:
        if not isinstance(part.transform, IdentityTransform):
            column = metadata.schema().find_column_name(part.source_id)
            yield f"it is partitioned by {part.transform} of {column}, and only columns as they are can be partitions here"
    required = next((field.name for field in metadata.schema().fields if field.required), None)
    if required is not None:
        yield f"its column {required} is required, which nobody would check here"
    for name in (_LOCATION_CLASS, _KEY):
        if metadata.properties.get(name):
            yield f"it has the property {name}, which is not supported here"
    for name in _PATHS:
        path = metadata.properties.get(name)
        if path and not is_within(path, location):
            yield f"its property {name} names {path}, and sink.iceberg.location says {location}"


def can_merge(metadata: TableMetadata) -> bool:
    """Whether manifests can be merged: the library writes none of a partitioning, be it a former one, whose column is gone."""
    ids = {column.field_id for column in metadata.schema().fields}
    return all(part.source_id in ids for spec in metadata.partition_specs for part in spec.fields)


def partitioned_by(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the names of the columns by which a table is partitioned."""
    schema = metadata.schema()
    return tuple(str(schema.find_column_name(part.source_id)) for part in metadata.spec().fields)


def plain_location(location: str) -> str:
    """Return a folder by what is equal in all ways to write it: s3, s3a and s3n are one, and so are a path and file://."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        rest = scheme
    elif scheme.lower() in ("s3", "s3a", "s3n"):
        rest = f"s3://{rest}"
    elif scheme.lower() != "file":
        rest = location
    return rest.rstrip("/")


def is_within(path: str, folder: str) -> bool:
    """Whether a file or folder is in a folder, by whatever name each is told."""
    return plain_location(path).startswith(f"{plain_location(folder)}/") and ".." not in path.split("/")
