"""Turn Kafka's bytes into the columns of the view `source`, and keep malformed records apart.

The parse stands in a generator (`inline`), not in a projection: a generator decides how many rows there are, so the
optimizer can neither drop it, nor evaluate it twice, nor move a filter of the user's below it. As a projection, a filter
such as `amount > 0` was pushed under the check, and a malformed record vanished without a word (measured with 4.2.0).
"""

from __future__ import annotations

from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from exactlyonce.api.source import Format, FormatType, OnMalformed
from exactlyonce.errors import Refused

META_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers")
_CORRUPT = "_exactlyonce_malformed"
_FAILURE = "Malformed record"


class SchemaInvalid(Refused):
    """The schema of the source's format cannot be used."""


def parse_schema(given: Format) -> StructType:
    """Parse the DDL of a format.

    Raises:
        SchemaInvalid: if it does not parse, or takes names that are the product's own.
    """
    try:
        schema = StructType([*cast(StructType, StructType.fromDDL(given.schema_))])
    except Exception as problem:
        said = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        advice = "write columns as SQL DDL: id BIGINT, name STRING"
        raise SchemaInvalid(f"source.format.schema does not parse ({said}); {advice}.") from problem
    taken = [name for name in schema.names if name.lower() in {*META_COLUMNS, _CORRUPT}]
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


def parsed(records: DataFrame, given: Format, schema: StructType) -> DataFrame:
    """Return the rows of well-formed records, with the columns of the schema and META_COLUMNS.

    With onMalformed: Fail the query ends at the first malformed record and names it; with DeadLetter such records yield
    no row, and `malformed_records` finds them.
    """
    rows = records.selectExpr(*_kept(records), f"{_parse(given, schema)} as _parsed")
    if given.on_malformed is OnMalformed.FAIL:
        where = "concat(' in topic ', _topic, ' partition ', _partition, ' offset ', _offset, ': ', _why)"
        otherwise = f"raise_error(concat('{_FAILURE}', {where}))"
    else:
        otherwise = "null"
    checked = rows.selectExpr(*_kept_names(records), "_parsed", f"{_reason(schema)} as _why")
    exploded = checked.selectExpr(*_kept_names(records), f"inline(if(_why is null, array(_parsed), {otherwise}))")
    return exploded.drop(_CORRUPT)


def malformed_records(records: DataFrame, given: Format, schema: StructType) -> DataFrame:
    """Return position, timestamp, key, value and reason of the records that are malformed."""
    rows = records.selectExpr(
        "topic as _topic", "partition as _partition", "offset as _offset",
        "concat(cast(timestamp as string), '+00') as _timestamp", "key", "value",
        f"{_parse(given, schema)} as _parsed",
    )  # fmt: skip
    reasons = rows.selectExpr(
        "_topic", "_partition", "_offset", "_timestamp", "key", "value", f"{_reason(schema)} as _why"
    )
    return reasons.where("_why is not null")


def _parse(given: Format, schema: StructType) -> str:
    """Return the expression that parses `value` into a struct; NULL, or a filled _CORRUPT, means malformed."""
    if given.type is FormatType.RAW:
        name = _quoted(schema.names[0])
        if schema[0].dataType.simpleString() == "binary":
            return f"named_struct('{_escaped(schema.names[0])}', value, '{_CORRUPT}', cast(null as string))"
        corrupt = "if(is_valid_utf8(cast(value as string)), null, 'not UTF-8')"
        return f"if(value is null, null, struct(cast(value as string) as {name}, {corrupt} as {_CORRUPT}))"
    function = "from_json" if given.type is FormatType.JSON else "from_csv"
    nullable = ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in schema)
    options = {**given.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    listed = ", ".join(f"'{_escaped(key)}', '{_escaped(value)}'" for key, value in options.items())
    return f"{function}(cast(value as string), '{_escaped(f'{nullable}, {_CORRUPT} string')}', map({listed}))"


def _reason(schema: StructType) -> str:
    """Return the expression that says why a record is malformed; NULL for one that is not."""
    required = [field.name for field in schema if not field.nullable]
    missing = "".join(f" when _parsed.{_quoted(name)} is null then '{_escaped(name)} is missing'" for name in required)
    corrupt = f"_parsed.{_CORRUPT} is not null"
    return f"case when _parsed is null or {corrupt} then 'the value does not fit the schema'{missing} end"


def _kept(records: DataFrame) -> list[str]:
    meta = ["topic as _topic", "partition as _partition", "offset as _offset", "timestamp as _timestamp", "key as _key"]
    return [*meta, "headers as _headers"] if "headers" in records.columns else meta


def _kept_names(records: DataFrame) -> list[str]:
    return [column.split(" as ")[1] for column in _kept(records)]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
