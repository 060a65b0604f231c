"""Where in the source the rows of something come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PositionSpan:
    """The first and the last position of one source partition, both included, whose rows something holds, such as a file."""

    origin: str
    partition: int | str
    first: int
    last: int
