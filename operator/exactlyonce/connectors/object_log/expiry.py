"""Which rows of batches a log does not keep. Performs no I/O.

Whoever folds a log holds all of its rows in memory, and an operator holds those of many streams. So their number is bounded by
their ranges, too: ten thousand batches of a thousand partitions would be more than a snapshot can hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from exactlyonce.connectors.object_log.state import StoredBatch
from exactlyonce.ledger.rows import BatchRow, BatchStatus, Excess
from exactlyonce.positions.ranges import BatchNumber

MOST_RANGES = 100_000
"""In the rows of all batches that are kept; in memory, some 40 MB."""

FEWEST_LANDED = 3
"""Batches that are kept whatever their ranges are: the landed one, which decisions read, and two before it."""


def expired(
    batches: Sequence[StoredBatch], landed: BatchNumber, excess: Excess, fewest: int, now: datetime
) -> list[BatchNumber]:
    """Return the batches of an excess that are not kept, the oldest first; `batches` are in the order of their numbers.

    Only those before the landed one, and before the latest `fewest` that landed, or those whose ranges there is room for.
    """
    landed_batches = [kept.row.batch for kept in batches if kept.row.status is BatchStatus.LANDED]
    crowded = -1 if excess.before is None else _crowded_before([kept.row for kept in batches], landed_batches)
    until = min(landed, max(landed_batches[-fewest] if len(landed_batches) >= fewest else -1, crowded))
    before = -1 if excess.before is None else max(excess.before, crowded)
    return [
        kept.row.batch for kept in batches
        if kept.row.status in excess.statuses and kept.row.batch < until
        and (kept.row.batch < before or (kept.row.landed_at or kept.created_at) < now - excess.age)
    ]  # fmt: skip


def _crowded_before(rows: Sequence[BatchRow], landed: Sequence[BatchNumber]) -> int:
    """Return the batch before which there is no room for more ranges; -1 where there is room for all."""
    ranges, kept_from = 0, min(landed[-FEWEST_LANDED:], default=-1)
    for row in reversed(rows):
        ranges += len(row.ranges)
        if ranges > MOST_RANGES and row.batch < kept_from:
            return row.batch + 1
    return -1
