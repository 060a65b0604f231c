"""Transactions that are run again because another one was first.

A ledger with locks makes transactions wait for each other. One without finds out at its commit that it was not alone: then
nothing has taken effect, and the rules have to be run again over what is there now.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from exactlyonce.errors import LostRace

RACE_TRIES = 20
"""Each time somebody else has made progress; whoever loses more often than this is told so."""

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
