"""The columns that a resource declares of Parquet or ORC files, as a reader in Python may yield them."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from exactlyonce_spark.decode.records import MALFORMED, VALUE
from exactlyonce_spark.formats import SchemaInvalid

_PLAIN = (
    *(
        BinaryType,
        BooleanType,
        ByteType,
        DateType,
        DecimalType,
        DoubleType,
        FloatType,
        IntegerType,
        LongType,
        ShortType,
    ),
    *(StringType, TimestampNTZType, TimestampType),
)


def columnar_schema(declared: StructType) -> StructType:
    """Return the columns with NULL allowed everywhere: what may not be NULL is looked at in each record, as in all formats.

    Performs no I/O.

    Raises:
        SchemaInvalid: naming a column of a type that is not read.
    """
    return StructType([StructField(field.name, _nullable(field.dataType, field.name)) for field in declared])


def schema_of_rows(value: StructType) -> StructType:
    """Return what a reader yields: the columns of a file as the struct `value`, what is malformed, and where each row is."""
    place: dict[str, DataType] = {
        "folder": StringType(),
        "partition": IntegerType(),
        "file": StringType(),
        "row": LongType(),
        "modification_time": TimestampType(),
        "position": StringType(),
    }
    kept = {"reason": StringType(), "value": BinaryType(), "key": BinaryType(), "timestamp": TimestampType()}
    malformed = StructField(MALFORMED, StructType([StructField(name, kind) for name, kind in kept.items()]))
    return StructType(
        [StructField(VALUE, value), malformed, *(StructField(name, kind) for name, kind in place.items())]
    )


def _nullable(declared: DataType, where: str) -> DataType:
    match declared:
        case StructType():
            lowered = [name.lower() for name in declared.names]
            if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
                raise SchemaInvalid(f"source.format.schema names {where}.{twice[0]} twice; rename one.")
            return StructType(
                [StructField(field.name, _nullable(field.dataType, f"{where}.{field.name}")) for field in declared]
            )
        case ArrayType():
            return ArrayType(_nullable(declared.elementType, f"{where}[]"), containsNull=True)
        case MapType():
            key, value = _nullable(declared.keyType, f"{where}.key"), _nullable(declared.valueType, f"{where}.value")
            return MapType(key, value, valueContainsNull=True)
        case _ if type(declared) in _PLAIN:
            return declared
        case _:
            raise SchemaInvalid(
                f"source.format.schema declares {where} as {declared.simpleString()}, which is not read from Parquet and ORC "
                "files; declare it as STRING, or leave it out."
            )
