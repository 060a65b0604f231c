"""Turn the bytes of records into the columns of the view `source`, and keep malformed records apart.

The parse stands in a generator (`inline`), not in a projection: a generator decides how many rows there are, so the
optimizer can neither drop it nor evaluate it twice. As a projection, a filter such as `amount > 0` was pushed under the
check, and a malformed record vanished without a word. A filter on what the generator does not make, such as `_partition = 1`,
was still pushed below it; below one that is not deterministic none is (PushPredicateThroughNonJoin; all measured with 4.2.0).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never, cast

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StringType, StructField, StructType

from exactlyonce.api.format import DELETED, Format, FormatType, OnMalformed, OnTombstone
from exactlyonce.errors import Refused
from exactlyonce_spark.connectors.ports import RecordColumns
from exactlyonce_spark.sql_text import escaped, quoted

_CORRUPT = "_exactlyonce_malformed"
_ROW = "_exactlyonce_row"
_VALUELESS = "_exactlyonce_without_value"
_BROKEN = "_exactlyonce_broken"
_FAILURE = "Malformed record"
_STAYS = "spark_partition_id() >= 0"
"""Always true, for almost nothing, and to Spark not deterministic: what makes the generator stay where it is."""


class SchemaInvalid(Refused):
    """The schema of the source's format cannot be used."""


def parse_schema(given: Format, of_the_view: Collection[str] = ()) -> StructType:
    """Parse the DDL of a format; `of_the_view` are the columns that the view has in any case.

    Raises:
        SchemaInvalid: if it does not parse, or takes names that are the product's own.
    """
    try:
        schema = StructType([*cast(StructType, StructType.fromDDL(given.schema_))])
    except Exception as problem:
        said = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        advice = "write columns as SQL DDL: id BIGINT, name STRING"
        raise SchemaInvalid(f"source.format.schema does not parse ({said}); {advice}.") from problem
    deleted = {DELETED} if given.on_tombstone is OnTombstone.DELETE else set()
    taken = [name for name in schema.names if name.lower() in {*of_the_view, _CORRUPT, *deleted}]
    if taken:
        raise SchemaInvalid(
            f"source.format.schema names {', '.join(taken)}, which the view source has already; rename it."
        )
    lowered = [name.lower() for name in schema.names]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise SchemaInvalid(f"source.format.schema names {', '.join(twice)} twice; rename one.")
    if given.type is FormatType.RAW and [field.dataType.simpleString() for field in schema] not in (
        ["string"],
        ["binary"],
    ):
        raise SchemaInvalid("source.format.schema of a Raw format takes one column, STRING or BINARY: value STRING.")
    return schema


def parsed(records: DataFrame, columns: RecordColumns, given: Format, schema: StructType) -> DataFrame:
    """Return the rows of well-formed records, with the columns of the schema and those that the view has of its source.

    With onMalformed: Fail the query ends at the first malformed record and names it; with DeadLetter such records yield
    no row, and `malformed_records` finds them. A record without a value yields what onTombstone asks for; that is decided in
    the generator too.
    """
    names = list(columns.view)
    kept = [f"{expression} as {name}" for name, expression in columns.view.items()]
    if given.on_tombstone is OnTombstone.DELETE:
        kept, names = [*kept, f"{columns.value} is null as {DELETED}"], [*names, DELETED]
    rows = records.selectExpr(*kept, *_value(columns)).withColumn("_parsed", _parse(given, schema))
    if given.on_malformed is OnMalformed.FAIL:
        otherwise = f"raise_error(concat('{_FAILURE}', {columns.where}, ': ', _why))"
    else:
        otherwise = "null"
    checked = rows.selectExpr(
        *names, "_parsed", f"{_reason(given, schema, columns.view_key)} as _why", f"value is null as {_VALUELESS}"
    )
    well_formed = f"_why is null and {_STAYS}"
    rows_of_record = f"if({well_formed}, array({_row(given)}), {otherwise})"
    if given.on_tombstone is OnTombstone.SKIP:
        rows_of_record = f"if({_VALUELESS}, null, {rows_of_record})"
    return checked.selectExpr(*names, f"inline({rows_of_record})").drop(_CORRUPT)


