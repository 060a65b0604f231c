"""Whether a driver makes progress, told by touching a file whenever it does.

Nothing here lives in a thread of its own that would beat whatever happens. The main thread asks the JVM for signs between its
other looks: a frozen JVM does not answer, and a frozen Python does not ask. A batch makes progress while it passes its named
points, tasks end, or rows pass an operator; a query without a batch does while it rests, or ends one trigger after another.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactlyonce.launch.driver_document import PROGRESS_VARIABLE

log = logging.getLogger("exactlyonce.driver")


@dataclass(frozen=True, slots=True)
class Signs:
    """What can be seen of a query at one moment.

    `triggers` is when the latest trigger began that Spark has reported, with data or without. `executors` is None where the
    driver's own process runs the tasks. `counts` is Spark's text of the rows that each operator has handled so far.
    """

    points: int
    batch: int | None
    in_trigger: bool
    triggers: str | None
    executors: int | None
    tasks: int
    counts: str


def has_progressed(before: Signs | None, now: Signs) -> bool:
    """Return whether there was progress between two looks. Performs no I/O.

    A batch that waits for an executor counts: the operator tells that by another name (docs/adr/0021), and a successor would
    wait as long.
    """
    if before is None or (now.batch is None and not now.in_trigger):
        return True
    if now.batch is not None and now.executors == 0:
        return True
    return now != before


@dataclass
class ProgressFile:
    """A file that is touched when there is progress; without a path nobody asks for it."""

    path: Path | None
    points: int = 0
    _before: Signs | None = None
    _is_blind: bool = False

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ProgressFile:
        """Return the file that the launcher asks for, if it does."""
        named = environment.get(PROGRESS_VARIABLE)
        return cls(None if named is None else Path(named))

    def passed(self, _point: str) -> None:
        """Count a named point that the driver has passed; before the query runs, that alone is progress."""
        self.points += 1
        if self._before is None:
            self.touch()

    def seen(self, now: Signs) -> None:
        """Touch the file if there was progress since the last look."""
        if has_progressed(self._before, now):
            self.touch()
        self._before = now

    def blind(self, problem: Exception) -> None:
        """The JVM answers and shows no signs: a driver that cannot be judged is not killed for that."""
        if not self._is_blind:
            log.warning("Spark does not show its progress, so a batch that hangs will not be noticed: %s", problem)
        self._is_blind = True
        self.touch()

    def touch(self) -> None:
        """Say that there is progress now. A full disk keeps no driver from landing."""
        if self.path is not None:
            try:
                self.path.touch()
            except OSError:
                return
