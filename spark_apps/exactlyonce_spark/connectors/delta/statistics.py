"""What the footer of a Parquet file says: its columns as Spark wrote them, and statistics as Delta's log has them.

Readers leave out files by them, so a bound is given only where it is exact in JSON, or on the safe side of it.
Source: the Delta transaction protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow
import pyarrow.parquet

from exactlyonce.connectors.files.columns import described_columns
from exactlyonce_spark.connectors.delta.table import FileFacts

_MOST_COLUMNS = 32
"""As many as Delta itself looks at, unless a table says otherwise."""
_MOST_LETTERS = 64
"""A longer text has no bounds here: a shortened upper one would have to be rounded up."""


def facts_of(footer: pyarrow.parquet.FileMetaData) -> FileFacts:
    """Return what a file's footer says."""
    columns = described_columns(footer.metadata) or {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        chunks = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
        known = [chunk for chunk in chunks if chunk is not None and chunk.null_count is not None]
        if name not in columns or len(nulls) >= _MOST_COLUMNS or len(known) < len(chunks):
            continue  # a part of a nested column, among others
        nulls[name] = sum(chunk.null_count or 0 for chunk in known)
        bounds = list(_bounds_of([chunk for chunk in known if chunk.num_values]))
        if bounds:
            least[name], greatest[name] = bounds
    told = {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return FileFacts(columns, json.dumps(told, ensure_ascii=False, separators=(",", ":")))


def _bounds_of(chunks: Sequence[pyarrow.parquet.Statistics]) -> Iterator[Any]:
    if chunks and all(chunk.has_min_max for chunk in chunks):
        with suppress(ValueError, OverflowError, pyarrow.ArrowException):  # moments beyond the years that Python knows
            values: list[Any] = [value for chunk in chunks for value in (chunk.min, chunk.max)]
            yield from tuple(_bounds(min(values), max(values)))


def _bounds(low: Any, high: Any) -> Iterator[Any]:
    """Yield both bounds in JSON, or nothing where they are not exact there."""
    match low:
        case bool() | bytes():
            return
        case int():
            yield from (low, high)
        case float():
            if math.isfinite(low) and math.isfinite(high):
                yield from (low, high)
        case str():
            if max(len(low), len(high)) <= _MOST_LETTERS:
                yield from (low, high)
        case datetime():
            yield from (_moment(low), _moment(high + timedelta(microseconds=-high.microsecond % 1000)))
        case date():
            yield from (low.isoformat(), high.isoformat())
        case _:
            return


def _moment(moment: datetime) -> str:
    """Return a moment in milliseconds, which readers of every kind parse: cut, so that a lower bound stays one."""
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if moment.tzinfo is not None and moment.utcoffset() == UTC.utcoffset(None) else text
