"""Records that a query leaves out: they are read, so that they are counted, and not decoded, since that may be what fails."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from exactlyonce.positions.ranges import OffsetRange, Partition


@dataclass(frozen=True)
class LeftOut:
    """Ranges of partitions, as an option of a source's reader has them; there may be several of one."""

    spans: tuple[tuple[Partition, OffsetRange], ...] = ()

    @classmethod
    def of(cls, text: str | None) -> LeftOut:
        """Return what an option says; nothing is left out where there is none."""
        found = [] if text is None else json.loads(text)
        return cls(
            tuple((Partition(origin, key), OffsetRange(int(begin), int(end))) for origin, key, begin, end in found)
        )

    @classmethod
    def options(cls, spans: Collection[tuple[Partition, OffsetRange]]) -> dict[str, str]:
        """Return the option `left_out` that says so; none where nothing is left out."""
        told = [[it.origin, it.key, str(span.from_offset), str(span.until_offset)] for it, span in spans]
        return {"left_out": json.dumps(told)} if told else {}

    def of_positions(self, partition: Partition, positions: Iterable[int]) -> npt.NDArray[np.bool_] | None:
        """Return which of some positions of a partition are left out; None if nothing of the partition is.

        The positions are looked at only if something of the partition is left out.
        """
        spans = self._by_partition.get(partition)
        if spans is None:
            return None
        return np.array([any(begin <= it < end for begin, end in spans) for it in positions], np.bool_)

    @cached_property
    def _by_partition(self) -> dict[Partition, list[tuple[int, int]]]:
        found: dict[Partition, list[tuple[int, int]]] = {}
        for partition, span in self.spans:
            found.setdefault(partition, []).append((span.from_offset, span.until_offset))
        return found
