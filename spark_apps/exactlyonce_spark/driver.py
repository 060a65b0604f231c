"""The life of one driver: claim the epoch, start Spark on the published checkpoint, land batches, leave last words."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactlyonce.api.format import OnMalformed, OnTombstone
from exactlyonce.assembly import Secrets, ledger_address, source_address
from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.launch.driver_document import METRICS_PORT, POD_IP
from exactlyonce.launch.last_words import Ending, LastWords
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce.ledger.connector import LedgerAddress, OpenLedger, Use
from exactlyonce.ledger.fence import Permit, claim_epoch, release
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.assembly import sink_connector, source_connector
from exactlyonce_spark.batch import BatchLoop, BatchSettings
from exactlyonce_spark.connectors.ports import FittedColumn, PreparedSink, SourceReader, TaskSink, YieldedColumn
from exactlyonce_spark.crash_points import DRIVER_PID, reached, watch
from exactlyonce_spark.drain import Drain
from exactlyonce_spark.driver_failure import Claimed, failed
from exactlyonce_spark.ending_early import ends_at_once
from exactlyonce_spark.growth import Growth
from exactlyonce_spark.housekeeping import keeping_ledger_short
from exactlyonce_spark.jars import ensure_jars
from exactlyonce_spark.metrics import DriverMetrics, serve
from exactlyonce_spark.settings import DriverSpec

CHECK_SECONDS = 5.0  # how often a driver without a batch in hand asks whether it may still land
_POLL_SECONDS = 0.2

log = logging.getLogger("exactlyonce.driver")


class _Draining(Exception):
    """Ends a batch that was planned after the query was to end; the next one, of this driver or another, runs it again."""


@dataclass(frozen=True)
class DriverParts:
    """What a driver has before Spark runs; `at_ledger` is where the ledger is."""

    driver: DriverSpec
    secrets: Secrets
    at_ledger: LedgerAddress
    ledger: OpenLedger
    source: SourceCheck
    sink: PreparedSink
    permit: Permit
    stream: StreamRow


def run_driver(driver: DriverSpec, epoch: Epoch, drain: Drain) -> LastWords:
    """Run one driver to its end and return its last words; never raises."""
    os.environ[DRIVER_PID] = str(os.getpid())
    parts: DriverParts | None = None
    loop: BatchLoop | None = None

    def keep(made: BatchLoop) -> None:
        nonlocal loop
        loop = made

    try:
        parts = _claim(driver, epoch)
        reached("driver.claimed")
        words = _run_query(parts, drain, keep)
        release(parts.ledger, parts.permit)
    except BaseException as problem:  # whatever ends a driver, its launcher is told
        claimed = None if parts is None else Claimed(parts.ledger, parts.permit, parts.source.address)
        return failed(problem, claimed, loop, asks_again=driver.kubernetes is not None)
    return words


def _claim(driver: DriverSpec, epoch: Epoch) -> DriverParts:
    """Take the epoch before anything else, and look at the target before Spark is started."""
    spec, secrets = driver.spec, functools.partial(read_secret, Path(os.environ[SECRETS_FOLDER]))
    at_ledger = ledger_address(spec, secrets)
    ledger = at_ledger.open(f"exactlyonce {driver.stream_id}", Use.BATCHES)
    permit, stream = claim_epoch(ledger, driver.stream_id, epoch, str(uuid.uuid4()), driver.ticket)
    sink = sink_connector(spec).prepare(spec, ledger, permit, stream)
    return DriverParts(driver, secrets, at_ledger, ledger, source_address(spec, secrets).open(), sink, permit, stream)


def _run_query(parts: DriverParts, drain: Drain, keep: Callable[[BatchLoop], None]) -> LastWords:
    from exactlyonce_spark.query import streaming_rows
    from exactlyonce_spark.session import start_session

    spec = parts.driver.spec
    imports = threading.Thread(target=_import_what_batches_need, daemon=True)
    imports.start()
    session = start_session(parts.driver, ensure_jars(report=log.info))
    reached("driver.session-started")
    metrics = DriverMetrics()
    watch(metrics.reached)
    if parts.driver.kubernetes is not None:
        serve(metrics, os.environ[POD_IP], METRICS_PORT)
    reader = source_connector(spec).reader(spec, parts.secrets)
    growth = Growth(parts.driver.limit)

    def rows_now() -> Any:
        return streaming_rows(session, reader, spec, len(parts.source.view().selected), growth.records)

    rows = rows_now()
    yielded = [YieldedColumn(field.name, field.dataType.simpleString()) for field in rows.schema]
    deletes = spec.source.format.on_tombstone is OnTombstone.DELETE
    columns = parts.sink.fit(yielded, deletes=deletes)
    target, task_sink = parts.sink.target(columns, deletes=deletes)
    settings = BatchSettings(
        spec.delivery,
        spec.sink.spec.commit,
        spec.source.format.on_malformed is OnMalformed.DEAD_LETTER,
        deletes=deletes,
    )
    loop = BatchLoop(parts.ledger, parts.permit, target, parts.source, settings)
    keep(loop)
    imports.join()
    with keeping_ledger_short(parts.at_ledger, parts.permit, spec.ledger_retention):
        return _Query(parts, session, reader, rows, rows_now, columns, task_sink, loop, drain, metrics, growth).run()


class _Query:
    """The running query: its batches come in on a thread of Spark's, its end is awaited on the main one."""

    def __init__(
        self,
        parts: DriverParts,
        session: Any,
        reader: SourceReader,
        rows: Any,
        rows_now: Callable[[], Any],
        columns: tuple[FittedColumn, ...],
        sink: TaskSink,
        loop: BatchLoop,
        drain: Drain,
        metrics: DriverMetrics,
        growth: Growth,
    ) -> None:
        from exactlyonce_spark.worker import WorkerPlan

        self._parts = parts
        self._session = session
        self._reader = reader
        self._rows = rows
        self._rows_now = rows_now
        self._growth = growth
        self._columns = columns
        self._loop = loop
        self._drain = drain
        self._metrics = metrics
        self._worker = WorkerPlan(sink, parts.driver.spec)
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self._cut_short = False
        self._query: Any = None
        self._plans: Any = None

    def run(self) -> LastWords:
        """Run the query to its end; raises what ended it, if not an ask to drain.

        A query with a smaller limit is stopped between two batches once what was too large has landed, and another one goes on
        with the whole limit: the same claim, the same checkpoint. Who dies in between leaves a checkpoint like any other.
        """
        self._start()
        self._await()
        while self._growth.due and not self._drain.asked and isinstance(self._problem, _Draining | None):
            reached("driver.limit-grown")
            log.info("What was too large has landed: the resource's own limit holds again.")
            self._growth.grow()
            self._rows, self._plans, self._problem = self._rows_now(), None, None
            self._start()
            self._await()
        if self._problem is not None and not isinstance(self._problem, _Draining) and not self._cut_short:
            raise self._problem
        if self._drain.asked:
            return LastWords(Ending.DRAINED, "It ended after the batch in hand, as it was asked to.")
        return LastWords(Ending.COMPLETED, "It has landed what the source held when it started.")

    def _start(self) -> None:
        from exactlyonce_spark.query import started

        spec = self._parts.driver.spec
        self._started.clear()
        writer = self._rows.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self._parts.stream.checkpoint_path)
        if spec.trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif spec.trigger.interval is not None:
            milliseconds = round(spec.trigger.interval.total_seconds() * 1000)
            writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
        self._query = started(writer, spec.output_mode)
        self._started.set()

    @property
    def _ends_after_batch(self) -> bool:
        return self._drain.asked or self._growth.due

    def _take(self, rows: Any, number: int) -> None:
        """Spark's callback for each batch. What it raises here ends the query; the exception itself is kept."""
        from exactlyonce_spark.plan import PlanReader
        from exactlyonce_spark.query import malformed_records
        from exactlyonce_spark.spark_batch import SparkBatch

        self._started.wait()
        try:
            if self._ends_after_batch:
                raise _Draining  # noqa: TRY301 - it ends the query the same way as any other failure of a batch
            if self._plans is None:
                self._plans = PlanReader(self._session, self._query, self._reader)
            given = self._parts.driver.spec.source.format
            batch = SparkBatch(
                BatchNumber(number),
                rows,
                self._plans,
                self._columns,
                self._worker,
                lambda ranges: malformed_records(self._session, self._reader, given, ranges),
                given.on_tombstone is OnTombstone.DELETE,
            )
            self._metrics.begun()
            landing = self._loop.run(batch)
            self._growth.landed(self._loop.stands)
            if landing is not None:
                self._metrics.landed(landing.records, landing.rows)
        except BaseException as problem:
            self._problem = problem
            raise

    def _await(self) -> None:
        """Return when the query has ended; between batches, ask whether this process may still land."""
        from pyspark.errors import StreamingQueryException

        next_check = time.monotonic() + CHECK_SECONDS
        asked_at: float | None = None
        while self._query.isActive:
            if self._ends_after_batch:
                asked_at = time.monotonic() if asked_at is None else asked_at
                if self._ends_now(time.monotonic() - asked_at):
                    self._query.stop()
                    return
                with suppress(StreamingQueryException):  # the batch that was refused for the drain; looked at below
                    self._query.awaitTermination(_POLL_SECONDS)
            elif self._drain.wait(_POLL_SECONDS):
                continue
            if time.monotonic() > next_check and self._loop.in_hand is None:
                next_check = time.monotonic() + CHECK_SECONDS
                self._check()
        if self._problem is None and self._query.exception() is not None:
            self._problem = self._query.exception()

    def _ends_now(self, asked_seconds: float) -> bool:
        """Whether the query is stopped now; what a batch raises that is cut short for a drain is no failure."""
        from exactlyonce_spark.session import executors_of

        has_batch = self._loop.in_hand is not None
        in_trigger = bool(self._query.status["isTriggerActive"])
        if not self._drain.asked:
            return not has_batch and not in_trigger
        ends = ends_at_once(
            self._parts.driver.spec.delivery,
            has_batch=has_batch,
            in_trigger=in_trigger,
            executors=executors_of(self._session),
            asked_seconds=asked_seconds,
        )
        if ends and in_trigger and not self._cut_short:
            self._cut_short = True
            log.info("The query ends without its batch: %s.", "no executor runs it" if has_batch else "there is none")
        if ends and has_batch:
            # Its job may not have been submitted yet. A stop would cancel nothing and then wait for that job without an end;
            # this is done again until the batch has failed, and with it the query.
            self._session.sparkContext.cancelJobGroup(str(self._query.runId))
            return False
        return ends

    def _check(self) -> None:
        try:
            self._loop.check_still_valid()
        except Unreachable:
            return  # the next batch finds out for itself
        except ExactlyOnceError as problem:
            self._problem = problem
            self._query.stop()


def _import_what_batches_need() -> None:
    """Import the slow modules while the JVM starts, which leaves this process idle for seconds."""
    import pandas  # noqa: F401
    import pyarrow.csv  # noqa: F401

    import exactlyonce_spark.spark_batch  # noqa: F401
