"""The columns of the view `source`, from what a source's tasks have decoded, and the malformed records beside them.

Tasks hand over a row for each record that they read, with the columns `value` and `malformed` (`decode/records.py`). The
condition that keeps the rows of well-formed records is not deterministic to Spark, so the optimizer neither evaluates a
condition of the transform before it nor puts one below it (CombineFilters and PushPredicateThroughNonJoin, Spark 4.2.0): such
a condition could fail for a malformed record, whose columns are NULL, or take it away without a word.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, functions

from exactlyonce.api.column_ddl import DdlInvalid, parse
from exactlyonce.api.columns import Column
from exactlyonce.api.format import DELETED, Format, OnMalformed, OnTombstone
from exactlyonce.errors import Refused
from exactlyonce_spark.connectors.ports import RecordColumns
from exactlyonce_spark.decode.formats import spec_of
from exactlyonce_spark.decode.records import MALFORMED, VALUE
from exactlyonce_spark.sql_text import as_json

OBSERVED, OBSERVED_RECORDS, OBSERVED_LETTERS = "_exactlyonce_read", "records", "letters"
"""What a run of the query observes of the records that it reads: how many there are, and the malformed ones."""

_FAILURE = "Malformed record"
_STAYS = "spark_partition_id() >= 0"
"""Always true, for almost nothing, and to Spark not deterministic: what makes the condition stay where it is."""


class SchemaInvalid(Refused):
    """The schema of the source's format cannot be used."""


def parse_schema(given: Format, of_the_view: Collection[str] = ()) -> tuple[Column, ...]:
    """Parse the DDL of a format; `of_the_view` are the columns that the view has in any case.

    Raises:
        SchemaInvalid: if it does not parse, or takes names that are the product's own.
        Refused: if the format cannot give its columns.
    """
    try:
        columns = parse(given.schema_)
    except DdlInvalid as problem:
        advice = "write columns as SQL DDL: id BIGINT, name STRING"
        raise SchemaInvalid(f"source.format.schema does not parse ({problem}); {advice}.") from problem
    deleted = {DELETED} if given.on_tombstone is OnTombstone.DELETE else set()
    taken = [it.name for it in columns if it.name.lower() in {*of_the_view, *deleted}]
    if taken:
        raise SchemaInvalid(
            f"source.format.schema names {', '.join(taken)}, which the view source has already; rename it."
        )
    if not given.type.is_columnar:
        spec_of(given).decoder()
    return columns


def well_formed(records: DataFrame, columns: RecordColumns, given: Format) -> DataFrame:
    """Return the rows of well-formed records, with the columns of the schema and those that the view has of its source.

    With onMalformed: Fail the query ends at the first malformed record and names it; with DeadLetter such records yield no
    row. A record without a value yields what onTombstone asks for.
    """
    names = list(columns.view)
    kept = [f"{expression} as {name}" for name, expression in columns.view.items()]
    deletes = given.on_tombstone is OnTombstone.DELETE
    if deletes:
        kept, names = [*kept, f"{VALUE} is null as {DELETED}"], [*names, DELETED]
    rows = records.selectExpr(*kept, VALUE, MALFORMED)
    otherwise = "false"
    if given.on_malformed is OnMalformed.FAIL:
        otherwise = f"raise_error(concat('{_FAILURE}', {columns.where}, ': ', {MALFORMED}.reason))"
    without_value = "" if deletes else f" when {VALUE} is null then false"
    return rows.where(f"case when {MALFORMED} is not null then {otherwise}{without_value} else {_STAYS} end").select(
        *names, f"{VALUE}.*"
    )


def observed(records: DataFrame, columns: RecordColumns, given: Format) -> DataFrame:
    """Return the records, observed by the run that reads them where malformed ones are dead letters."""
    if given.on_malformed is not OnMalformed.DEAD_LETTER:
        return records
    letter = ", ".join(_letter(columns, given))
    letters = functions.expr(f"collect_list(if({MALFORMED} is null, null, struct({letter})))")
    return records.observe(
        OBSERVED, functions.count(functions.lit(1)).alias(OBSERVED_RECORDS), letters.alias(OBSERVED_LETTERS)
    )


def malformed_records(records: DataFrame, columns: RecordColumns, given: Format) -> DataFrame:
    """Return position, timestamp, place, key, value and reason of the records that are malformed."""
    return records.where(f"{MALFORMED} is not null").selectExpr(*_letter(columns, given))


def _letter(columns: RecordColumns, given: Format) -> tuple[str, ...]:
    """Return the expressions of a dead letter. The value of a row that the source itself has read is told as JSON."""
    row = f"cast({as_json(VALUE)} as binary)"
    return (
        f"{columns.origin} as _origin",
        f"{columns.partition} as _partition",
        f"{columns.position} as _position",
        f"concat(cast({MALFORMED}.timestamp as string), '+00') as _timestamp",
        f"{columns.place or 'cast(null as string)'} as _place",
        f"{MALFORMED}.key as key",
        f"{row if given.type.is_columnar else f'{MALFORMED}.value'} as value",
        f"{MALFORMED}.reason as _why",
    )
