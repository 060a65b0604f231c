"""What a record of Kafka is made of: the columns that the query yields, as bytes. No I/O, no pyspark."""

from __future__ import annotations

from collections.abc import Sequence

from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.errors import Refused
from exactlyonce_spark.connectors.ports import FittedColumn, YieldedColumn
from exactlyonce_spark.sql_text import as_json, escaped, quoted

KEY, VALUE = 0, 1
FIRST_HEADER = 2
"""Where each of them is among the fitted columns."""

_NO_JSON = ("interval", "void", "variant", "geometry", "geography")


class RecordUnfit(Refused):
    """What the query yields makes no record as the resource describes one."""


def fit_record(columns: Sequence[YieldedColumn], sink: KafkaSink) -> tuple[FittedColumn, ...]:
    """Return key, value and headers of a record, in this order, each as an expression that gives bytes.

    Raises:
        RecordUnfit: naming every column that does not fit, and what to do.
    """
    yielded = {column.name: column for column in columns}
    named = [*_named(sink)]
    problems = [*_twice(columns), *(_problem(field, name, yielded) for field, name in named)]
    taken = {name for _, name in named}
    rest = [column for column in columns if column.name not in taken]
    if sink.value is None:
        problems += [
            f"column {column.name} is {column.spark_type}, which has no form in JSON; cast it to STRING, or leave it out"
            for column in rest
            if any(word in column.spark_type for word in _NO_JSON)
        ]
        if not rest:
            problems.append("no column is left for the value; name one in sink.kafka.value, or yield more")
    else:
        problems += [
            f"column {column.name} is neither key nor value nor header; leave it out, or leave out sink.kafka.value"
            for column in rest
        ]
    told = [problem for problem in problems if problem]
    if told:
        raise RecordUnfit(f"What the query yields makes no record for topic {sink.topic} of Kafka: {'; '.join(told)}.")
    value = _json(rest) if sink.value is None else _bytes(sink.value)
    key = "cast(null as binary)" if sink.key is None else _bytes(sink.key)
    headers = (FittedColumn(header.name, _bytes(header.column)) for header in sink.headers)
    return (FittedColumn("key", key), FittedColumn("value", value), *headers)


def _named(sink: KafkaSink) -> list[tuple[str, str]]:
    given = [("key", sink.key), ("value", sink.value)]
    named = [(f"sink.kafka.{field}", column) for field, column in given if column is not None]
    return named + [(f"sink.kafka.headers ({header.name})", header.column) for header in sink.headers]


def _problem(field: str, name: str, yielded: dict[str, YieldedColumn]) -> str:
    column = yielded.get(name)
    if column is None:
        return f"{field} names column {name}, which the query does not yield (it yields {', '.join(yielded)})"
    if column.spark_type not in ("string", "binary"):
        return f"{field} names column {name}, which is {column.spark_type}; cast it to STRING or BINARY"
    return ""


def _twice(columns: Sequence[YieldedColumn]) -> list[str]:
    names = [column.name for column in columns]
    return [f"the query yields column {name} twice" for name in sorted({one for one in names if names.count(one) > 1})]


def _bytes(name: str) -> str:
    return f"cast({quoted(name)} as binary)"


def _json(columns: Sequence[YieldedColumn]) -> str:
    fields = ", ".join(f"'{escaped(column.name)}', {quoted(column.name)}" for column in columns)
    return f"cast({as_json(f'named_struct({fields})')} as binary)"
