"""A transaction whose COMMIT nobody answered is run again, at once or once it was looked for, and never without an end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactlyonce.errors import CommitOutcomeUnknown, LostRace
from exactlyonce.ledger.races import UNKNOWN_TRIES, rerun_after_lost_race, rerun_while_unknown, settle


class Transaction:
    """A transaction whose first COMMITs are not answered."""

    def __init__(self, unknown: int) -> None:
        self.unknown, self.runs = unknown, 0

    def __call__(self) -> str:
        self.runs += 1
        if self.runs <= self.unknown:
            raise CommitOutcomeUnknown("the connection was lost during COMMIT")
        return "answered"


@pytest.mark.parametrize("unknown", range(UNKNOWN_TRIES))
def test_what_is_safe_to_repeat_is_run_again_until_it_is_answered(unknown: int) -> None:
    transaction = Transaction(unknown)
    assert rerun_while_unknown(transaction.__call__)() == "answered"
    assert transaction.runs == unknown + 1


def test_what_is_never_answered_is_told_as_unknown() -> None:
    transaction = Transaction(100)
    with pytest.raises(CommitOutcomeUnknown):
        rerun_while_unknown(transaction.__call__)()
    assert transaction.runs == UNKNOWN_TRIES


def test_races_that_are_lost_do_not_count_as_outcomes_that_are_unknown() -> None:
    runs: Iterator[int] = iter(range(100))

    @rerun_while_unknown
    @rerun_after_lost_race
    def transaction() -> int:
        run = next(runs)
        if run % 4:
            raise LostRace("another one was first")
        if run < 4 * (UNKNOWN_TRIES - 1):
            raise CommitOutcomeUnknown("the connection was lost during COMMIT")
        return run

    assert transaction() == 4 * (UNKNOWN_TRIES - 1)


@pytest.mark.parametrize("unknown", range(UNKNOWN_TRIES))
def test_what_is_looked_for_and_is_not_there_is_run_again(unknown: int) -> None:
    transaction = Transaction(unknown)
    assert settle(transaction, lambda: False) == "answered"
    assert transaction.runs == unknown + 1


@pytest.mark.parametrize("unknown", range(1, UNKNOWN_TRIES + 1))
def test_what_is_there_although_nobody_answered_is_not_run_again(unknown: int) -> None:
    transaction = Transaction(100)
    assert settle(transaction, lambda: transaction.runs == unknown) is None
    assert transaction.runs == unknown
