"""What may be long, as it may stand in a message of ours: a server's text in one printable line, a few of many names.

Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_CHARACTERS = 200
"""Of what a server says; longer ones are cut."""


def printable(said: str) -> str:
    """Return a text on one line, however long; what is not printable, such as what moves a terminal's cursor, is a space."""
    return " ".join("".join(character if character.isprintable() else " " for character in said).split())


def one_line(said: object, most: int = MOST_CHARACTERS) -> str:
    """Return what a server said as at most `most` printable characters on one line, without a full stop at its end.

    What is not printable, such as what moves a terminal's cursor or turns the direction of text, becomes a space.
    """
    start = said[: 10 * most] if isinstance(said, str) else repr(said)[: 10 * most]
    text = printable(start)
    return (text if len(text) <= most else f"{text[: most - 1].rstrip()}…").rstrip(".")


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return a list of names, of which at most the first `most` are named and the others counted."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
