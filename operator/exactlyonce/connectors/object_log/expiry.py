"""Which rows a log does not keep, whatever ledgerRetention asks for. Performs no I/O.

Whoever folds a log holds all of its rows in memory, and an operator holds those of many streams. So batches that no decision
needs, and failures that are over, are bounded in number too: each transaction that writes some removes the oldest beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from exactlyonce.connectors.object_log.bounds import Bounds, distinct_bytes
from exactlyonce.connectors.object_log.state import Key, StoredBatch, StoredFailure
from exactlyonce.ledger.rows import BatchRow, BatchStatus, Excess, FailureStatus
from exactlyonce.positions.ranges import BatchNumber

FEWEST_LANDED = 3
"""Batches that are kept whatever their ranges are: the landed one, which decisions read, and two before it."""

ENDED = (FailureStatus.CLOSED, FailureStatus.SUPERSEDED, FailureStatus.REPLAYED)
"""Failures that are over: the records have landed, or are planned again."""

_RANGES_OF_A_ROW = 5
"""A batch's row without its ranges needs as much as so many of them."""


def expired(
    batches: Sequence[StoredBatch], landed: BatchNumber, excess: Excess, fewest: int, now: datetime
) -> list[BatchNumber]:
    """Return the batches of an excess that are not kept, the oldest first; `batches` are in the order of their numbers.

    Only those before the landed one, and before the latest `fewest` that landed.
    """
    landed_batches = [kept.row.batch for kept in batches if kept.row.status is BatchStatus.LANDED]
    until = min(landed, landed_batches[-fewest] if len(landed_batches) >= fewest else -1)
    before = -1 if excess.before is None else excess.before
    return [
        kept.row.batch for kept in batches
        if kept.row.status in excess.statuses and kept.row.batch < until
        and (kept.row.batch < before or (kept.row.landed_at or kept.created_at) < now - excess.age)
    ]  # fmt: skip


def crowded_batches(rows: Sequence[BatchRow], landed: BatchNumber, bounds: Bounds) -> list[BatchNumber]:
    """Return the batches that there is no room for beside others, the oldest; `rows` are in the order of their numbers.

    Never the landed one, later ones, and the latest FEWEST_LANDED that landed with records: what was seeded or superseded does
    not wait for those, or a stream that lands nothing and is rebuilt again and again would fill its log.
    """
    latest = frozenset([row.batch for row in rows if row.status is BatchStatus.LANDED][-FEWEST_LANDED:])
    is_needed = [row.batch >= landed or row.batch in latest or row.status.unfinished for row in rows]
    needed = [row for row, is_it in zip(rows, is_needed, strict=True) if is_it]
    ranges, notes = sum(map(_ranges_of, needed)), sum(len(row.note) for row in needed)
    gone = []
    for row, is_it in zip(reversed(rows), reversed(is_needed), strict=True):
        if not is_it:
            ranges, notes = ranges + _ranges_of(row), notes + len(row.note)
            if ranges > bounds.batch_ranges or notes > bounds.text_bytes:
                gone.append(row.batch)
    return gone


def _ranges_of(row: BatchRow) -> int:
    return len(row.ranges) + _RANGES_OF_A_ROW


def crowded_failures(failures: Sequence[tuple[Key, StoredFailure]], landed: BatchNumber, bounds: Bounds) -> list[Key]:
    """Return the failures that are over and that there is no room for beside later ones, by whole batches; never the latest."""
    by_batch: dict[BatchNumber, list[tuple[Key, StoredFailure]]] = {}
    for key, kept in failures:
        if kept.row.status in ENDED and kept.row.batch < landed:
            by_batch.setdefault(kept.row.batch, []).append((key, kept))
    ranges = size = 0
    gone: list[Key] = []
    latest = max(by_batch, default=None)
    for batch in sorted(by_batch, reverse=True):
        ranges += len(by_batch[batch])
        size += distinct_bytes(kept.row.error for _, kept in by_batch[batch])
        if batch != latest and (ranges > bounds.ended_ranges or size > bounds.text_bytes):
            gone += [key for key, _ in by_batch[batch]]
    return gone
