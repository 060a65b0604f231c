"""The port to a micro-batch in Spark's hands. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.target import DeadLetter, TaskRange


@dataclass(frozen=True, slots=True)
class ExecutedPlan:
    """What Spark's executed plan says: all ranges, the range each task reads, and whether the query keeps state.

    `task_ranges` is None where a task is not exactly one range of the source.
    """

    ranges: Ranges
    task_ranges: tuple[TaskRange, ...] | None
    stateful: bool


class SparkBatch(Protocol):
    """A micro-batch in Spark's hands."""

    @property
    def number(self) -> BatchNumber:
        """Its number."""
        ...

    def plan(self) -> ExecutedPlan:
        """Read the executed plan, never the offset log: another process may have written that."""
        ...

    def collect(self) -> Any | None:
        """Run the query and return its rows to the driver, or None when they turn out to be too large for that."""
        ...

    def pieces(self) -> Iterator[Any]:
        """Run the query and return its rows to the driver piece by piece, however many they are."""
        ...

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        """Run the query and give each task's rows to `job`; return what each successful task reports."""
        ...

    def unread(self) -> Any:
        """Return the rows before the query has run, for a sink whose writer runs it."""
        ...

    def run_without_rows(self) -> None:
        """Run the query for the state it keeps, and write nothing."""
        ...

    def records_read(self) -> int | None:
        """How many records the scan has read, after the query has run."""
        ...

    def malformed(self, ranges: Ranges, *, before_run: bool) -> Sequence[DeadLetter]:
        """Return the malformed records of the ranges, as the run has observed them; `before_run`: they are read now."""
        ...
