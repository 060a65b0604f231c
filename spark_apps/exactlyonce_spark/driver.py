"""The life of one driver: claim the epoch, do its task, leave a last message.

The task is a query, for which Spark is started on the published checkpoint and lands batches; or to finish what earlier drivers
have left, and nothing else (`finish_only`).
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.format import OnMalformed, OnTombstone
from exactlyonce.assembly import checkpoint_store
from exactlyonce.launch.driver_document import METRICS_PORT, POD_IP
from exactlyonce.launch.last_message import LastMessage
from exactlyonce.ledger.fence import release
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark import loads_told
from exactlyonce_spark.assembly import source_connector
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.claiming import DriverComponents, claim
from exactlyonce_spark.connectors.ports import FittedColumn, SourceReader, TaskSink, TellsNotLanded
from exactlyonce_spark.crash_points import DRIVER_PID, reached, watch
from exactlyonce_spark.drain import Drain
from exactlyonce_spark.driver_failure import Claimed, failed
from exactlyonce_spark.finish_only import SparkWhenNeeded, Unattended, WithSpark, finish_only
from exactlyonce_spark.growth import Growth
from exactlyonce_spark.housekeeping import keeping_house, of_the_ledger
from exactlyonce_spark.jars import ensure_jars
from exactlyonce_spark.left_out import FailingRecords, left_out_of_decided, spots_of
from exactlyonce_spark.metrics import DriverMetrics, serve
from exactlyonce_spark.old_generations import of_the_checkpoint
from exactlyonce_spark.progress import ProgressFile
from exactlyonce_spark.running_query import QueryPlan, RunningQuery, Signals
from exactlyonce_spark.settings import DriverSpec
from exactlyonce_spark.target import TwoPhaseTarget
from exactlyonce_spark.tasks import TaskTools
from exactlyonce_spark.two_phase_finish import RowsAgain, RunAgain, finish_decided, require_nothing_decided

log = logging.getLogger("exactlyonce.driver")


def run_driver(driver: DriverSpec, epoch: Epoch, drain: Drain) -> LastMessage:
    """Run one driver to its end and return its last message; never raises."""
    os.environ[DRIVER_PID] = str(os.getpid())
    progress = ProgressFile.of(os.environ)
    progress.touch()
    watch(progress.passed)
    components: DriverComponents | None = None
    loop: BatchLoop | None = None

    def keep(made: BatchLoop) -> None:
        nonlocal loop
        loop = made

    try:
        components = claim(driver, epoch)
        reached("driver.claimed")
        match driver.task:
            case DriverTask.RUN_QUERY:
                words = _run_query(components, drain, keep, progress)
            case DriverTask.FINISH_ONLY:
                words = finish_only(_unattended(components))
            case _:
                assert_never(driver.task)
        # One without a query has written no checkpoint; whether somebody still writes it, only who started it may know.
        if driver.task is DriverTask.RUN_QUERY or driver.writer_is_dead:
            release(components.ledger, components.permit)
    except BaseException as problem:  # whatever ends a driver, its launcher is told
        claimed = (
            None
            if components is None
            else Claimed(components.ledger, components.permit, components.source.address, driver.spec.source)
        )
        return failed(problem, claimed, loop, asks_again=driver.kubernetes is not None)
    return words


def _run_query(
    components: DriverComponents, drain: Drain, keep: Callable[[BatchLoop], None], progress: ProgressFile
) -> LastMessage:
    from exactlyonce_spark.query import columns_of, streaming_rows
    from exactlyonce_spark.session import start_session
    from exactlyonce_spark.spark_bisection import failing_records

    spec = components.driver.spec
    imports = threading.Thread(target=_import_what_batches_need, daemon=True)
    imports.start()
    session = start_session(components.driver, ensure_jars(report=log.info))
    reached("driver.session-started")
    metrics = DriverMetrics()

    def passed(point: str) -> None:
        metrics.reached(point)
        progress.passed(point)

    watch(passed)
    if components.driver.kubernetes is not None:
        serve(metrics, os.environ[POD_IP], METRICS_PORT)
    reader = source_connector(spec).reader(spec, components.secrets, components.stream.life)
    if isinstance(reader, TellsNotLanded):
        metrics.not_landed, metrics.note_landed = reader.not_landed, reader.note_landed
    growth = Growth(components.driver.limit)

    left_out: tuple[FailingRecords, ...] = ()

    def rows_now() -> Any:
        spots = spots_of(left_out)
        return streaming_rows(session, reader, spec, len(components.source.view().selected), growth.records, spots)

    rows = rows_now()
    deletes = spec.source.format.on_tombstone is OnTombstone.DELETE
    columns = components.sink.fit(columns_of(rows), reader.position_columns, deletes=deletes)
    target, task_sink = components.sink.target(columns, deletes=deletes)
    if isinstance(target, TwoPhaseTarget):
        metrics.loads_into = target.loads_into
        loads_told.watch(metrics)
        again = _rows_again(components, session, reader, columns, target, task_sink)
        finish_decided(components.ledger, components.permit, target, RowsAgain(components.source, again))
    else:
        require_nothing_decided(components.ledger, components.permit)
    left_out = failing_records(components, session, reader, columns, target, lambda: drain.asked, deletes=deletes)
    settings = BatchSettings(
        spec.delivery,
        spec.sink.spec.commit,
        spec.source.format.on_malformed is OnMalformed.DEAD_LETTER,
        deletes=deletes,
        positions_count_records=spec.source.spec.positions_count_records,
        quarantine=components.driver.quarantine,
        left_out=left_out,
        most_quarantined=spec.recovery.max_quarantined,
    )
    loop = BatchLoop(components.ledger, components.permit, target, components.source, settings)
    keep(loop)
    imports.join()
    chores = (
        of_the_ledger(components.at_ledger, components.permit, spec.ledger_retention),
        of_the_checkpoint(
            components.at_ledger,
            components.permit,
            lambda: checkpoint_store(spec.checkpoint, components.secrets),
            spec.checkpoint_retention.generations,
        ),
    )
    with keeping_house(*chores):
        rows, spots = rows_now() if left_out else rows, spots_of(left_out)
        plan = QueryPlan(session, reader, rows, rows_now, columns, task_sink, spots)
        return RunningQuery(components, plan, loop, Signals(drain, growth, metrics, progress)).run()


def _rows_again(
    components: DriverComponents,
    session: Any,
    reader: SourceReader,
    columns: Sequence[FittedColumn],
    target: TwoPhaseTarget,
    task_sink: TaskSink,
) -> RunAgain:
    """Return what makes rows once more that the sink has aborted."""
    from exactlyonce_spark.rows_again import runs_again, runs_again_in_driver
    from exactlyonce_spark.worker import WorkerPlan

    spec = components.driver.spec
    without = functools.partial(left_out_of_decided, components.ledger, components.permit)
    if target.prepares_in_driver:
        tools = TaskTools(None, target, components.source)
        return runs_again_in_driver(session, reader, spec, columns, tools, without)
    return runs_again(session, reader, spec, columns, WorkerPlan(task_sink, spec.source), without)


def _unattended(components: DriverComponents) -> Unattended:
    """Return what a driver without a query works with; Spark is not started yet."""

    def with_spark() -> WithSpark:
        from exactlyonce_spark.query import columns_of, streaming_rows
        from exactlyonce_spark.session import start_session

        spec = components.driver.spec
        session = start_session(components.driver, ensure_jars(report=log.info))
        reached("driver.session-started")
        reader = source_connector(spec).reader(spec, components.secrets, components.stream.life)
        rows = streaming_rows(session, reader, spec, len(components.source.view().selected))
        columns = components.sink.fit(columns_of(rows), reader.position_columns, deletes=False)
        target, task_sink = components.sink.target(columns, deletes=False)
        assert isinstance(target, TwoPhaseTarget), "rows are made again for a sink of two phases alone"
        return WithSpark(target, _rows_again(components, session, reader, columns, target, task_sink))

    sink = components.sink.finishing()
    return Unattended(components.ledger, components.permit, components.source, sink, SparkWhenNeeded(with_spark))


def _import_what_batches_need() -> None:
    """Import the slow modules while the JVM starts, which leaves this process idle for seconds."""
    import pandas  # noqa: F401
    import pyarrow.csv  # noqa: F401

    import exactlyonce_spark.spark_batch  # noqa: F401
