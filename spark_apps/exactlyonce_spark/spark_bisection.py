"""The search for failing records in Spark's hands: parts of a batch are read in batch mode, through the stream's own query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.bisection import Bisection, rolled_back, taking_nothing, trying
from exactlyonce_spark.claiming import DriverComponents
from exactlyonce_spark.connectors.ports import FittedColumn, SourceReader
from exactlyonce_spark.left_out import FailingRecords
from exactlyonce_spark.query import rows_of
from exactlyonce_spark.spark_batch import handed_over
from exactlyonce_spark.target import ManifestTarget, Target, TwoPhaseTarget

_TELL_OF_QUERIES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where Spark's Python half tells of errors that have a place in a query (pyspark/errors/exceptions/base.py, Spark 4.2.0)."""


@contextmanager
def _failures_untold() -> Iterator[None]:
    """Keep thousands of stack traces out of the driver's log: parts are expected to fail, and each record's error is kept."""
    loggers = [PySparkLogger.getLogger(name) for name in _TELL_OF_QUERIES]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def failing_records(
    parts: DriverComponents,
    session: SparkSession,
    reader: SourceReader,
    columns: Sequence[FittedColumn],
    target: Target | ManifestTarget | TwoPhaseTarget,
    is_to_end: Callable[[], bool],
    *,
    deletes: bool,
) -> tuple[FailingRecords, ...]:
    """Return the records that the query of this driver is to leave out, as `Bisection.find` does."""
    spec = parts.driver.spec

    def read(ranges: Ranges) -> list[pa.RecordBatch]:
        rows = rows_of(session, reader, spec, ranges)
        return handed_over(rows, columns, with_deleted=deletes).toArrow().to_batches()

    take: Callable[[Any], object] = taking_nothing
    if not isinstance(target, ManifestTarget | TwoPhaseTarget):
        take = rolled_back(parts.ledger, parts.permit, target)
    search = Bisection(parts.ledger, parts.permit, parts.source, trying(read, take), is_to_end)
    with _failures_untold():
        return search.find(parts.driver.quarantine, spec.delivery)
