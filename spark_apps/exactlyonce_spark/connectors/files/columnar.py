"""Rows of Parquet and ORC files, a row group or a stripe at a time, with the columns that are declared. No pyspark here.

Each file is read by a task from the handle that proves it to be the file that was planned (`source_folder.py`), so what is read
has the same proof as lines have. Spark's own readers open files by their paths (docs/adr/0042).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa

from exactlyonce.api.format_type import FormatType
from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.files.source_lines import PLAN_AGAIN, FileUnreadable
from exactlyonce_spark.connectors.files.arrow_columns import ColumnUnfit, Conversion, place_of

_BATCH_BYTES = 8 * 1024 * 1024
"""The most of one Arrow batch, which a task holds several times over; a row that is larger is a batch of its own."""

_MOST_ROWS = 10_000
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITER = b"org.apache.spark.version"


def count_rows(kind: FormatType, named: str, opened: BinaryIO) -> int:
    """Return how many rows a file has, by its footer.

    Raises:
        FileUnreadable: if it has none that can be read.
    """
    with _telling(kind, named):
        return int(_parquet(opened).metadata.num_rows if kind is FormatType.PARQUET else _orc(opened).nrows)


def rows_of(kind: FormatType, named: str, opened: BinaryIO, wanted: pa.StructType) -> Iterator[pa.StructArray]:
    """Yield the rows of a file, in its order, as arrays of exactly the wanted type.

    Raises:
        FileUnreadable: if it is damaged, encrypted, no such file, or has a column that is not what is wanted.
    """
    with _telling(kind, named):
        if kind is FormatType.PARQUET:
            yield from _rows_of_parquet(opened, wanted)
        else:
            yield from _rows_of_orc(opened, wanted)


def _rows_of_parquet(opened: BinaryIO, wanted: pa.StructType) -> Iterator[pa.StructArray]:
    file = _parquet(opened)
    schema, footer = file.schema_arrow, file.metadata
    columns = _columns(schema, wanted)
    names = list(columns.values())
    conversion = Conversion(_has_old_calendar(footer.metadata or {}))
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        rows = max(1, min(_MOST_ROWS, group.num_rows * _BATCH_BYTES // max(1, group.total_byte_size)))
        for batch in file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False):
            yield from _parts(_taken(conversion, batch, schema, columns, wanted))


def _rows_of_orc(opened: BinaryIO, wanted: pa.StructType) -> Iterator[pa.StructArray]:
    file = _orc(opened)
    columns = _columns(file.schema, wanted)
    # By a name with a dot, pyarrow's reader of ORC looks for a field of a struct: then all columns are read.
    names = None if any("." in name for name in columns.values()) else list(columns.values())
    for number in range(file.nstripes):
        batch = file.read_stripe(number, columns=names)
        yield from _parts(_taken(Conversion(), batch, file.schema, columns, wanted))


def _parquet(opened: BinaryIO) -> pa.parquet.ParquetFile:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=False)


def _orc(opened: BinaryIO) -> pa.orc.ORCFile:
    import pyarrow.orc

    return pyarrow.orc.ORCFile(opened)


def _columns(schema: pa.Schema, wanted: pa.StructType) -> dict[str, str]:
    """Return what the file calls those of the wanted columns that it has.

    Raises:
        ColumnUnfit: if a name is there twice, or none is there at all: then it is a file of something else.
    """
    places = {field.name: place_of(field.name, schema.names) for field in wanted}
    found = {name: schema.names[place] for name, place in places.items() if place is not None}
    if not found:
        raise ColumnUnfit(
            f"it has none of the columns of source.format.schema, but {one_line(', '.join(schema.names))}"
        )
    return found


def _taken(
    conversion: Conversion,
    batch: pa.RecordBatch,
    schema: pa.Schema,
    columns: dict[str, str],
    wanted: pa.StructType,
) -> pa.StructArray:
    """Return the rows of a batch with the wanted columns; one that the file does not have is NULL."""
    children = []
    for field in wanted:
        name = columns.get(field.name)
        if name is None:
            children.append(pa.nulls(batch.num_rows, field.type))
            continue
        found = batch.column(batch.schema.names.index(name))
        children.append(conversion.taken(found, field.type, field.name, schema.field(name)))
    return pa.StructArray.from_arrays(children, fields=list(wanted))


def _parts(rows: pa.StructArray) -> Iterator[pa.StructArray]:
    parts = max(1, -(-rows.nbytes // _BATCH_BYTES), -(-len(rows) // _MOST_ROWS))
    each = max(1, -(-len(rows) // parts))
    for start in range(0, len(rows), each):
        yield rows.slice(start, each)


def _has_old_calendar(metadata: dict[bytes, bytes]) -> bool:
    """Whether a file says that Spark wrote it with the calendar that it used before release 3.

    Source: DataSourceUtils.datetimeRebaseSpec, Spark 4.2.0.
    """
    version = metadata.get(_WRITER, b"3").split(b".")[0]
    return any(key in metadata for key in _LEGACY) or version in (b"1", b"2")


@contextmanager
def _telling(kind: FormatType, named: str) -> Iterator[None]:
    """Tell what is wrong with a file; what is wrong with its storage is told by who opened it."""
    try:
        yield
    except ColumnUnfit as problem:
        raise FileUnreadable(
            f"{named} does not fit source.format.schema: {problem}. Change the schema, or leave the file out by fileNames. "
            f"{PLAN_AGAIN}"
        ) from problem
    except (pa.ArrowException, OSError) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        said = one_line(str(problem))
        what = "is encrypted" if "crypt" in said.lower() else f"is not a whole {kind} file"
        raise FileUnreadable(
            f"{named} {what}, or not one that can be read ({said}); replace it by a whole one of another name. {PLAN_AGAIN}"
        ) from problem
