"""What a replay has done, and how fast it may go. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class ReplayOutcome:
    """What a replay has done, in records; and a sentence for each range, or part of one, that it has not landed.

    `asked` is how many dead letters it has found, where it was to find them by itself. `uncounted` is how many parts failed or
    are lost of which nobody can tell how many records they have; these are not in the other numbers.
    """

    landed: int = 0
    rows: int = 0
    lost: int = 0
    failed: int = 0
    told: list[str] = field(default_factory=list)
    asked: int = 0
    uncounted: int = 0


@dataclass(frozen=True)
class ReplayPace:
    """How many records one transaction lands at most, what is called with their number after each, and when to end early."""

    most_records: int
    landed: Callable[[int], None] = lambda _: None
    is_to_end: Callable[[], bool] = lambda: False
