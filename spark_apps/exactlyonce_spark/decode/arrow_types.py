"""Arrow's types for the columns of a schema, as Spark takes them from Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from exactlyonce.api.columns import (
    ArrayType,
    Column,
    ColumnType,
    DecimalType,
    FloatingType,
    IntegerType,
    MapType,
    PlainType,
    StructType,
    TextType,
)
from exactlyonce_spark.decode.arrow import DataType, Field, Schema, pa

_INTEGERS = {
    IntegerType.TINYINT: pa.int8(), IntegerType.SMALLINT: pa.int16(),
    IntegerType.INT: pa.int32(), IntegerType.BIGINT: pa.int64(),
}  # fmt: skip
_PLAIN = {
    PlainType.BOOLEAN: pa.bool_(), PlainType.TIMESTAMP: pa.timestamp("us", "UTC"), PlainType.TIMESTAMP_NTZ: pa.timestamp("us"),
    PlainType.DATE: pa.date32(), PlainType.BINARY: pa.binary(),
}  # fmt: skip


def arrow_type(type_: ColumnType) -> DataType:
    """Return Arrow's type of a column."""
    match type_:
        case IntegerType():
            return _INTEGERS[type_]
        case FloatingType():
            return pa.float32() if type_ is FloatingType.FLOAT else pa.float64()
        case PlainType():
            return _PLAIN[type_]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case TextType():
            return pa.string()
        case StructType(fields):
            return pa.struct([_field(field) for field in fields])
        case ArrayType(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case MapType(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case _:
            assert_never(type_)


def arrow_schema(columns: Iterable[Column]) -> Schema:
    """Return the schema of decoded rows."""
    return pa.schema([_field(column) for column in columns])


def _field(column: Column) -> Field:
    return pa.field(column.name, arrow_type(column.type), column.nullable)
