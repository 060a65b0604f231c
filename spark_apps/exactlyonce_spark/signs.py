"""The signs of progress of a running query, as Spark has them."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from exactlyonce_spark.progress import Signs
from exactlyonce_spark.session import executors_of

_ENDED = ("numCompleteTasks", "numFailedTasks", "numKilledTasks")
_LATEST_EXECUTIONS = 8
"""A batch is one execution of the query and, one after another, those of what is done with its rows."""


def signs_of(session: SparkSession, query: StreamingQuery, batch: int | None, points: int) -> Signs:
    """Return the signs of a query as they are now; does not return while the JVM is frozen.

    A query that finds no data reports a trigger every ten seconds (spark.sql.streaming.noDataProgressEventInterval).
    """
    reported = query._jsq.lastProgress()
    return Signs(
        points,
        batch,
        bool(query.status["isTriggerActive"]),
        None if reported is None else str(reported.timestamp()),
        executors_of(session),
        _ended_tasks(session),
        _counts(session),
    )


def work_of(session: SparkSession) -> str:
    """Return what the session's jobs have done so far, as text that differs when a task ends or a row passes an operator."""
    return f"{_ended_tasks(session)} {_counts(session)}"


def _ended_tasks(session: SparkSession) -> int:
    stages = session.sparkContext._jsc.sc().statusStore().activeStages()
    active = [stages.apply(place) for place in range(stages.size())]
    return sum(int(getattr(stage, count)()) for stage in active for count in _ENDED)


def _counts(session: SparkSession) -> str:
    """Return the SQL metrics of what runs now, as text: rows read, handed to Python, taken back, shuffled and written.

    They come with the heartbeats of executors, every ten seconds, also from tasks that have not ended. The counts of a stage
    (`inputRecords`) would not do: in local mode Spark drops them until a task ends, because the accumulators behind them lose
    their names on the way to an executor and get them back only in another process (AccumulatorV2.writeReplace).
    """
    store = session._jsparkSession.sharedState().statusStore()
    executions = store.executionsList(max(0, store.executionsCount() - _LATEST_EXECUTIONS), _LATEST_EXECUTIONS)
    latest = (executions.apply(place) for place in range(executions.size()))
    running = [execution.executionId() for execution in latest if execution.completionTime().isEmpty()]
    return " ".join(f"{number}: {store.executionMetrics(number).toString()}" for number in running)
