"""A driver that seems silent is looked at twice before it is given up: the clock jumps when a laptop wakes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from exactlyonce.positions.ranges import Epoch


@dataclass(frozen=True, slots=True)
class Silence:
    """The last sign of a driver, what is told of its silence since, one word for that, and how long it is doubted."""

    sign_at: float
    told: str
    reason: str | None
    doubt_seconds: float


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A driver that seemed silent: its last sign then, and when that was by a clock that does not jump."""

    sign_at: float
    seconds: float


@dataclass
class Doubts:
    """The drivers that seemed silent at an earlier look."""

    _of: dict[Epoch, _Doubt] = field(default_factory=dict)

    def are_over(self, attempt: Epoch, silence: Silence) -> bool:
        """Whether a driver that seems silent has seemed so for a while, without one more sign."""
        now = time.monotonic()
        doubt = self._of.get(attempt)
        if doubt is None or doubt.sign_at != silence.sign_at:
            self._of[attempt] = doubt = _Doubt(silence.sign_at, now)
        return now - doubt.seconds >= silence.doubt_seconds


def touched_at(file: Path) -> float | None:
    """When a file was touched last; None before the first time."""
    return file.stat().st_mtime if file.exists() else None
