"""How values are written so that readers get each of them back, and which ones a format cannot hold.

Measured with Spark 4.2.0 and pyarrow. Spark writes text formats for people: it cuts microseconds, trims blanks, and writes
NULL and an empty text alike, unless it is told otherwise. docs/files.md has the options of readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from exactlyonce.connectors.files.spec import FileFormat
from exactlyonce_spark.sql_text import quoted

_MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
OPTIONS: Mapping[FileFormat, Mapping[str, str]] = {
    FileFormat.PARQUET: {},
    FileFormat.ORC: {},
    FileFormat.JSON: _MICROSECONDS,
    FileFormat.CSV: {
        **_MICROSECONDS,
        "header": "true",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "escape": '"',  # as RFC 4180 has it; with Spark's own, a backslash, other readers end a text too early
        "emptyValue": '""',  # an empty text is quoted; NULL is nothing at all
    },
}
"""What Spark's writer is told for each format."""

_NAMELESS = "__HIVE_DEFAULT_PARTITION__"
"""The folder in which Spark puts NULL, and an empty text as well."""


def checked(rows: DataFrame, given: FileFormat, partition_by: Sequence[str]) -> DataFrame:
    """Return the rows, of which one that readers would not get back as it is ends the batch by a sentence."""
    columns = {field.name: field.dataType for field in rows.schema}
    held = [name for name in columns if name not in partition_by]
    kept: dict[str, Column] = {}
    for name, type_ in columns.items():
        column = functions.col(quoted(name))
        for bad, why in _problems(column, type_, given, names_folder=name not in held, alone=held == [name]):
            raised = _raised(given, f"{name} ({why})")
            kept[name] = functions.when(bad, raised).otherwise(kept.get(name, column))
    return rows.withColumns(kept) if kept else rows


def _problems(
    column: Column, type_: DataType, given: FileFormat, *, names_folder: bool, alone: bool
) -> Iterator[tuple[Column, str]]:
    """Yield whether a column's value would be read as another one, and why."""
    is_text = isinstance(type_, StringType)
    if names_folder and is_text:
        yield column.isin("", _NAMELESS), "as the name of a folder it means NULL"
    if given is FileFormat.ORC and not names_folder:
        for shifted in _shifted(column, type_):
            yield shifted, _OTHER_MOMENT
    if given is FileFormat.CSV and is_text:
        yield column.contains("\0"), "it contains the character NUL, which Spark's readers pass over"
    if given is FileFormat.CSV and alone:
        yield column.isNull(), "it is NULL and the only column, and readers pass over an empty line"


_OTHER_MOMENT = (
    "a moment within the second before 1970, or a day between 1582-10-05 and 1582-10-14; readers would get another one"
)


def _raised(given: FileFormat, what: str) -> Column:
    """The sentence is found again by `failures.py`."""
    return functions.raise_error(functions.lit(f"{given} files cannot hold a value of column {what}"))


def _shifted(column: Column, type_: DataType) -> Iterator[Column]:
    """Yield whether a value holds a moment of which ORC files keep another one: they count as java.sql.Timestamp does."""
    match type_:
        case TimestampType():
            yield (column > _moment("1969-12-31 23:59:59")) & (column < _moment("1970-01-01 00:00:00"))
            yield (column >= _moment("1582-10-05 00:00:00")) & (column < _moment("1582-10-15 00:00:00"))
        case DateType():
            yield column.between(_moment("1582-10-05").cast("date"), _moment("1582-10-14").cast("date"))
        case ArrayType():
            yield from _within(column, type_.elementType)
        case MapType():
            yield from _within(functions.map_keys(column), type_.keyType)
            yield from _within(functions.map_values(column), type_.valueType)
        case StructType():
            for field in type_:
                yield from _shifted(column.getField(field.name), field.dataType)


def _within(array: Column, type_: DataType) -> Iterator[Column]:
    """Yield whether an element of an array holds such a moment."""
    if [*_shifted(functions.lit(None), type_)]:
        yield functions.exists(array, lambda one: reduce(Column.__or__, _shifted(one, type_)))


def _moment(text: str) -> Column:
    """A session of ours is in UTC."""
    return functions.lit(text).cast("timestamp")
