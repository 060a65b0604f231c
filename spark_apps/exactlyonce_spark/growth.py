"""A limit that was made smaller because a batch was too large, and when it is over: docs/adr/0016. No pyspark here."""

from __future__ import annotations

from exactlyonce.launch.port import ShrunkLimit
from exactlyonce.positions.ranges import Positions


class Growth:
    """How many offsets a batch may have for now; `due` once what was too large has landed."""

    def __init__(self, limit: ShrunkLimit | None) -> None:
        self._limit = limit
        self._stands = Positions()
        self.due = False

    @property
    def records(self) -> int | None:
        """The smaller limit; None where the resource's own holds."""
        return None if self._limit is None else self._limit.records

    def landed(self, stands: Positions) -> None:
        """Note where the stream stands after a batch, which leaves out partitions that have been read to their end before."""
        if self._limit is not None:
            self._stands = Positions({**self._stands, **stands})
            self.due = self._stands.have_reached(Positions.from_json(self._limit.until))

    def grow(self) -> None:
        """From the next query on the resource's own limit holds."""
        self._limit, self.due = None, False
