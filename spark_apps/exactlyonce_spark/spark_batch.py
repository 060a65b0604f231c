"""A micro-batch as Spark gives it to foreachBatch, behind the port that the batch loop uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from exactlyonce.api.format import DELETED
from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce_spark.connectors.ports import FittedColumn
from exactlyonce_spark.observed import letters_of
from exactlyonce_spark.plan import PlanReader
from exactlyonce_spark.spark_port import ExecutedPlan
from exactlyonce_spark.target import DeadLetter
from exactlyonce_spark.tasks import Job, TaskReport
from exactlyonce_spark.worker import REPORT_SCHEMA, WorkerPlan, report_of, task_function

_TOO_LARGE = "spark.driver.maxResultSize"

FindMalformed = Callable[[Ranges], DataFrame]


@dataclass(frozen=True)
class SparkBatch:
    """One batch; `rows` is its DataFrame, good for one run of the query."""

    number: BatchNumber
    rows: DataFrame
    plans: PlanReader
    columns: tuple[FittedColumn, ...]
    worker: WorkerPlan
    find_malformed: FindMalformed
    with_deleted: bool = False

    def plan(self) -> ExecutedPlan:
        """Return what Spark's executed plan says."""
        return self.plans.read()

    def collect(self) -> Sequence[pa.RecordBatch] | None:
        """Return the rows, collected as Arrow without a Python worker; None when they are too large for the driver."""
        try:
            return self._handed_over().toArrow().to_batches()
        except (Py4JJavaError, PySparkException) as problem:
            if _TOO_LARGE in str(problem):
                return None
            raise

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Run the query and return its rows as Arrow, in the order of its tasks."""
        return pieces_of(self._handed_over())

    def run_tasks(self, job: Job) -> list[TaskReport]:
        """Run the query with `job` at the end of each task."""
        return run_job(self._handed_over(), self.worker, job)

    def unread(self) -> DataFrame:
        """Return the rows of the query, which has not run."""
        return self.rows

    def run_without_rows(self) -> None:
        """Run the query and throw its rows away."""
        self.rows.write.format("noop").mode("overwrite").save()

    def records_read(self) -> int | None:
        """Return how many records the scan has read."""
        return self.plans.records_read()

    def malformed(self, ranges: Ranges, *, before_run: bool) -> Sequence[DeadLetter]:
        """Return the malformed records of the ranges: as the run has observed them, or read now if it has not run."""
        if not ranges.non_empty():
            return ()
        return letters_of(self.find_malformed(ranges)) if before_run else self.plans.malformed()

    def _handed_over(self) -> DataFrame:
        """The rows with the table's columns, as text where the sink reads text; names that need no quoting."""
        return handed_over(self.rows, self.columns, with_deleted=self.with_deleted)


def handed_over(rows: DataFrame, columns: Sequence[FittedColumn], *, with_deleted: bool = False) -> DataFrame:
    """Return rows with the columns that the sink takes, under names that need no quoting."""
    expressions = [f"{column.expression} as c{place}" for place, column in enumerate(columns)]
    if with_deleted:
        expressions.append(f"{DELETED} as deleted")
    return rows.selectExpr(*expressions)


def pieces_of(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    """Run a query and return its rows as Arrow; the driver holds those of two partitions of Spark's at a time."""
    for row in rows.mapInArrow(_packed, "piece binary").toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row.piece) as stream:
            yield from stream


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        written = pa.BufferOutputStream()
        with pa.ipc.new_stream(written, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"piece": pa.array([written.getvalue().to_pybytes()], pa.binary())})


def run_job(rows: DataFrame, worker: WorkerPlan, job: Job) -> list[TaskReport]:
    """Run a query with `job` at the end of each task."""
    reports = rows.mapInArrow(task_function(worker, job), REPORT_SCHEMA).collect()
    return [report_of(report.tag, report.rows, report.known, report.committable) for report in reports]
