"""Backfills whose ranges their own process looks up, since nobody else can tell what lies between two moments. No I/O.

Where positions count no records, they are told by what stands beside the checkpoint, which an operator may not reach.
"""

from __future__ import annotations

import json
from datetime import datetime

from exactlyonce.api.source import Source
from exactlyonce.launch.asked_ranges import Amount, Kind, Tally
from exactlyonce.launch.backfill import BackfillOrder
from exactlyonce.ledger.backfills import asked_in
from exactlyonce.schema.moment import Moments

TALLY_OF_NOTHING_KNOWN = Tally(Amount(1), Amount(1), Kind.BACKFILL, counts_no_records=True)
"""Of a backfill of which its process has yet to tell what it is of: one range, that nobody has begun."""


def looked_up_by_process(source: Source) -> bool:
    """Whether the process of a backfill finds out which ranges lie between two moments."""
    return not source.spec.positions_count_records


def moments_of(order: BackfillOrder) -> Moments | None:
    """Return the moments between which a backfill was asked for; None where ranges were given."""
    between = json.loads(asked_in(order.definition)).get("between")
    if between is None:
        return None
    begin, until = (datetime.fromisoformat(it) for it in between)
    return begin, until
