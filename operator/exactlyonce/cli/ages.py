"""Moments as a person reads them. Performs no I/O."""

from __future__ import annotations

from datetime import datetime

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
_TWO_UNITS_BELOW = 10


def age(moment: str | None, now: datetime) -> str:
    """Return how long ago a moment is, as kubectl does: 45s, 3m20s, 5h, 12d; a dash where there is none."""
    if moment is None:
        return "-"
    seconds = max(int((now - _parsed(moment)).total_seconds()), 0)
    for place, (letter, size) in enumerate(_UNITS):
        count, rest = divmod(seconds, size)
        if not count:
            continue
        below, smaller = _UNITS[place + 1] if place + 1 < len(_UNITS) else ("s", 1)
        more = f"{rest // smaller}{below}" if count < _TWO_UNITS_BELOW and rest // smaller else ""
        return f"{count}{letter}{more}"
    return f"{seconds}s"


def clock_time(moment: str) -> str:
    """Return a moment in this machine's time zone, to the second."""
    return _parsed(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _parsed(moment: str) -> datetime:
    return datetime.fromisoformat(moment)
