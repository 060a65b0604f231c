"""The work of a batch's tasks in Spark's Python workers: from Arrow batches to a job's report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.tasks import Job, TaskPlace, TaskReport, TaskTools

REPORT_SCHEMA = "tag bigint, rows bigint, known boolean"


@dataclass(frozen=True)
class WorkerPlan:
    """What an executor needs to make its tools; credentials are read there from the mounted secrets, never sent."""

    target: TargetPlan
    kafka: KafkaSource


_tools: dict[str, TaskTools] = {}
"""The tools of this worker process, made once: a worker serves many tasks of one driver."""


def task_function(plan: WorkerPlan, job: Job) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark's mapInArrow runs in each task: consumes the rows, yields one report."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "mapInArrow runs inside a task"
        place = TaskPlace(context.partitionId(), context.attemptNumber())
        yield _as_batch(job.run(tools_of(plan), place, batches))

    return work


def tools_of(plan: WorkerPlan) -> TaskTools:
    """Return this process's tools for a stream and epoch."""
    key = plan.target.staging_table
    if key not in _tools:
        folder = Path(os.environ[SECRETS_FOLDER])
        secret = read_secret(folder, plan.target.sink.secret_ref)
        address = PostgresAddress.from_secret(plan.target.sink.secret_ref.name, secret)
        ledger = PostgresLedger(
            address,
            plan.target.ledger_schema,
            Limits.of_batches(plan.target.sink),
            application=f"exactlyonce {plan.target.stream_id}",
        )
        source = KafkaBounds(plan.kafka, read_secret(folder, plan.kafka.secret_ref))
        _tools.clear()
        _tools[key] = TaskTools(ledger, PostgresTarget(ledger, plan.target), source)
    return _tools[key]


def _as_batch(report: TaskReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "tag": pa.array([report.tag], pa.int64()),
            "rows": pa.array([report.rows], pa.int64()),
            "known": pa.array([report.known], pa.bool_()),
        }
    )
