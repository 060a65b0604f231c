"""What reads the records of a replay and makes their rows, and what says that it failed. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.failures import ending_of
from exactlyonce_spark.replay_load_target import ReplayNotInLedger
from exactlyonce_spark.target import DeadLetter


class RecordsFailed(ExactlyOnceError):
    """The rows of some records cannot be made or handed over; fewer of them may do."""


class PartMoved(ExactlyOnceError):
    """A task refuses to read a part that its divider has just looked at: something of it expired, went or was changed since."""


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


@contextmanager
def looked_at_before(is_divided: bool) -> Iterator[None]:
    """Tell what is refused of a part that a divider has looked at; that divider says what became of it, in the same words.

    What tasks refuse is no failure of records (`failing_records`), and would end the replay as something that a person mends.
    """
    try:
        yield
    except ReplayNotInLedger:
        raise  # that is no part's
    except Exception as problem:
        if is_divided and ending_of(problem, in_batch=True)[0] is Ending.REFUSED:
            raise PartMoved(str(problem)) from problem
        raise
