"""What a task does with its rows: stage them, land its partition, or write them. Runs on executors; no pyspark here."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.decided import Committable
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.known_loads import Span, spans_without
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.landing import land_partition
from exactlyonce_spark.planned import NOTHING_LEFT_OUT, AlreadyLanded, LeftOut
from exactlyonce_spark.source_check import KnownLog, read_again_where_nothing_else_tells, require_all_was_there
from exactlyonce_spark.target import DeadLetter, PreparedLoad, Target, TaskRange, TwoPhaseTarget
from exactlyonce_spark.witnesses import write_under_fence

AGAIN, DRIVER = "again", "driver"
"""What a part begins with that is of no task of the batch: rows that are made again, rows that the driver loads as one."""


class SecondTry(ExactlyOnceError):
    """AtMostOnce: Spark runs a task a second time, which might write rows twice; the task refuses."""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Which task this is: its index in the stage, and how often it was started before.

    A stage is never run again where that matters: spark.stage.maxConsecutiveAttempts is 1 with AtMostOnce.
    """

    index: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a successful task did. `known` is False where it found its partition landed and cannot count the rows.

    `committable` is what it prepared in a sink of two phases, where it had rows.
    """

    tag: int
    rows: int
    known: bool = True
    committable: Committable | None = None


@dataclass(frozen=True)
class TaskTools:
    """What a task works with on its executor. A task that writes to a sink of two phases asks no ledger."""

    opened_ledger: Ledger | None
    sink: Target | TwoPhaseTarget
    source: SourceCheck

    @property
    def ledger(self) -> Ledger:
        """The ledger, for a job whose rows are in its transactions."""
        assert self.opened_ledger is not None, "the sink of such a job opens the ledger"
        return self.opened_ledger

    @property
    def target(self) -> Target:
        """The table of a sink whose transactions are the ledger's."""
        assert not isinstance(self.sink, TwoPhaseTarget), (
            "a batch loop over a sink of two phases sends a PrepareJob alone"
        )
        return self.sink

    @property
    def two_phase(self) -> TwoPhaseTarget:
        """The sink of two phases."""
        assert isinstance(self.sink, TwoPhaseTarget), "a batch loop sends a PrepareJob to a sink of two phases alone"
        return self.sink


class Job(Protocol):
    """The work of a batch's tasks; pickled, sent to the executors and called there once per task."""

    def run(self, tools: TaskTools, place: TaskPlace, rows: Any) -> TaskReport:
        """Write the rows of one task and report."""
        ...


@dataclass(frozen=True)
class StageJob:
    """Stage the rows under a tag of this very run of the task, so that rows of another run are never taken for them."""

    batch: BatchNumber

    def run(self, tools: TaskTools, place: TaskPlace, rows: Any) -> TaskReport:
        """Stage the rows."""
        reached("task.started", self.batch)
        tag = secrets.randbits(63)
        count = tools.target.stage(self.batch, tag, rows)
        reached("task.committed", self.batch)
        return TaskReport(tag, count)


