"""What a replay is given and what it tells: its reader, its pace, when too much fails, and what has landed. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.target import DeadLetter

MOST_FAILURES = 10
"""After so many records in a row that fail and none that lands, each range is left at its first record that fails.

A replay of dead letters ends after so many."""

MOST_FAILURES_IN_ALL = 200
"""After so many failing records each range is left in the same way: each costs some fifteen tries, and a replay ends."""


class RecordsFailed(ExactlyOnceError):
    """The rows of some records cannot be made or handed over; fewer of them may do."""


class RecordReader(Protocol):
    """Reads exactly given ranges, and makes their rows as the stream does, or as the corrected transform does."""

    def rows(self, ranges: Ranges) -> Any:
        """Return the rows, as the target takes them.

        Raises:
            RecordsFailed: if one of the records fails, or they are too many at once.
        """
        ...

    def malformed(self, ranges: Ranges) -> Sequence[DeadLetter]:
        """Return the malformed records of the ranges, where those are dead letters."""
        ...


@dataclass
class ReplayOutcome:
    """What a replay has done, in records; and a sentence for each range, or part of one, that it has not landed.

    `asked` is how many dead letters it has found, where it was to find them by itself.
    """

    landed: int = 0
    rows: int = 0
    lost: int = 0
    failed: int = 0
    told: list[str] = field(default_factory=list)
    asked: int = 0


@dataclass(frozen=True)
class ReplayPace:
    """How many records one transaction lands at most, what is called with their number after each, and when to end early."""

    most_records: int
    landed: Callable[[int], None] = lambda _: None
    is_to_end: Callable[[], bool] = lambda: False


@contextmanager
def failing_records() -> Iterator[None]:
    """Tell what is wrong with the records from what is wrong with a store: only the former fails a chunk."""
    try:
        yield
    except Exception as problem:
        ending, words = ending_of(problem, in_batch=True)
        if ending is not Ending.BATCH_FAILED:
            raise
        raise RecordsFailed(words) from problem
