"""Why a record is malformed."""

from __future__ import annotations

_MOST_SHOWN = 60


class Malformed(Exception):
    """A record, or a value in it, is not what its format and its column take; the message is the reason."""


def in_column(where: str, problem: Malformed) -> Malformed:
    """Return the problem of a value with the column's name in front."""
    return Malformed(f"column {where}: {problem}")


def shown(text: str) -> str:
    """Return a value as a reason shows it: in one line, without control characters, and not all of a long one."""
    cut = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in cut) or '""'