@dataclass(frozen=True)
class PartitionJob:
    """Land one partition of the source in one transaction. `ranges` has the range of each task by its index.

    `log` is what the driver knew of the log when it looked last, just before the tasks were started.
    """

    batch: BatchNumber
    permit: Permit
    ranges: tuple[TaskRange, ...]
    finished: frozenset[Partition]
    origin_ids: Mapping[str, str]
    dead_letters: tuple[DeadLetter, ...] = ()
    log: KnownLog = field(default_factory=KnownLog)
    left_out: LeftOut = NOTHING_LEFT_OUT

    def run(self, tools: TaskTools, place: TaskPlace, rows: Any) -> TaskReport:
        """Land the partition; rows of one that landed before are not read."""
        reached("task.started", self.batch)
        mine = self.ranges[place.index]
        if mine.partition in self.finished:
            return TaskReport(0, 0, known=False)
        letters = [letter for letter in self.dead_letters if letter.partition == mine.partition]

        def write(transaction: LedgerTransaction) -> int:
            count = tools.target.write(transaction, rows)
            self._require_same_log(tools.source, transaction, mine)
            if letters:
                tools.target.write_dead_letters(transaction, self.batch, letters, self.origin_ids)
            return count

        landed = land_partition(
            tools.ledger,
            self.permit,
            self.batch,
            mine.partition,
            mine.offsets,
            self.origin_ids,
            write,
            self.log.read.get(mine.partition),
            self.left_out.of(mine.partition),
        )
        return TaskReport(0, 0, known=False) if isinstance(landed, AlreadyLanded) else TaskReport(0, landed)

    def _require_same_log(self, source: SourceCheck, transaction: LedgerTransaction, mine: TaskRange) -> None:
        """Require that the log still is the one that was read; a fingerprint that it shows only now lands with the position.

        Raises:
            RecordsLost, RecordsReplaced, OriginReplaced, LeaderChanged: nothing may be landed.
        """
        ranges = Ranges({mine.partition: mine.offsets})
        read = read_again_where_nothing_else_tells(source, ranges, self.origin_ids, self.log)
        require_all_was_there(source, self.batch, ranges, self.origin_ids, replace(self.log, read=read))
        if mine.partition in read and mine.partition not in self.log.read:
            stays = OffsetRange(mine.offsets.until_offset, mine.offsets.until_offset)
            transaction.advance_positions(self.permit.stream_id, Ranges({mine.partition: stays}), {}, read)


@dataclass(frozen=True)
class WriteJob:
    """Write rows under the fence alone, with a witness; with `once`, a second run of the task refuses."""

    batch: BatchNumber
    permit: Permit
    once: bool

    def run(self, tools: TaskTools, place: TaskPlace, rows: Any) -> TaskReport:
        """Write the rows."""
        reached("task.started", self.batch)
        if self.once and place.attempt:
            raise SecondTry(
                f"Task {place.index} of batch {self.batch} was started again (try {place.attempt}); with AtMostOnce its "
                "rows are given up rather than written twice."
            )
        tag = secrets.randbits(63)
        landed_batch = self.batch if self.once else BatchNumber(self.batch - 1)

        def write(transaction: LedgerTransaction) -> int:
            return tools.target.write(transaction, rows)

        count = write_under_fence(tools.ledger, self.permit, self.batch, landed_batch, tag, write)
        return TaskReport(tag, count)


@dataclass(frozen=True)
class PrepareJob:
    """Prepare the rows of each task in a sink of two phases; `ranges` are what each task reads, by its index.

    Every run of a task has a part of its own: what a failed or a second run prepared is never taken for what a successful
    one did. `again`: rows that the sink has aborted are made again, by a task whose index no task of the batch itself has.
    """

    batch: BatchNumber
    ranges: tuple[Ranges, ...]
    again: bool = False
    left_out: tuple[Span, ...] = ()

    def run(self, tools: TaskTools, place: TaskPlace, rows: Any) -> TaskReport:
        """Prepare the rows of one task."""
        reached("task.started", self.batch)
        tag = secrets.randbits(63)
        part = f"{AGAIN if self.again else place.index}-{tag:x}"
        ranges = self.ranges[place.index]
        prepared = tools.two_phase.prepare(self.batch, part, rows, spans_without(ranges, self.left_out))
        reached("task.prepared", self.batch)
        if prepared is None:
            return TaskReport(tag, 0)
        return TaskReport(tag, prepared.rows, committable=committable_of(prepared, ranges))


def committable_of(prepared: PreparedLoad, ranges: Ranges) -> Committable:
    """Return what the ledger records of a load of these ranges."""
    return Committable(
        prepared.label,
        prepared.transaction_id,
        prepared.rows,
        ranges.non_empty(),
        shares_label=prepared.shares_label,
        staged=prepared.staged,
    )
