"""A batch that was too large is made smaller, until its records have landed: docs/adr/0016. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from exactlyonce.api.recovery import OnBatchTooLarge, Recovery
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.status import BatchLimit
from exactlyonce.launch.port import Ended, Gone, ShrunkLimit
from exactlyonce.ledger.rows import BatchRow, BatchStatus, LedgerView
from exactlyonce.positions.ranges import BatchNumber, Positions


@dataclass(frozen=True, slots=True)
class AsItIs:
    """The batch runs again as it is; `message` is a sentence for the person who reads that it was too large."""

    message: str


def says_too_large(ending: Ended | Gone) -> bool:
    """Whether a driver ended because its batch needed more memory or time than there is."""
    if isinstance(ending, Gone):
        return False
    return ending.out_of_memory or (ending.words is not None and ending.words.too_large)


def after_too_large(
    ending: Ended | Gone,
    view: LedgerView | None,
    before: BatchLimit | None,
    spec: StreamSpec,
    now: datetime,
) -> BatchLimit | AsItIs | None:
    """Return the limit that follows, or why there is none; None where the ending does not say that a batch was too large.

    The batch had as many records as the driver counted before it ended; where it did not come to that, as many as its ranges
    can have.
    """
    recovery = spec.recovery
    if not says_too_large(ending) or recovery.on_batch_too_large is OnBatchTooLarge.RETRY or view is None:
        return None
    row = _batch_in_hand(ending, view)
    if row is None:
        return None
    if view.stream.stateful:
        return AsItIs(
            "The query keeps state, so the batch cannot be planned again: give it more memory, or more time where the sink "
            "limits it. A smaller limit of a batch, in the source, holds from the next batch on."
        )
    if view.landed.positions != _with(view.landed.positions, row.ranges.starts):
        return AsItIs(
            "A part of the batch has landed, so the rest of it runs as it was planned; give it more memory or time."
        )
    most = spec.source.spec.most_records(row.ranges) if row.records_read is None else row.records_read
    allowed = most if before is None else min(most, before.records)
    if allowed <= 1:
        return AsItIs(
            "It cannot be made smaller: a limit of one record was not small enough. Give it more memory or time."
        )
    records = allowed // 2
    message = (
        f"Batch {row.batch}{_size(spec, row)} was too large; until its records have landed a batch has "
        f"at most {records}."
    )
    return BatchLimit(records=records, message=message, batch=row.batch, until=row.ranges.ends.to_json(), since=now)


def still_needed(limit: BatchLimit | None, view: LedgerView | None, recovery: Recovery) -> BatchLimit | None:
    """Return the limit while it holds: until the batch that was too large has landed, and as long as the resource wants it."""
    if limit is None or recovery.on_batch_too_large is OnBatchTooLarge.RETRY:
        return None
    if view is None or view.stream.landed_batch is None:
        return limit
    until = Positions.from_json(limit.until).without(view.retired.positions)
    if view.landed.positions.have_reached(until):
        return None
    return limit.model_copy(update={"until": until.to_json()})


def order_of(limit: BatchLimit | None) -> ShrunkLimit | None:
    """Return the limit as a driver is told it."""
    return None if limit is None else ShrunkLimit(limit.records, limit.until)


def records_of(limit: BatchLimit | None) -> int | None:
    """Return the limit as a decision sees it."""
    return None if limit is None else limit.records


def too_large_of(limit: BatchLimit | None) -> int | None:
    """Return the number of the batch that was too large, as a decision sees it."""
    return None if limit is None else limit.batch


def _batch_in_hand(ending: Ended | Gone, view: LedgerView) -> BatchRow | None:
    """The batch that was too large, as the ledger recorded it when it was begun, if it has not landed since."""
    waiting = (BatchStatus.IN_PROGRESS, BatchStatus.FAILED)
    words = ending.words if isinstance(ending, Ended) else None
    if words is not None and words.batch is not None:
        row = view.batch(BatchNumber(words.batch))
        return row if row is not None and row.status in waiting else None
    return next((row for row in view.batches if row.status in waiting), None)


def _size(spec: StreamSpec, row: BatchRow) -> str:
    """Return how many records the batch had, in words; nothing where neither a driver nor positions have counted them."""
    if row.records_read is not None:
        return f" of {row.records_read} records"
    return f" of {row.ranges.record_count} records" if spec.source.spec.positions_count_records else ""


def _with(stands: Positions, starts: Positions) -> Positions:
    """Where the stream would stand if nothing of the batch had landed; a partition that is new in it stands nowhere."""
    return Positions({**stands, **{key: offset for key, offset in starts.items() if key in stands}})
