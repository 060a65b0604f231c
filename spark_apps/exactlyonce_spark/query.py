"""The streaming query of a stream: source, format, transform; the sink takes its batches."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from exactlyonce.api.format import Format
from exactlyonce.api.output_mode import OutputMode
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.transform import Transform
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce_spark import formats
from exactlyonce_spark.connectors.ports import RecordColumns, SourceReader, Spot, YieldedColumn

VIEW = "source"


class TransformInvalid(Refused):
    """The transform does not parse, does not resolve, or is not a function from DataFrame to DataFrame."""


def streaming_rows(
    session: SparkSession,
    reader: SourceReader,
    spec: StreamSpec,
    partitions: int,
    most: int | None = None,
    left_out: Collection[Spot] = (),
) -> DataFrame:
    """Return the streaming DataFrame whose rows land; `partitions` is how many the source has now.

    `most` is how many records a batch may span while that is less than the resource's own limit. Of what is `left_out` there
    are no rows: whoever lands the query's batches records those in quarantine.

    Raises:
        Refused: if schema or transform cannot be used.
    """
    return _rows(session, reader, spec, reader.stream(session, partitions, most, left_out), left_out)


def rows_of(
    session: SparkSession, reader: SourceReader, spec: StreamSpec, ranges: Ranges, left_out: Collection[Spot] = ()
) -> DataFrame:
    """Return the rows of exactly these ranges but for what is left out, as the stream's query makes them, read as a batch.

    Raises:
        Refused: if schema or transform cannot be used.
    """
    return _rows(session, reader, spec, reader.batch(session, ranges, left_out), left_out)


def columns_of(rows: DataFrame) -> list[YieldedColumn]:
    """Return the columns that a query yields."""
    return [YieldedColumn(it.name, it.dataType.simpleString(), it.dataType.jsonValue()) for it in rows.schema]


def _rows(
    session: SparkSession, reader: SourceReader, spec: StreamSpec, records: DataFrame, left_out: Collection[Spot]
) -> DataFrame:
    given, columns = spec.source.format, reader.columns(records)
    formats.parse_schema(given, reader.reserved)
    read = without(formats.observed(records, columns, given), columns, left_out)
    return transformed(session, formats.well_formed(read, columns, given), spec.transform, reader.reserved)


def without(records: DataFrame, columns: RecordColumns, left_out: Collection[Spot]) -> DataFrame:
    """Return the records but for those in some ranges, before anything is made of them."""
    if not left_out:
        return records
    by_partition: dict[Partition, list[OffsetRange]] = {}
    for partition, offsets in left_out:
        by_partition.setdefault(partition, []).append(offsets)
    return records.where(~reduce(or_, (_is_in(columns, key, spans) for key, spans in by_partition.items())))


def _is_in(columns: RecordColumns, partition: Partition, spans: Collection[OffsetRange]) -> Column:
    position = functions.expr(columns.position)
    single = [span.from_offset for span in spans if span.record_count == 1]
    longer = [span for span in spans if span.record_count > 1]
    found = [(position >= span.from_offset) & (position < span.until_offset) for span in longer]
    if single:
        found.append(position.isin(single))
    of_partition = functions.expr(columns.partition) == functions.lit(partition.key)
    return (functions.expr(columns.origin) == functions.lit(partition.origin)) & of_partition & reduce(or_, found)


_EMITS = {
    OutputMode.APPEND: (
        "appends rows",
        "An aggregation needs a watermark and a window of time, in SQL FROM source WATERMARK ts DELAY OF INTERVAL 10 MINUTES; "
        "or outputMode: Update, with write: Upsert.",
    ),
    OutputMode.UPDATE: (
        "updates rows",
        "Update is for aggregations; a join or a deduplication emits rows that never change: set outputMode: Append.",
    ),
    OutputMode.COMPLETE: (
        "replaces its whole result",
        "Complete needs an aggregation, whose result is all that it replaces; set outputMode: Append or Update.",
    ),
}


def started(writer: DataStreamWriter, output_mode: OutputMode = OutputMode.APPEND) -> StreamingQuery:
    """Start the query.

    Raises:
        TransformInvalid: if Spark cannot run it as a stream of this mode, such as an aggregation without a watermark.
    """
    try:
        return writer.outputMode(output_mode.value.lower()).start()
    except AnalysisException as problem:
        emits, advice = _EMITS[output_mode]
        raise TransformInvalid(
            f"The transform cannot run as a stream that {emits}: {_first_line(problem)} {advice}"
        ) from problem


def malformed_records(
    session: SparkSession, reader: SourceReader, given: Format, ranges: Ranges, left_out: Collection[Spot] = ()
) -> DataFrame:
    """Return the malformed records of exactly these ranges but for what is left out, read as a batch."""
    records = reader.batch(session, ranges, left_out)
    return formats.malformed_records(records, reader.columns(records), given)


def transformed(
    session: SparkSession, rows: DataFrame, transform: Transform | None, of_the_source: Collection[str]
) -> DataFrame:
    """Apply the stream's transform, if it has one; without one the columns `of_the_source` are left out.

    Raises:
        TransformInvalid: naming what does not parse or resolve.
    """
    if transform is None:
        return rows.drop(*of_the_source)
    if transform.sql is not None:
        rows.createOrReplaceTempView(VIEW)
        try:
            return session.sql(transform.sql)
        except ParseException as problem:
            raise TransformInvalid(
                f"transform.sql does not parse: {_first_line(problem)} Correct the statement."
            ) from problem
        except AnalysisException as problem:
            known = ", ".join(rows.columns)
            raise TransformInvalid(
                f"transform.sql does not resolve: {_first_line(problem)} The view {VIEW} has the columns {known}."
            ) from problem
    assert transform.python is not None, "a transform is one of the two"
    return _by_python(rows, transform.python.module, transform.python.function)


def _by_python(rows: DataFrame, module: str, name: str) -> DataFrame:
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise TransformInvalid(
            f"transform.python names {module}.{name}, which cannot be imported ({problem}); put the module on the driver's "
            "Python path."
        ) from problem
    try:
        result = function(rows)
    except Exception as problem:
        said = _first_line(problem) if isinstance(problem, PySparkException) else repr(problem)
        raise TransformInvalid(f"transform.python {module}.{name} failed: {said}") from problem
    if not isinstance(result, DataFrame):
        raise TransformInvalid(
            f"transform.python {module}.{name} returned {type(result).__name__}; return a DataFrame."
        )
    return result


def _first_line(problem: Exception) -> str:
    text = str(problem).strip().splitlines()
    return text[0] if text else type(problem).__name__
