"""Backfills whose ranges their own process looks up, since nobody else can tell what lies in them. No I/O.

Where positions count no records, what lies between two moments is told by the source itself or by what stands beside the
checkpoint, and both are reached from there; and so is whether a range that is given by texts can be read.
"""

from __future__ import annotations

import json
from datetime import datetime

from exactlyonce.api.source import Source
from exactlyonce.launch.asked_ranges import Amount, Kind, Tally
from exactlyonce.launch.backfill import BackfillOrder
from exactlyonce.ledger.backfills import asked_in
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.schema.moment import Moments

TALLY_OF_NOTHING_KNOWN = Tally(Amount(1), Amount(1), Kind.BACKFILL, counts_no_records=True)
"""Of a backfill of which its process has yet to tell what it is of: one range, that nobody has begun."""


def looked_up_by_process(source: Source) -> bool:
    """Whether the process of a backfill finds out which ranges those are that were asked for."""
    return not source.spec.positions_count_records


def named_in(order: BackfillOrder) -> tuple[NamedSpan, ...]:
    """Return the ranges that were given by texts; none where others were asked for."""
    return tuple(NamedSpan(*span) for span in json.loads(asked_in(order.definition)).get("named", ()))


def moments_of(order: BackfillOrder) -> Moments | None:
    """Return the moments between which a backfill was asked for; None where ranges were given."""
    between = json.loads(asked_in(order.definition)).get("between")
    if between is None:
        return None
    begin, until = (datetime.fromisoformat(it) for it in between)
    return begin, until
