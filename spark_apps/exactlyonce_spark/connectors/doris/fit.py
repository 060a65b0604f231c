"""Does what the query yields fit a table of Doris, and how is each column handed over? No I/O, no pyspark.

A pair of types fits when no value can change silently on its way. Numbers, dates and times go as text, so nothing is rounded
by JSON; what a column cannot hold makes the server refuse the row, because loads are strict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exactlyonce.connectors.doris.columns import Columns, columns_of
from exactlyonce.connectors.doris.spec import Write
from exactlyonce.connectors.doris.table import DorisColumn, DorisTable, KeysModel
from exactlyonce.errors import Refused
from exactlyonce_spark.connectors.ports import FittedColumn, YieldedColumn
from exactlyonce_spark.sql_text import as_json, escaped, quoted

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT")
_TEXTS = ("CHAR", "VARCHAR", "STRING", "TEXT")
_JSON = ("JSON", "JSONB", "VARIANT")
_DATES = ("DATE", "DATEV2")
_TIMES = ("DATETIME", "DATETIMEV2")
_PLAIN = (
    *("tinyint", "smallint", "int", "bigint", "decimal", "float", "double", "boolean"),
    *("date", "timestamp", "timestamp_ntz"),
)
"""Types of Spark whose cast to a text gives letters, digits, - + . : and a space: ToStringBase.scala of Spark 4.2."""
_NESTED = ("struct<", "array<", "map<")
_COMPUTED = ("BITMAP", "HLL", "QUANTILE_STATE", "AGG_STATE")
_OF_UNTOLD_ELEMENTS = ("ARRAY", "MAP", "STRUCT")


_MODELS = {Write.APPEND: KeysModel.DUPLICATE, Write.UPSERT: KeysModel.UNIQUE, Write.AGGREGATE: KeysModel.AGGREGATE}


class TableUnfit(Refused):
    """What the query yields does not fit the table."""


@dataclass(frozen=True, slots=True)
class DorisFit(FittedColumn):
    """A column by its name in the table.

    `is_document`: the expression gives JSON, which goes into the row as it is. `is_plain`: it makes a text of a number, a time
    or a truth value, in which JSON escapes nothing.
    """

    is_document: bool = False
    is_plain: bool = False


NOTHING_TOLD = columns_of(())


def fit_columns(
    columns: Sequence[YieldedColumn], table: DorisTable, name: str, write: Write, told: Columns = NOTHING_TOLD
) -> tuple[DorisFit, ...]:
    """Return how each column is handed over; `name` is the table's, for messages, and `told` what the stream says of columns.

    Raises:
        TableUnfit: naming everything that does not fit, and what to do.
    """
    problems = [*_model_problems(table, write), *_name_problems(columns, table, write, told)]
    problems += _told_problems(columns, table, told)
    fitted: list[DorisFit] = []
    for column in columns:
        target = table.column(column.name)
        if target is None:
            fitted.append(DorisFit(column.name, _text(column), is_plain=_is_plain(column.spark_type)))
            continue
        fit = _fit(column, target)
        if fit is None:
            problems.append(
                f"column {column.name} is {column.spark_type} in the query and {_shown(target)} in the table; {_advice(target)}"
            )
        else:
            fitted.append(fit)
    if problems:
        raise TableUnfit(f"What the query yields does not fit the table {name} of Doris: {'; '.join(problems)}.")
    return tuple(fitted)


def _model_problems(table: DorisTable, write: Write) -> list[str]:
    if table.model is _MODELS[write]:
        return []
    fitting = next(one.value for one, model in _MODELS.items() if model is table.model)
    return [f"its model is {table.model.value}, which write: {write} does not mean; use write: {fitting}"]


def _name_problems(columns: Sequence[YieldedColumn], table: DorisTable, write: Write, told: Columns) -> list[str]:
    names = [column.name for column in columns]
    lowered = [name.lower() for name in names]
    problems = [
        f"the query yields column {name} twice, since case does not count in Doris"
        for name in sorted({name for name in lowered if lowered.count(name) > 1})
    ]
    known = ", ".join(column.name for column in table.columns)
    problems += [
        f"the table has no column {name} (it has {known})"
        for name in names
        if table.column(name) is None and not told.is_read(name)
    ]
    if write is not Write.APPEND:
        # A row replaces the whole row of its key: what it does not name would become NULL, or a default.
        problems += [
            f"the query does not yield the table's column {column.name}, whose values write: {write} would lose"
            for column in table.columns
            if column.name.lower() not in lowered + [name.lower() for name, _ in told.computed]
        ]
    problems += [
        f"the name of column {column.name} cannot be told to Doris"
        for column in table.columns
        if "`" in column.name and column.name.lower() in lowered
    ]
    return problems


def _told_problems(columns: Sequence[YieldedColumn], table: DorisTable, told: Columns) -> list[str]:
    """Return how what the stream says of columns fits neither its query nor the table."""
    if not told.is_given:
        return []
    yielded, sent = ({name.lower(): name for name in names} for names in ([one.name for one in columns], told.sent))
    computed = [name for name, _ in told.computed]
    made = [name.lower() for name in (*told.sent, *computed)]
    return [
        *(f"columns names {name} twice" for name in sorted({name for name in made if made.count(name) > 1})),
        *(f"columns names {name}, which the query does not yield" for key, name in sent.items() if key not in yielded),
        *(f"columns leaves out {name}, which the query yields" for key, name in yielded.items() if key not in sent),
        *(f"columns computes {name}, which the table does not have" for name in computed if table.column(name) is None),
    ]


def _is_plain(spark_type: str) -> bool:
    return spark_type.split("(")[0] in _PLAIN


def _text(column: YieldedColumn) -> str:
    """Return the expression of a column that only expressions of Doris read: as text."""
    name = quoted(column.name)
    if column.spark_type.startswith(_NESTED):
        return as_json(name)
    return name if column.spark_type == "string" else f"cast({name} as string)"


def _fit(column: YieldedColumn, target: DorisColumn) -> DorisFit | None:
    """Return the Spark expression whose text Doris reads as the same value, or None where none is sure to be."""
    name, spark = quoted(column.name), column.spark_type
    if spark.startswith(_NESTED):
        return DorisFit(target.name, as_json(name), target.type in _JSON) if target.type in (*_JSON, *_TEXTS) else None
    rule = _RULES.get(spark.split("(")[0])
    if rule is None or not rule(spark, target):
        return None
    return DorisFit(target.name, _expression(name, spark, target), is_plain=_is_plain(spark))


def _expression(name: str, spark: str, target: DorisColumn) -> str:
    if spark == "float" and target.type == "DOUBLE":
        return f"cast(cast({name} as double) as string)"
    if spark in ("timestamp", "timestamp_ntz") and target.type in _TIMES:
        plain = f"cast({name} as timestamp_ntz)"
        said = (
            f"column {target.name} has a fraction of a second, and Doris does not tell how much of it the column keeps"
        )
        advice = "use date_trunc, or cast to string in the transform where the column keeps 6 digits"
        is_whole = f"{plain} <=> date_trunc('SECOND', {plain})"  # so that NULL is one, too
        return f"if({is_whole}, cast({plain} as string), raise_error('{escaped(said)}: {advice}'))"
    return name if spark == "string" else f"cast({name} as string)"


def _shown(target: DorisColumn) -> str:
    return f"{target.type}({target.precision},{target.scale})" if target.is_decimal else target.type


def _advice(target: DorisColumn) -> str:
    if target.type in _OF_UNTOLD_ELEMENTS:
        return "Doris does not tell which elements the column holds: use a column of JSON, VARIANT or STRING"
    if target.type in _COMPUTED:
        return "its values are made by functions of Doris, which this sink does not call"
    return "cast it in the transform, or alter the column, to a type that keeps every value"


def _whole(_: str, target: DorisColumn) -> bool:
    """Doris refuses a number that is too large for its column."""
    return target.type in _WHOLE or target.is_decimal


def _decimal(spark: str, target: DorisColumn) -> bool:
    found = _DECIMAL.fullmatch(spark)
    assert found is not None, "Spark writes decimal(p,s)"
    return int(found[2]) <= target.scale if target.is_decimal else target.type in _WHOLE and found[2] == "0"


def _is(*types: str) -> Callable[[str, DorisColumn], bool]:
    return lambda spark, target: target.type in types


_RULES: dict[str, Callable[[str, DorisColumn], bool]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _whole),
    "decimal": _decimal,
    "float": _is("FLOAT", "DOUBLE"),
    "double": _is("DOUBLE"),
    "boolean": _is("BOOLEAN"),
    # A text that the transform made of a time or an address says by itself how it is written.
    **dict.fromkeys(("string", "char", "varchar"), _is(*_TEXTS, *_JSON, *_DATES, *_TIMES, "IPV4", "IPV6")),
    "date": _is(*_DATES, *_TIMES),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), _is(*_TIMES)),
}
