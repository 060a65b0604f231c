"""A driver's query from its start to its end: it takes Spark's batches, and is drained, checked and watched between them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from exactlyonce.api.format import OnTombstone
from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.claiming import DriverComponents
from exactlyonce_spark.connectors.ports import FittedColumn, SourceReader, TaskSink
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.drain import Drain
from exactlyonce_spark.ending_early import ends_at_once
from exactlyonce_spark.growth import Growth
from exactlyonce_spark.metrics import DriverMetrics
from exactlyonce_spark.progress import ProgressFile

CHECK_SECONDS = 5.0  # how often a driver without a running batch asks whether it may still land
_POLL_SECONDS = 0.2

log = logging.getLogger("exactlyonce.driver")


class _Draining(Exception):
    """Ends a batch that was planned after the query was to end; the next one, of this driver or another, runs it again."""


@dataclass(frozen=True)
class QueryPlan:
    """The query as it is to run. `rows_now` makes its rows once more, with the limit of a batch that holds by then.

    Of what is `left_out` its rows have nothing.
    """

    session: Any
    reader: SourceReader
    rows: Any
    rows_now: Callable[[], Any]
    columns: tuple[FittedColumn, ...]
    sink: TaskSink
    left_out: tuple[tuple[Partition, OffsetRange], ...] = ()


@dataclass(frozen=True)
class Signals:
    """What a query is told while it runs, and what it tells: asks to drain, the limit of a batch, numbers, signs of life."""

    drain: Drain
    growth: Growth
    metrics: DriverMetrics
    progress: ProgressFile


class RunningQuery:
    """The running query: its batches come in on a thread of Spark's, its end is awaited on the main one."""

    def __init__(self, components: DriverComponents, plan: QueryPlan, loop: BatchLoop, signals: Signals) -> None:
        from exactlyonce_spark.worker import WorkerPlan

        self._components = components
        self._session = plan.session
        self._reader = plan.reader
        self._rows = plan.rows
        self._rows_now = plan.rows_now
        self._columns = plan.columns
        self._left_out = plan.left_out
        self._loop = loop
        self._drain = signals.drain
        self._growth = signals.growth
        self._metrics = signals.metrics
        self._progress = signals.progress
        self._worker = WorkerPlan(plan.sink, components.driver.spec.source)
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self._cut_short = False
        self._query: Any = None
        self._plans: Any = None

    def run(self) -> LastMessage:
        """Run the query to its end; raises what ended it, if not an ask to drain.

        A query with a smaller limit is stopped between two batches once what was too large has landed, and another one
        continues with the full limit: the same claim and checkpoint. A death in between leaves a checkpoint like any other.
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
            return LastMessage(Ending.DRAINED, "The driver ended after the current batch, as requested.")
        return LastMessage(Ending.COMPLETED, "It has landed what the source held when it started.")

    def _start(self) -> None:
        from exactlyonce_spark.query import started

        spec = self._components.driver.spec
        self._started.clear()
        writer = self._rows.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self._components.stream.checkpoint_path)
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
            given = self._components.driver.spec.source.format
            batch = SparkBatch(
                BatchNumber(number),
                rows,
                self._plans,
                self._columns,
                self._worker,
                lambda ranges: malformed_records(self._session, self._reader, given, ranges, self._left_out),
                given.on_tombstone is OnTombstone.DELETE,
            )
            self._metrics.begun()
            landing = self._loop.run(batch)
            self._growth.landed(self._loop.stands)
            if landing is not None:
                self._metrics.landed(landing.records or 0, landing.rows)
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
            if time.monotonic() > next_check:
                next_check = time.monotonic() + CHECK_SECONDS
                self._note_progress()
                if self._loop.in_hand is None:
                    self._check()
        if self._problem is None and self._query.exception() is not None:
            self._problem = self._query.exception()

    def _ends_now(self, asked_seconds: float) -> bool:
        """Whether the query is stopped now; a batch that is cut short for a drain has not failed, whatever it raises."""
        from exactlyonce_spark.session import executors_of

        has_batch = self._loop.in_hand is not None
        in_trigger = bool(self._query.status["isTriggerActive"])
        if not self._drain.asked:
            return not has_batch and not in_trigger
        ends = ends_at_once(
            self._components.driver.spec.delivery,
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

    def _note_progress(self) -> None:
        from py4j.protocol import Py4JError

        from exactlyonce_spark.signs import signs_of

        in_hand = self._loop.in_hand
        batch = None if in_hand is None else in_hand.number
        try:
            self._progress.seen(signs_of(self._session, self._query, batch, self._progress.points))
        except Py4JError as problem:
            self._progress.blind(problem)

    def _check(self) -> None:
        try:
            self._loop.check_still_valid()
        except Unreachable:
            return  # the next batch finds out for itself
        except ExactlyOnceError as problem:
            self._problem = problem
            self._query.stop()
