"""What reads the records of a replay and makes their rows, and what says that it failed. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.target import DeadLetter


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
