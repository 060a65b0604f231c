"""A driver without a query: it finishes what earlier drivers have left, and ends. No pyspark here.

Spark is started only for rows that have to be made again, because the sink has aborted them, or whose statement names the
columns of the query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.two_phase import read_decided
from exactlyonce.positions.ranges import Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark import tasks
from exactlyonce_spark.manifest_landing import recover_manifests
from exactlyonce_spark.target import ManifestTarget, TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import RowsAgain, RunAgain, finish_decided, require_nothing_decided


@dataclass(frozen=True)
class WithSpark:
    """A sink of two phases as a driver with Spark has it: its target knows the query's columns."""

    target: TwoPhaseTarget
    run_again: RunAgain


@dataclass
class SparkWhenNeeded:
    """Starts Spark when it is asked for the first time."""

    start: Callable[[], WithSpark]

    @cached_property
    def started(self) -> WithSpark:
        """Spark, and the sink as a driver with a query has it."""
        return self.start()

    def run_again(self, ranges: Ranges, job: tasks.PrepareJob) -> list[tasks.TaskReport]:
        """Run a job as one task over the rows of exactly these ranges, as the query makes them."""
        return self.started.run_again(ranges, job)


@dataclass(frozen=True)
class Unattended:
    """What a driver without a query works with.

    `target` is the sink as it is without the columns of a query: it takes no rows. None where rows are in the sink as soon as
    their batch has landed.
    """

    ledger: Ledger
    permit: Permit
    source: SourceCheck
    target: ManifestTarget | TwoPhaseTarget | None
    spark: SparkWhenNeeded


def finish_only(given: Unattended) -> LastMessage:
    """Do all that is left to do, and return the last message, which says what that was.

    Raises:
        Fenced: if this process may not land any more.
        ExactlyOnceError: what keeps it from being finished, by name.
    """
    return LastMessage(Ending.FINISHED, _finished(given) or "Nothing was left to finish.")


def _finished(given: Unattended) -> str:
    """Commit what is decided, or show what has landed, and return a sentence that says so; nothing if nothing was left."""
    match given.target:
        case None:
            require_nothing_decided(given.ledger, given.permit)
            return ""
        case ManifestTarget():
            landed = recover_manifests(given.ledger, given.permit, given.target)
            return "" if landed is None else f"Readers are shown all that has landed, up to batch {landed}."
        case TwoPhaseTarget():
            decided = read_decided(given.ledger, given.permit)
            target = given.spark.started.target if _has_files(decided) else given.target
            finish_decided(given.ledger, given.permit, target, RowsAgain(given.source, given.spark.run_again))
            return "" if decided is None else f"Batch {decided.batch}, which was decided, has landed."
        case _:
            assert_never(given.target)


def _has_files(decided: DecidedBatch | None) -> bool:
    """Whether rows wait in a file: the statement that loads it names its columns, which are those of the query."""
    return decided is not None and any(one.staged is not None for one in decided.committables)
