"""The ranges of a backfill that only its own process can look up; they are recorded before any is read. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exactlyonce.launch.backfill import BackfillOrder, Span
from exactlyonce.launch.chosen_ranges import moments_of, named_in
from exactlyonce.ledger.planned_backfills import known_backfill
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions
from exactlyonce.schema.moment import Moments

Found = Mapping[Partition, tuple[OffsetRange, ...]]


@dataclass(frozen=True)
class RangesOfSession:
    """`ChoosesRanges.ranges_between` and `ranges_given` of a session."""

    between: Callable[[Positions, Moments], Found]
    given: Callable[[Positions, Sequence[NamedSpan]], Found]


def chosen_spans(ledger: Ledger, stream_id: str, order: BackfillOrder, ranges: RangesOfSession) -> Mapping[Span, str]:
    """Return the ranges of a backfill that is not recorded yet; of one that is, nothing is looked up.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
        BackfillDiffers: if the one of that name is of another definition.
        Refused, OriginMissing, SourceUnreachable, StoreUnreachable: as the source says.
    """
    moments, named = moments_of(order), named_in(order)
    is_chosen_here = moments is not None or bool(named)
    if not is_chosen_here or known_backfill(ledger, stream_id, order.name, order.definition) is not None:
        return {}
    view = ledger.view(stream_id)
    if view is None:
        raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
    stands = view.landed.positions
    found = ranges.given(stands, named) if moments is None else ranges.between(stands, moments)
    ids = view.landed.origin_ids
    return {
        (partition, span): ids.get(partition.origin, "") for partition, spans in sorted(found.items()) for span in spans
    }
