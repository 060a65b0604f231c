"""Columns that are written as the query yields them. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exactlyonce.connectors.files.columns import (
    POSITION_COLUMNS,
    ColumnsUnfit,
    Type,
    require_columns,
    require_positions,
)
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.sql_text import quoted


def as_yielded(yielded: Sequence[YieldedColumn]) -> tuple[dict[str, Type], tuple[FittedColumn, ...]]:
    """Return the type of each column by its name, and the columns as they are handed over: unchanged.

    Raises:
        ColumnsUnfit: if a name is there more than once.
    """
    names = [column.name for column in yielded]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ColumnsUnfit(f"The query yields {', '.join(twice)} more than once; rename one of them in the transform.")
    types = {column.name: column.type_document for column in yielded}
    return types, tuple(FittedColumn(name, quoted(name)) for name in names)


class ColumnsOfFiles(NamedTuple):
    """The columns that a sink of files is given.

    `types` has the type of each by its name, and `renamed` the name in the files of each that carries a part of a position.
    """

    types: dict[str, Type]
    renamed: dict[str, str]
    fitted: tuple[FittedColumn, ...]


def fit_files(
    sink: FilesSink, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart]
) -> ColumnsOfFiles:
    """Return the columns of rows for a folder of files, whoever lands them.

    Raises:
        ColumnsUnfit: if the files of the sink cannot have these columns.
    """
    types, fitted = as_yielded(yielded)
    renamed: dict[str, str] = {}
    if sink.include_positions:
        require_positions(types, {part.value: name for name, part in positions.items()})
        renamed = {name: POSITION_COLUMNS[part.value] for name, part in positions.items()}
    require_columns(types, sink.format, sink.partition_by)
    return ColumnsOfFiles(types, renamed, fitted)
