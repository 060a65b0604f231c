"""Rows that a sink of two phases aborted after they were decided, made once more by Spark: exactly those of a range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from exactlyonce.api.spec import StreamSpec
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.ports import FittedColumn, SourceReader, Spot
from exactlyonce_spark.query import rows_of
from exactlyonce_spark.spark_batch import handed_over, pieces_of, run_job
from exactlyonce_spark.tasks import PrepareJob, TaskPlace, TaskReport, TaskTools
from exactlyonce_spark.two_phase_finish import RunAgain
from exactlyonce_spark.worker import WorkerPlan


def runs_again(
    session: SparkSession,
    reader: SourceReader,
    spec: StreamSpec,
    columns: Sequence[FittedColumn],
    worker: WorkerPlan,
    left_out: Callable[[], Sequence[Spot]] = tuple,
) -> RunAgain:
    """Return what runs a job over the rows of given ranges, in one task: the load that it prepares is of all of them.

    `left_out` returns the records that the decided batch was to land without; it is asked where rows are made again.
    """

    def run(ranges: Ranges, job: PrepareJob) -> list[TaskReport]:
        spots = left_out()
        rows = rows_of(session, reader, spec, ranges, spots)
        return run_job(handed_over(rows, columns).coalesce(1), worker, replace(job, left_out=tuple(spots)))

    return run


def runs_again_in_driver(
    session: SparkSession,
    reader: SourceReader,
    spec: StreamSpec,
    columns: Sequence[FittedColumn],
    tools: TaskTools,
    left_out: Callable[[], Sequence[Spot]] = tuple,
) -> RunAgain:
    """Return what runs a job in this process, over rows that it is sent: for a sink that nobody else prepares."""

    def run(ranges: Ranges, job: PrepareJob) -> list[TaskReport]:
        spots = left_out()
        rows = rows_of(session, reader, spec, ranges, spots)
        again = replace(job, left_out=tuple(spots))
        return [again.run(tools, TaskPlace(0, 0), pieces_of(handed_over(rows, columns)))]

    return run
