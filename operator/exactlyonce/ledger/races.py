"""Transactions that are run again: because another one was first, or because nobody answered whether they took effect.

A ledger with locks makes transactions wait for each other. One without finds out at its commit that it was not alone: then
nothing has taken effect, and the rules have to be run again over what is there now. Where the answer to a COMMIT was lost, the
transaction may have taken effect: it is run again at once only if that is safe, and otherwise it is looked for first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from exactlyonce.errors import CommitOutcomeUnknown, LostRace

RACE_TRIES = 20
"""Each time somebody else has made progress; whoever loses more often than this is told so."""

UNKNOWN_TRIES = 3
"""Of a transaction whose outcome is unknown each time; more than these mean that the database is not well."""

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


def rerun_after_lost_race(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Make a function whose only effect is one transaction of a ledger run again each time that it loses a race.

    Raises:
        LostRace: if it lost RACE_TRIES times.
    """

    @wraps(function)
    def until_first(*values: Parameters.args, **named: Parameters.kwargs) -> Answer:
        for _ in range(RACE_TRIES - 1):
            try:
                return function(*values, **named)
            except LostRace:
                continue
        return function(*values, **named)

    return until_first


def rerun_while_unknown(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Make a function whose only effect is one transaction, safe to repeat, run again while the outcome of that is unknown.

    Raises:
        CommitOutcomeUnknown: if it was unknown UNKNOWN_TRIES times.
    """

    @wraps(function)
    def until_known(*values: Parameters.args, **named: Parameters.kwargs) -> Answer:
        for _ in range(UNKNOWN_TRIES - 1):
            try:
                return function(*values, **named)
            except CommitOutcomeUnknown:
                continue
        return function(*values, **named)

    return until_known


def settle(once: Callable[[], Answer], has_taken_effect: Callable[[], bool]) -> Answer | None:
    """Run a transaction; where its outcome is unknown, look whether it took effect, and run it again if it did not.

    `has_taken_effect` looks under the stream's lock, which waits for the transaction whose outcome is unknown to end. Return
    what the transaction answered; None where it had to be looked for.

    Raises:
        CommitOutcomeUnknown: if it was unknown UNKNOWN_TRIES times, and it was not there after the last one either.
    """
    for remaining in reversed(range(UNKNOWN_TRIES)):
        try:
            return once()
        except CommitOutcomeUnknown:
            if has_taken_effect():
                return None
            if not remaining:
                raise
    raise AssertionError("the last try returns or raises")