def malformed_records(records: DataFrame, columns: RecordColumns, given: Format, schema: StructType) -> DataFrame:
    """Return position, timestamp, place, key, value and reason of the records that are malformed.

    The value of a row that the source itself has read is told as JSON.
    """
    kept = ("_origin", "_partition", "_position", "_timestamp", "_place", "key", "value")
    rows = records.selectExpr(
        f"{columns.origin} as _origin",
        f"{columns.partition} as _partition",
        f"{columns.position} as _position",
        f"concat(cast({columns.timestamp} as string), '+00') as _timestamp",
        f"{columns.place or 'cast(null as string)'} as _place",
        f"{columns.key} as key",
        *_value(columns),
    ).withColumn("_parsed", _parse(given, schema))
    reasons = rows.selectExpr(*kept, f"{_reason(given, schema, 'key')} as _why").where("_why is not null")
    if given.type.is_columnar:
        shown = "cast(to_json(value, map('ignoreNullFields', 'false')) as binary)"
        return reasons.withColumn("value", functions.expr(shown))
    return reasons


def _value(columns: RecordColumns) -> tuple[str, str]:
    """Return the expressions of a record's value, and of why the source itself says that it is malformed."""
    return f"{columns.value} as value", f"{columns.malformed or 'cast(null as string)'} as {_BROKEN}"


def _parse(given: Format, schema: StructType) -> Column:
    """Return the expression that parses `value`; NULL, a NULL row or a filled _CORRUPT in it means malformed."""
    text = functions.col("value").cast("string")
    options = {**given.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    match given.type:
        case FormatType.RAW:
            taken = "value" if _is_binary(given, schema) else "cast(value as string)"
            row = f"named_struct('{escaped(schema.names[0])}', {taken}, '{_CORRUPT}', cast(null as string))"
            return functions.expr(row if _is_binary(given, schema) else f"if(value is null, null, {row})")
        case FormatType.PARQUET | FormatType.ORC:
            return functions.col("value")
        case FormatType.CSV:
            listed = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema)
            return functions.from_csv(text, f"{listed}, {_CORRUPT} string", options)
        case FormatType.JSON:
            # Spark reads the first object and passes over what follows it, a second one too: an object around the value
            # makes anything that follows an error. The line break ends a comment (allowComments).
            columns = StructType([StructField(field.name, field.dataType) for field in schema])
            around = StructType([StructField(_ROW, columns), StructField(_CORRUPT, StringType())])
            wrapped = functions.concat(functions.lit(f'{{"{_ROW}":'), text, functions.lit("\n}"))
            return functions.from_json(wrapped, around, options)


def _row(given: Format) -> str:
    """Return the expression of the row within what `_parse` gives."""
    return f"_parsed.{_ROW}" if given.type is FormatType.JSON else "_parsed"


def _reason(given: Format, schema: StructType, key: str) -> str:
    """Return the expression that says why a record is malformed; NULL for one that is not. `key` is the key's column.

    The parsers put a replacement character where bytes are no UTF-8, so those are looked for by themselves.
    """
    row = _row(given)
    required = [field.name for field in schema if not field.nullable]
    missing = "".join(f" when {row}.{quoted(name)} is null then '{escaped(name)} is missing'" for name in required)
    is_binary, is_columnar = _is_binary(given, schema), given.type.is_columnar
    not_text = (
        ""
        if is_binary or is_columnar
        else " when not is_valid_utf8(cast(value as string)) then 'the value is not UTF-8'"
    )
    corrupt = f"{row} is null" + ("" if is_columnar else f" or _parsed.{_CORRUPT} is not null")
    without_value = _reason_without_value(given.on_tombstone, key, is_binary)
    of_the_source = f" when {_BROKEN} is not null then {_BROKEN}"
    return f"case{of_the_source}{without_value}{not_text} when {corrupt} then 'the value does not fit the schema'{missing} end"


def _reason_without_value(on_tombstone: OnTombstone, key: str, is_binary: bool) -> str:
    """Return the branch for a record without a value, which no later branch looks at if there is one."""
    match on_tombstone:
        case OnTombstone.FAIL:
            return "" if is_binary else " when value is null then 'the value is null (a tombstone)'"
        case OnTombstone.SKIP:
            return " when value is null then null"
        case OnTombstone.DELETE:
            nameless = "'neither key nor value, so nothing says what is deleted'"
            return f" when value is null then if({key} is null, {nameless}, null)"
        case _:
            assert_never(on_tombstone)


def _is_binary(given: Format, schema: StructType) -> bool:
    """Whether values are taken as bytes, whatever they hold."""
    return given.type is FormatType.RAW and [field.dataType.simpleString() for field in schema] == ["binary"]
