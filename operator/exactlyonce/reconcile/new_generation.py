"""The action that makes a new generation: its number, the batch it is seeded with, where it stands. Performs no I/O."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.checkpoint.generation import Generation
from exactlyonce.ledger.rows import LedgerView, QueryMark
from exactlyonce.positions.ranges import BatchNumber, Positions
from exactlyonce.reconcile.kept_state import keeps_state
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.standing import standing_at
from exactlyonce.reconcile.verdicts import SeedAndPublish


def seed_at(
    seen: Observation,
    before: Positions,
    after: Positions,
    batch: BatchNumber,
    note: str,
    goes_on: LedgerView | None,
) -> SeedAndPublish:
    """Return the action that makes a new generation at `after`; `goes_on` is the ledger, unless the stream starts over."""
    known = [generation.number for generation in seen.location.generations]
    if seen.ledger is not None and seen.ledger.stream.generation is not None:
        known.append(seen.ledger.stream.generation)
    generation = Generation(max(known, default=0) + 1, seen.epoch)
    after_all = standing_at(after, seen.source, goes_on)
    return SeedAndPublish(
        generation,
        batch,
        before,
        after_all,
        note,
        seen.request.shuffle_partitions,
        query=replace(query_mark(seen), left_out=_left_out(seen.ledger, after_all.positions)),
        watermark_policy=seen.request.watermark_policy,
    )


def seed_batch(seen: Observation) -> BatchNumber:
    """The batch that a new generation starts with: one more than any that was planned or landed, or is in the output already.

    While no more than the empty batch 0 has landed, a query that keeps state, or may, starts with that again: its state is
    made with batch 0 only, and what it has planned since was never in the sink.
    """
    highest = _highest_batch(seen)
    only_seeded = seen.ledger is not None and seen.ledger.stream.landed_batch == 0
    return BatchNumber(0 if only_seeded and (highest == 0 or keeps_state(seen)) else highest + 1)


def query_mark(seen: Observation) -> QueryMark:
    """Return what the next driver of this generation is started for, as the ledger keeps it."""
    request, before = seen.request, None if seen.ledger is None else seen.ledger.query
    left_out = Positions() if before is None else before.left_out
    return QueryMark(request.source, request.query, request.limit, request.shrunk, left_out)


def _left_out(ledger: LedgerView | None, after: Positions) -> Positions:
    """Return where partitions stand that the ledger knows and a new generation does not read."""
    if ledger is None:
        return Positions()
    return Positions({**ledger.retired.positions, **ledger.landed.positions}).without(after)


def _highest_batch(seen: Observation) -> int:
    """The highest number planned or landed anywhere, and of the query whose output is continued; -1 where there is none."""
    former = seen.request.former_batch
    numbers: list[int] = [-1 if former is None else former]
    numbers += [
        number for generation, number in seen.location.highest_planned.items() if generation in seen.location.ran
    ]
    if seen.ledger is not None:
        numbers += [row.batch for row in seen.ledger.batches]
        numbers += [] if seen.ledger.stream.landed_batch is None else [seen.ledger.stream.landed_batch]
    return max(numbers)
