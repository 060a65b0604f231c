"""What keeps a range that a person gives up from landing all the same, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger import giving_up, publish
from exactlyonce.ledger.giving_up import GivenUp, given_up
from exactlyonce.ledger.read_again import read_again
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from tests.simulation.mutations.unlocked import unlocked


@contextmanager
def a_range_that_is_given_up_keeps_its_claim() -> Iterator[None]:
    """A range is given up, and the replay that had taken it keeps it, and lands it."""

    def keeping(row: FailureRow, told: GivenUp) -> FailureRow:
        if row.status is not FailureStatus.REPLAYING:
            return given_up(row, told)
        return replace(given_up(row, told), status=row.status, replay=row.replay)

    with mock.patch.object(giving_up, "given_up", keeping):
        yield


@contextmanager
def a_range_is_given_up_without_a_lock() -> Iterator[None]:
    """A person gives up a range without the stream's lock, while a replay lands it."""
    with unlocked(giving_up, "_changed"):
        yield


@contextmanager
def what_was_given_up_stays_so_when_it_is_read_again() -> Iterator[None]:
    """The positions are set back to before what was given up, and it stays there, to be taken back and landed twice."""

    def of_the_others(held: Any, *others: Any) -> Any:
        return read_again([row for row in held if row.status is not FailureStatus.GIVEN_UP], *others)

    with mock.patch.object(publish, "read_again", of_the_others):
        yield
