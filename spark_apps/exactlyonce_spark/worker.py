"""The work of a batch's tasks in Spark's Python workers: from Arrow batches to a job's report."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from exactlyonce.api.source import Source
from exactlyonce.assembly import source_address
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce.ledger.decided import Committable
from exactlyonce_spark.connectors.ports import TaskSink
from exactlyonce_spark.tasks import Job, TaskPlace, TaskReport, TaskTools

REPORT_SCHEMA = "tag bigint, rows bigint, known boolean, committable string"


@dataclass(frozen=True)
class WorkerPlan:
    """What an executor needs to make its tools; credentials are read there from the mounted secrets, never sent."""

    sink: TaskSink
    source: Source


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
    key = plan.sink.key
    if key not in _tools:
        secrets = functools.partial(read_secret, Path(os.environ[SECRETS_FOLDER]))
        ledger, target = plan.sink.open(secrets)
        _tools.clear()
        _tools[key] = TaskTools(ledger, target, source_address(plan.source, secrets).open())
    return _tools[key]


def report_of(tag: int, rows: int, known: bool, committable: str | None) -> TaskReport:
    """Return a report of its columns, as they came back to the driver."""
    found = None if committable is None else Committable.from_document(json.loads(committable))
    return TaskReport(tag, rows, known, found)


def _as_text(report: TaskReport) -> str | None:
    return None if report.committable is None else json.dumps(report.committable.to_document())


def _as_batch(report: TaskReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "tag": pa.array([report.tag], pa.int64()),
            "rows": pa.array([report.rows], pa.int64()),
            "known": pa.array([report.known], pa.bool_()),
            "committable": pa.array([_as_text(report)], pa.string()),
        }
    )
