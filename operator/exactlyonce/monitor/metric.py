"""What a series is: its name, its kind, its labels and what it says. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

OF_STREAM = ("namespace", "stream")
"""The labels of what is told of one stream."""


class Kind(StrEnum):
    """What Prometheus may do with a series."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Series:
    """One metric: its name, its labels and what it says."""

    name: str
    kind: Kind
    says: str
    labels: tuple[str, ...] = ()
