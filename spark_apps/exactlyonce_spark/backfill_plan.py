"""The ranges of a backfill as its process records them before it reads any. No pyspark here.

They are given, or lie between two moments in a source of which nobody else can tell that: then the process looks them up. What
is recorded is never looked up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.launch.backfill import BackfillOrder, Span
from exactlyonce.launch.chosen_ranges import moments_of
from exactlyonce.ledger.planned_backfills import known_backfill
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce.schema.moment import Moments
from exactlyonce_spark.connectors.ports import ChoosesRanges


@dataclass(frozen=True)
class Chooser:
    """Looks up what lies between two moments, of what a stream has landed."""

    ledger: Ledger
    stream_id: str
    reader: ChoosesRanges
    session: Any

    def spans(self, order: BackfillOrder) -> Mapping[Span, str]:
        """Return the ranges of a backfill that is not recorded yet; of one that is, nothing is looked up.

        Raises:
            NothingToReplayInto: if the ledger has no row of the stream.
            BackfillDiffers: if the one of that name is of another definition.
            Refused, OriginMissing, SourceUnreachable, StoreUnreachable: as the source says.
        """
        moments = moments_of(order)
        if moments is None or known_backfill(self.ledger, self.stream_id, order.name, order.definition) is not None:
            return {}
        view = self.ledger.view(self.stream_id)
        if view is None:
            raise NothingToReplayInto(f"The ledger has no row of {self.stream_id}; start the stream first.")
        return {
            (partition, span): ""
            for partition, stands in sorted(view.landed.positions.items())
            for span in self._between(partition, stands, moments)
        }

    def _between(self, partition: Partition, stands: int, moments: Moments) -> tuple[OffsetRange, ...]:
        return self.reader.ranges_between(self.session, partition, stands, moments)
