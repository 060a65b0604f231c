"""What a status tells of the place where landed positions are shown, and when that is tried again. Performs no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from exactlyonce.api.status import LandedShown
from exactlyonce.bounded_text import some_of
from exactlyonce.source.port import NotShown, NotShownBecause

MOST_TRIES = 12
"""How often a stream at rest tries again to show where it has landed: for an hour and a quarter."""

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=15), timedelta(minutes=10)


def shown_of(problem: NotShown | None, place: str) -> LandedShown:
    """Return what the status tells after a look at a place; `problem` is None where it shows what has landed."""
    if problem is None:
        return LandedShown(place=place)
    return LandedShown(place=place, reason=problem.because, message=problem.words)


def shown_at(place: str | None, before: LandedShown | None) -> LandedShown | None:
    """Return what the status tells of this place; None where it was another one that was looked at."""
    return before if before is not None and place is not None and before.place == place else None


def is_news(problem: NotShown | None, before: LandedShown | None) -> bool:
    """Whether somebody should be told of a problem: of another one, and not of what comes of itself."""
    if problem is None or problem.because is NotShownBecause.PENDING:
        return False
    if before is None or before.reason != problem.because:
        return True
    return problem.because is not NotShownBecause.FAILED and before.message != problem.words


def is_owed(shown: LandedShown | None) -> bool:
    """Whether a stream at rest still has to show where it has landed, and nobody has to act for that."""
    if shown is None or shown.reason is None or shown.tries >= MOST_TRIES:
        return False
    return shown.reason in {because.value for because in NotShownBecause if because.is_tried_again}


def owed(place: str, why: Exception) -> LandedShown:
    """Return what the status tells where the last look could not be made."""
    return shown_of(NotShown(NotShownBecause.PENDING, f"The latest landed position is not shown yet: {why}"), place)


def not_the_same(origins: Sequence[str]) -> str:
    """Return what is told where the source is not the one that the stream has read."""
    return (
        f"The source is not the one that the stream has read ({some_of(origins)}), so where it has landed is not shown. "
        "Correct spec.source, or let the stream run: it checks its source and says what has changed."
    )


def tried(shown: LandedShown | None, tries: int, now: datetime) -> LandedShown | None:
    """Return what the status tells of a stream at rest that has tried so often, and when it tries again."""
    if shown is None:
        return None
    counted = shown.model_copy(update={"tries": tries, "retry_at": None})
    if not is_owed(counted):
        return counted
    pause = min(_FIRST_PAUSE * 2 ** min(tries, 10), _LONGEST_PAUSE)
    return counted.model_copy(update={"retry_at": now + pause})
