"""Text that a server of a tenant sent, as it may stand in a message of ours: one line, printable, short. Performs no I/O."""

from __future__ import annotations

MOST_CHARACTERS = 200
"""Of what a server says; longer ones are cut."""


def one_line(said: object, most: int = MOST_CHARACTERS) -> str:
    """Return what a server said as at most `most` printable characters on one line, without a full stop at its end.

    What is not printable, such as what moves a terminal's cursor or turns the direction of text, becomes a space.
    """
    start = said[: 10 * most] if isinstance(said, str) else repr(said)[: 10 * most]
    text = " ".join("".join(character if character.isprintable() else " " for character in start).split())
    return (text if len(text) <= most else f"{text[: most - 1].rstrip()}…").rstrip(".")
