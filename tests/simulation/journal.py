"""What went wrong in a run, when and with whom: what the oracle explains endings, attempts and verdicts by.

Written by the world that strikes and by nobody else, so that it is no claim of the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import Decision
from tests.simulation.scheduler import Process


@dataclass(eq=False)
class Fault:
    """A hazard that has struck: from which step until which (None while it lasts), and whom (None: everybody)."""

    kind: str
    began: int
    ended: int | None
    whom: Process | None

    def overlaps(self, since: int, until: int) -> bool:
        """Whether it had effect in these steps."""
        return self.began <= until and (self.ended is None or self.ended >= since)


@dataclass(eq=False)
class Attempt:
    """An attempt that a status has recorded, and what came of it."""

    number: int
    operator: Process | None
    began: int
    looked: int
    """When the pass began that recorded it: what struck later may have been missed by its look."""
    commits: tuple[str, ...]
    """The files of Spark's commit logs when it was recorded, before its look: a driver that lives may add to them any time."""
    decided: int | None = None
    seen: Observation | None = None
    decision: Decision | None = None
    highest_commit: int = -1
    """The highest batch of `commits`, in the generation that its look found published and in later ones."""
    writer_lived: bool = False
    """Whether the driver of an earlier attempt lived when the pass began."""


@dataclass(eq=False)
class FailedPass:
    """An error that ended an operator's pass."""

    operator: Process
    problem: BaseException
    since: int
    until: int


@dataclass
class Journal:
    """Everything that has struck a run, and what the operators did in it."""

    now: Callable[[], int]
    faults: list[Fault] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    failed_passes: list[FailedPass] = field(default_factory=list)

    def strike(self, kind: str, whom: Process | None = None, *, lasts: bool = False) -> Fault:
        """Note a hazard that strikes now."""
        fault = Fault(kind, self.now(), None if lasts else self.now(), whom)
        self.faults.append(fault)
        return fault

    def end(self, kind: str, whom: Process | None = None) -> None:
        """Note that what lasted is over."""
        for fault in self.faults:
            if fault.kind == kind and fault.ended is None and fault.whom is whom:
                fault.ended = self.now()

    def has_struck(
        self, kinds: Iterable[str], since: int = 0, until: int | None = None, whom: Process | None = None
    ) -> bool:
        """Whether one of these hazards had effect in these steps, on everybody or on this very process."""
        last = self.now() if until is None else until
        wanted = frozenset(kinds)
        return any(
            fault.kind in wanted and fault.overlaps(since, last) and (fault.whom in (None, whom) or whom is None)
            for fault in self.faults
        )

    def attempt(self, number: int) -> Attempt | None:
        """Return the latest record of an attempt."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.number == number), None)
