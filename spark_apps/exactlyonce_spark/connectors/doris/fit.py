"""Does what the query yields fit a table of Doris, and how is each column handed over? No I/O, no pyspark.

A pair of types fits when no value can change silently on its way. Numbers, dates and times go as text, so nothing is rounded
by JSON; what a column cannot hold makes the server refuse the row, because loads are strict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exactlyonce.connectors.doris.spec import Write
from exactlyonce.connectors.doris.table import DorisColumn, DorisTable, KeysModel
from exactlyonce.errors import Refused
from exactlyonce_spark.connectors.ports import YieldedColumn

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT")
_TEXTS = ("CHAR", "VARCHAR", "STRING", "TEXT")
_JSON = ("JSON", "JSONB", "VARIANT")
_DATES = ("DATE", "DATEV2")
_TIMES = ("DATETIME", "DATETIMEV2")
_NESTED = ("struct<", "array<", "map<")
_COMPUTED = ("BITMAP", "HLL", "QUANTILE_STATE", "AGG_STATE")
_OF_UNTOLD_ELEMENTS = ("ARRAY", "MAP", "STRUCT")


_MODELS = {Write.APPEND: KeysModel.DUPLICATE, Write.UPSERT: KeysModel.UNIQUE, Write.AGGREGATE: KeysModel.AGGREGATE}


class TableUnfit(Refused):
    """What the query yields does not fit the table."""


@dataclass(frozen=True, slots=True)
class DorisFit:
    """A column by its name in the table, and the SQL expression that Spark evaluates to hand it over.

    `is_document`: the expression gives JSON, which goes into the row as it is.
    """

    name: str
    expression: str
    is_document: bool = False


def fit_columns(columns: Sequence[YieldedColumn], table: DorisTable, name: str, write: Write) -> tuple[DorisFit, ...]:
    """Return how each column is handed over; `name` is the table's, for messages.

    Raises:
        TableUnfit: naming everything that does not fit, and what to do.
    """
    problems = [*_model_problems(table, write), *_name_problems(columns, table, write)]
    fitted: list[DorisFit] = []
    for column in columns:
        target = table.column(column.name)
        if target is None:
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


def _name_problems(columns: Sequence[YieldedColumn], table: DorisTable, write: Write) -> list[str]:
    names = [column.name for column in columns]
    lowered = [name.lower() for name in names]
    problems = [
        f"the query yields column {name} twice, since case does not count in Doris"
        for name in sorted({name for name in lowered if lowered.count(name) > 1})
    ]
    known = ", ".join(column.name for column in table.columns)
    problems += [f"the table has no column {name} (it has {known})" for name in names if table.column(name) is None]
    if write is not Write.APPEND:
        # A row replaces the whole row of its key: what it does not name would become NULL, or a default.
        problems += [
            f"the query does not yield the table's column {column.name}, whose values write: {write} would lose"
            for column in table.columns
            if column.name.lower() not in lowered
        ]
    problems += [
        f"the name of column {column.name} cannot be told to Doris"
        for column in table.columns
        if "`" in column.name and column.name.lower() in lowered
    ]
    return problems


def _fit(column: YieldedColumn, target: DorisColumn) -> DorisFit | None:
    """Return the Spark expression whose text Doris reads as the same value, or None where none is sure to be."""
    name, spark = "`" + column.name.replace("`", "``") + "`", column.spark_type
    if spark.startswith(_NESTED):
        return (
            DorisFit(target.name, f"to_json({name})", target.type in _JSON)
            if target.type in (*_JSON, *_TEXTS)
            else None
        )
    rule = _RULES.get(spark.split("(")[0])
    if rule is None or not rule(spark, target):
        return None
    return DorisFit(target.name, _expression(name, spark, target))


def _expression(name: str, spark: str, target: DorisColumn) -> str:
    if spark == "float" and target.type == "DOUBLE":
        return f"cast(cast({name} as double) as string)"
    if spark in ("timestamp", "timestamp_ntz") and target.type in _TIMES:
        plain = f"cast({name} as timestamp_ntz)"
        said = (
            f"column {target.name} has a fraction of a second, and Doris does not tell how much of it the column keeps"
        )
        advice = "use date_trunc, or cast to string in the transform where the column keeps 6 digits"
        return f"if({plain} = date_trunc('SECOND', {plain}), cast({plain} as string), raise_error('{said}: {advice}'))"
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
