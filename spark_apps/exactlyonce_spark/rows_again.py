"""Rows that a sink of two phases aborted after they were decided, made once more by Spark: exactly those of a range."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from exactlyonce.api.spec import StreamSpec
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.ports import FittedColumn, SourceReader
from exactlyonce_spark.query import rows_of
from exactlyonce_spark.spark_batch import handed_over, run_job
from exactlyonce_spark.tasks import Job, TaskReport
from exactlyonce_spark.two_phase_finish import RunAgain
from exactlyonce_spark.worker import WorkerPlan


def runs_again(
    session: SparkSession, reader: SourceReader, spec: StreamSpec, columns: Sequence[FittedColumn], worker: WorkerPlan
) -> RunAgain:
    """Return what runs a job over the rows of given ranges, in one task: the load that it prepares is of all of them."""

    def run(ranges: Ranges, job: Job) -> list[TaskReport]:
        rows = rows_of(session, reader, spec, ranges)
        return run_job(handed_over(rows, columns).coalesce(1), worker, job)

    return run
