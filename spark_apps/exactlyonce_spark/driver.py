"""The life of one driver: claim the epoch, start Spark on the published checkpoint, land batches, leave a last message."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from exactlyonce.api.format import OnMalformed, OnTombstone
from exactlyonce.assembly import checkpoint_store
from exactlyonce.launch.driver_document import METRICS_PORT, POD_IP
from exactlyonce.launch.last_words import LastWords
from exactlyonce.ledger.fence import release
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.assembly import source_connector
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.claiming import DriverComponents, claim
from exactlyonce_spark.crash_points import DRIVER_PID, reached, watch
from exactlyonce_spark.drain import Drain
from exactlyonce_spark.driver_failure import Claimed, failed
from exactlyonce_spark.growth import Growth
from exactlyonce_spark.housekeeping import keeping_house, of_the_ledger
from exactlyonce_spark.jars import ensure_jars
from exactlyonce_spark.metrics import DriverMetrics, serve
from exactlyonce_spark.old_generations import of_the_checkpoint
from exactlyonce_spark.progress import ProgressFile
from exactlyonce_spark.running_query import QueryPlan, RunningQuery, Signals
from exactlyonce_spark.settings import DriverSpec
from exactlyonce_spark.target import TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import RowsAgain, finish_decided, require_nothing_decided

log = logging.getLogger("exactlyonce.driver")


def run_driver(driver: DriverSpec, epoch: Epoch, drain: Drain) -> LastWords:
    """Run one driver to its end and return its last message; never raises."""
    os.environ[DRIVER_PID] = str(os.getpid())
    progress = ProgressFile.of(os.environ)
    progress.touch()
    watch(progress.passed)
    parts: DriverComponents | None = None
    loop: BatchLoop | None = None

    def keep(made: BatchLoop) -> None:
        nonlocal loop
        loop = made

    try:
        parts = claim(driver, epoch)
        reached("driver.claimed")
        words = _run_query(parts, drain, keep, progress)
        release(parts.ledger, parts.permit)
    except BaseException as problem:  # whatever ends a driver, its launcher is told
        claimed = (
            None if parts is None else Claimed(parts.ledger, parts.permit, parts.source.address, driver.spec.source)
        )
        return failed(problem, claimed, loop, asks_again=driver.kubernetes is not None)
    return words


def _run_query(
    parts: DriverComponents, drain: Drain, keep: Callable[[BatchLoop], None], progress: ProgressFile
) -> LastWords:
    from exactlyonce_spark.query import columns_of, streaming_rows
    from exactlyonce_spark.session import start_session

    spec = parts.driver.spec
    imports = threading.Thread(target=_import_what_batches_need, daemon=True)
    imports.start()
    session = start_session(parts.driver, ensure_jars(report=log.info))
    reached("driver.session-started")
    metrics = DriverMetrics()

    def passed(point: str) -> None:
        metrics.reached(point)
        progress.passed(point)

    watch(passed)
    if parts.driver.kubernetes is not None:
        serve(metrics, os.environ[POD_IP], METRICS_PORT)
    reader = source_connector(spec).reader(spec, parts.secrets)
    growth = Growth(parts.driver.limit)

    def rows_now() -> Any:
        return streaming_rows(session, reader, spec, len(parts.source.view().selected), growth.records)

    rows = rows_now()
    deletes = spec.source.format.on_tombstone is OnTombstone.DELETE
    columns = parts.sink.fit(columns_of(rows), reader.position_columns, deletes=deletes)
    target, task_sink = parts.sink.target(columns, deletes=deletes)
    if isinstance(target, TwoPhaseTarget):
        from exactlyonce_spark.rows_again import runs_again
        from exactlyonce_spark.worker import WorkerPlan

        metrics.loads_into = target.loads_into
        again = runs_again(session, reader, spec, columns, WorkerPlan(task_sink, spec.source))
        finish_decided(parts.ledger, parts.permit, target, RowsAgain(parts.source, again))
    else:
        require_nothing_decided(parts.ledger, parts.permit)
    settings = BatchSettings(
        spec.delivery,
        spec.sink.spec.commit,
        spec.source.format.on_malformed is OnMalformed.DEAD_LETTER,
        deletes=deletes,
        positions_count_records=spec.source.spec.positions_count_records,
        quarantine=parts.driver.quarantine,
        most_quarantined=spec.recovery.max_quarantined,
    )
    loop = BatchLoop(parts.ledger, parts.permit, target, parts.source, settings)
    keep(loop)
    imports.join()
    chores = (
        of_the_ledger(parts.at_ledger, parts.permit, spec.ledger_retention),
        of_the_checkpoint(
            parts.at_ledger,
            parts.permit,
            lambda: checkpoint_store(spec.checkpoint, parts.secrets),
            spec.checkpoint_retention.generations,
        ),
    )
    with keeping_house(*chores):
        plan = QueryPlan(session, reader, rows, rows_now, columns, task_sink)
        return RunningQuery(parts, plan, loop, Signals(drain, growth, metrics, progress)).run()


def _import_what_batches_need() -> None:
    """Import the slow modules while the JVM starts, which leaves this process idle for seconds."""
    import pandas  # noqa: F401
    import pyarrow.csv  # noqa: F401

    import exactlyonce_spark.spark_batch  # noqa: F401
