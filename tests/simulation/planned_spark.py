"""Spark's model with a reader of the product's own in Python: its planner lives as long as the query, and plans the ranges."""

from __future__ import annotations

import json
from abc import abstractmethod
from functools import partial
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.positions.ranges import BatchNumber, MalformedPositions, Positions
from exactlyonce_spark.plan import _ranges
from exactlyonce_spark.spark_port import ExecutedPlan
from tests.simulation.scheduler import Process
from tests.simulation.spark import Query
from tests.simulation.spark_batch import Batch
from tests.simulation.spark_errors import LogUnreadable

WAIT_STEPS = 50


class PlannedQuery(Query):
    """A query whose positions are told by a reader in Python.

    A kind of source says what a batch is, which reader is made for each query, and what its version of the source is.
    """

    batch_type: type[PlannedBatch]
    _world: Any

    @abstractmethod
    def _reader_of_query(self) -> Any:
        """Return the reader of a new query."""

    @abstractmethod
    def _version(self) -> int:
        """Return what changes whenever the source does."""

    def run(self) -> None:
        """Run batches; the planner lives as long as the query."""
        self._reader = self._reader_of_query()
        super().run()

    def _grow(self) -> None:
        super()._grow()
        self._reader = self._reader_of_query()

    def _batch(self, number: BatchNumber, start: Positions, end: Positions) -> Batch:
        try:
            return self.batch_type(self._world, self._process, number, start, end, self._folder, self._reader)
        except MalformedPositions as problem:
            raise LogUnreadable(f"batch {number} goes backwards: {problem}") from None

    def _wait_for_records(self, start: Positions, number: BatchNumber) -> Positions | None:
        if not start:
            raise LogUnreadable("the checkpoint was not seeded, so nothing names a position")
        while not self._draining():
            seen = self._version()
            told = self._reader.latestOffset(self.batch_type.offsets_of(start), ReadAllAvailable())
            end = self._parsed(json.dumps(told))
            if end != start:
                self._note_plan(start, end)
                return end
            self._wait_at_most(WAIT_STEPS, partial(self._has_news, seen))
            self._loop.check_still_valid()
        return None

    def _note_plan(self, start: Positions, end: Positions) -> None:
        """Tell the world what was planned, where it asks."""

    def _has_news(self, version: int) -> bool:
        return self._draining() or self._version() != version

    def _earliest(self) -> Positions:
        """`initialOffset`: no position."""
        return Positions({})

    def _kafka_start(self) -> Positions | None:
        return None

    def _entry(self, end: Positions) -> str:
        return self.batch_type.codec.render_entry(end)

    def _parsed(self, entry: str) -> Positions:
        return self.batch_type.codec.parse_entry(entry)


class PlannedBatch(Batch):
    """A batch of exactly what a reader in Python plans between two positions.

    A kind of source says how its logs hold positions, and which origin is read where there are none.
    """

    codec: PositionCodec
    origin: str
    _world: Any

    def __init__(
        self,
        world: Any,
        process: Process,
        number: BatchNumber,
        start: Positions,
        end: Positions,
        folder: str,
        reader: Any,
    ) -> None:
        self._world = world
        self._process = process
        self.number = number
        self._ranges = _ranges(start, end, ())
        self._folder = folder
        self._state = None
        self._before = []
        self._planned = list(reader.partitions(self.offsets_of(start), self.offsets_of(end))) if end else []

    @classmethod
    def offsets_of(cls, positions: Positions) -> Any:
        """Return positions as Spark hands them to a reader in Python."""
        return json.loads(cls.codec.render_entry(positions)) or {cls.origin: {}}

    def plan(self) -> ExecutedPlan:
        """Return the plan as it is in memory: Spark does not show what a task of a source in Python reads."""
        self._world.simulation.step("read the plan")
        return ExecutedPlan(self._ranges, None, False)

    def records_read(self) -> int | None:
        """The model does not count."""
        return None
