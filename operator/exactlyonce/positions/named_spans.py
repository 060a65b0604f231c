"""Ranges that a person gives where positions are texts, as `exactlyonce offsets` shows them. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class NamedSpan:
    """A range of one partition of an origin, such as a shard of a data stream; half-open, and as it was given."""

    origin: str
    partition: str
    begin: str
    end: str

    def __str__(self) -> str:
        return f"{self.origin}-{self.partition} [{self.begin}, {self.end})"
