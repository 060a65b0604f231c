"""What a person has asked for with resets of the positions, and what came of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from exactlyonce.positions.ranges import BatchNumber, Positions
from exactlyonce.reconcile.asked_reset import AskedReset

RESET = "reset"
"""The hazard of a person who resets positions."""


@dataclass
class PersonsResets:
    """What a person has asked for and what came of it.

    `skipped` and `kept` are the records that the stream has left out, `again` those that it reads again, also where it had
    begun behind them. `taken_up` are those that somebody has given to a replay. `look` is where the stream stood when the
    person looked; it may be some time ago when they ask. `pending` is what may still be done: a pass acts on the resource as
    it read it, whatever was asked for since.
    """

    look: tuple[str, BatchNumber, Positions] | None = None
    pending: list[AskedReset] = field(default_factory=list)
    times: int = 0
    applied: int = 0
    batch: BatchNumber | None = None
    stood: Positions = field(default_factory=Positions)
    again: set[Hashable] = field(default_factory=set)
    skipped: set[Hashable] = field(default_factory=set)
    kept: set[Hashable] = field(default_factory=set)
    taken_up: set[Hashable] = field(default_factory=set)
