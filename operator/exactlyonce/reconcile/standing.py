"""What a new generation's positions continue with: topic ids and fingerprints. Performs no I/O."""

from __future__ import annotations

from exactlyonce.ledger.rows import LandedPositions, LedgerView
from exactlyonce.positions.fingerprint import Fingerprint, is_origin_id
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import SourceView


def standing_at(after: Positions, source: SourceView, goes_on: LedgerView | None) -> LandedPositions:
    """Return positions with the topic ids that the source has now.

    With `goes_on`, what that ledger knows of the records before them stays known: the ids of topics where the source has none
    now, and the fingerprints of positions that do not move. A stream that starts over knows nothing of what was before.
    """
    origin_ids = {partition.origin: source.origin_ids.get(partition.origin, "") for partition in after}
    fingerprints: dict[Partition, Fingerprint] = {}
    for landed in () if goes_on is None else (goes_on.retired, goes_on.landed):
        origin_ids |= {
            topic: known
            for topic, known in landed.origin_ids.items()
            if topic in origin_ids and not is_origin_id(origin_ids[topic])
        }
        fingerprints |= {
            key: kept for key, kept in landed.fingerprints.items() if after.get(key) == landed.positions.get(key)
        }
    return LandedPositions(after, origin_ids, fingerprints)
