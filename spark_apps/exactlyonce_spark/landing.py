"""The transactions that land a batch, written once over the ledger's port.

Each function is one transaction, or looks at the outcome of one. What is written to the sink is given as a callable, so
the same code runs over every ledger and over the in-memory store of the simulation. No pyspark here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from exactlyonce.ledger.fence import Fenced, Permit, fence
from exactlyonce.ledger.known_loads import LatestLoads
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.publish import failures_of
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureStatus, LandedPositions, LedgerView, StreamRow
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Ranges
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.landing_checks import (
    require_completed,
    require_next,
    require_recorded,
    require_same,
    require_start,
)
from exactlyonce_spark.left_out import keep_left_out
from exactlyonce_spark.planned import (
    NOTHING_LEFT_OUT,
    AlreadyLanded,
    Begun,
    LandingRefused,
    LeftOut,
    PlannedBatch,
    PositionsDiffer,
    Written,
    planned_row,
)
from exactlyonce_spark.settling import settled

Answer = TypeVar("Answer")


@rerun_after_lost_race
def begin_batch(
    ledger: Ledger,
    permit: Permit,
    batch: PlannedBatch,
    *,
    by_partition: bool = False,
    follows_own: bool = False,
) -> Begun | AlreadyLanded:
    """Recognise a batch that landed before, by one query; otherwise check that it follows and record it in progress.

    `follows_own`: this very process has landed the batch before. Then the record is dispensable: it tells which batch a driver
    died in, and if it is missing, the batch runs again as the first one of the next driver, which does record it.

    Raises:
        Fenced: if this process may not land any more.
        LandingRefused: if the batch does not follow on what has landed, or was taken by an earlier driver and not written.
    """
    view = require_permit(ledger, permit)
    if view.stream.landed_batch == batch.number:
        landed = view.batch(batch.number)
        require_same(batch, landed)
        require_completed(landed)
        if batch.stateful and not view.stream.stateful:
            _record_state(ledger, permit)
        return AlreadyLanded()
    require_next(view.stream, batch)
    finished = _finished(view.landed, batch.ranges) if by_partition else frozenset()
    require_start(view.landed, batch, except_for=finished)
    # Partitions that land one by one are explained by this record, and each of them looks for it in the transaction that
    # lands it; so nothing waits for the disk here.
    with ledger.transaction(lasting=False, dispensable=follows_own and not by_partition) as transaction:
        fence(transaction, permit, Lock.SHARE)
        transaction.write_batch(
            permit.stream_id, planned_row(permit, batch, BatchStatus.IN_PROGRESS, Written(None), None)
        )
    return Begun(finished, view.landed.fingerprints)


@rerun_after_lost_race
def _record_state(ledger: Ledger, permit: Permit) -> None:
    """Record that the query keeps state: it is in the checkpoint from batch 0 on, which is seeded and never landed."""
    with ledger.transaction() as transaction:
        stream = fence(transaction, permit, Lock.UPDATE)
        transaction.update_stream(replace(stream, stateful=True))


def require_permit(ledger: Ledger, permit: Permit) -> LedgerView:
    """Look at the ledger without a lock, and return what is there while the permit holds.

    A hint that saves work; only the fence under the lock decides what may land.

    Raises:
        Fenced: if the permit no longer holds.
    """
    view = ledger.view(permit.stream_id)
    if view is None or (view.stream.epoch, view.stream.claim) != (permit.epoch, permit.claim):
        at = "without a row" if view is None else f"at epoch {view.stream.epoch}"
        raise Fenced(f"Epoch {permit.epoch} of {permit.stream_id} may not land: the ledger is {at}.")
    return view


def land_batch(
    ledger: Ledger,
    permit: Permit,
    batch: PlannedBatch,
    write: Callable[[LedgerTransaction], Written],
    *,
    records_read: int | None = None,
    status: BatchStatus = BatchStatus.LANDED,
    latest: LatestLoads | None = None,
) -> None:
    """Land a whole batch in one transaction: fence, batch number, positions, rows.

    With `status` TAKEN only the positions move, and `write` writes nothing: AtMostOnce. With AtLeastOnce `write` requires
    that what tasks have written before is still there. `latest` are the loads of a batch that is decided.

    Raises:
        Fenced, LandingRefused: nothing was written.
        CommitOutcomeUnknown: if the outcome could not be settled.
    """

    def once() -> None:
        with ledger.transaction(evicting=True) as transaction:
            stream = fence(transaction, permit, Lock.UPDATE)
            reached("land.fenced", batch.number)
            require_next(stream, batch)
            if status is BatchStatus.TAKEN:
                require_completed(transaction.read_batch(permit.stream_id, BatchNumber(batch.number - 1)))
            landed = transaction.read_positions(permit.stream_id)
            require_start(landed, batch)
            written = write(transaction)
            reached("land.rows-moved", batch.number)
            advance(transaction, permit.stream_id, batch, landed)
            reached("land.positions-advanced", batch.number)
            loads = stream.loads if latest is None else replace(stream.loads, latest=latest)
            close(
                transaction,
                permit,
                replace(stream, loads=loads),
                planned_row(permit, batch, status, written, records_read),
                stateful=batch.stateful,
            )
            keep_left_out(transaction, stream, batch.number, batch.left_out)
            reached("land.before-commit", batch.number)

    settled(ledger, permit, batch, once)


@rerun_after_lost_race
def land_partition(
    ledger: Ledger,
    permit: Permit,
    batch: BatchNumber,
    partition: Partition,
    offsets: OffsetRange,
    origin_ids: Mapping[str, str],
    write: Callable[[LedgerTransaction], int],
    fingerprint: Fingerprint | None = None,
    left_out: LeftOut = NOTHING_LEFT_OUT,
) -> int | AlreadyLanded:
    """Land one partition of a batch in one transaction, and return its rows: `commit: Partition`, in a task.

    `fingerprint` is of the range's last record: it is kept in the transaction that moves the position past that record, and so
    are the records of the partition that are `left_out`.

    The position moves first: another run of this task waits there for this one's outcome, then finds it moved.

    Raises:
        Fenced, LandingRefused: nothing was written.
        CommitOutcomeUnknown: the task is run again and then finds out.
    """
    with ledger.transaction(evicting=True) as transaction:
        stream = fence(transaction, permit, Lock.SHARE)
        reached("task.fenced", batch)
        if stream.landed_batch == batch:
            return AlreadyLanded()
        if stream.landed_batch != batch - 1:
            raise LandingRefused(
                f"Batch {batch} does not follow on batch {stream.landed_batch}, the latest that landed."
            )
        require_recorded(transaction, permit.stream_id, batch, partition, offsets)
        kept = {} if fingerprint is None else {partition: fingerprint}
        if transaction.advance_positions(permit.stream_id, Ranges({partition: offsets}), dict(origin_ids), kept) != 1:
            found = transaction.read_positions(permit.stream_id).positions.get(partition, 0)
            if found == offsets.until_offset:
                return AlreadyLanded()
            raise PositionsDiffer(
                f"Batch {batch} of {permit.stream_id} reads {partition} {offsets} and the sink stands at {found}."
            )
        reached("task.advanced", batch)
        rows = write(transaction)
        keep_left_out(transaction, stream, batch, left_out)
        reached("task.before-commit", batch)
    reached("task.committed", batch)
    return rows


def finish_partitions(
    ledger: Ledger, permit: Permit, batch: PlannedBatch, written: Written, records_read: int | None
) -> None:
    """Close a batch whose partitions have all landed: the batch number moves.

    Raises:
        Fenced, LandingRefused: nothing was changed.
        CommitOutcomeUnknown: if the outcome could not be settled.
    """

    def once() -> None:
        with ledger.transaction(evicting=True) as transaction:
            stream = fence(transaction, permit, Lock.UPDATE)
            reached("land.fenced", batch.number)
            require_next(stream, batch)
            landed = transaction.read_positions(permit.stream_id)
            unfinished = [str(key) for key, end in batch.ranges.ends.items() if landed.positions.get(key, 0) != end]
            if unfinished:
                raise PositionsDiffer(f"Batch {batch.number} has not landed for {', '.join(unfinished)}.")
            advance(transaction, permit.stream_id, batch, landed)
            close(
                transaction,
                permit,
                stream,
                planned_row(permit, batch, BatchStatus.LANDED, written, records_read),
                stateful=batch.stateful,
            )
            reached("land.before-commit", batch.number)

    settled(ledger, permit, batch, once)


@rerun_after_lost_race
def record_failure(ledger: Ledger, permit: Permit, batch: PlannedBatch, address: str, error: str) -> None:
    """Record that a batch failed, with the ranges that have not landed, unless all of it has.

    What was left out of a partition that has landed alone may stand in quarantine under the start of its range: no row of a
    failure may replace it.

    Raises:
        Fenced: if this process may not write to the ledger any more.
    """
    with ledger.transaction() as transaction:
        stream = fence(transaction, permit, Lock.SHARE)
        if stream.landed_batch is not None and stream.landed_batch >= batch.number:
            return
        row = replace(planned_row(permit, batch, BatchStatus.FAILED, Written(None), None), note=error)
        transaction.write_batch(permit.stream_id, row)
        pending = unread(batch.ranges, transaction.read_positions(permit.stream_id))
        failures = failures_of(replace(row, ranges=pending), FailureStatus.OPEN, address, error)
        transaction.write_failures(permit.stream_id, failures)


def unread(ranges: Ranges, landed: LandedPositions) -> Ranges:
    """Return the ranges to whose end the positions have not moved: with `commit: Partition` some partitions may have landed."""
    finished = _finished(landed, ranges)
    return Ranges({key: offsets for key, offsets in ranges.items() if key not in finished})


def _finished(landed: LandedPositions, ranges: Ranges) -> frozenset[Partition]:
    """The partitions of a batch in progress that have landed already."""
    ends = ranges.non_empty().ends
    return frozenset(key for key, end in ends.items() if landed.positions.get(key) == end)


def advance(transaction: LedgerTransaction, stream_id: str, batch: PlannedBatch, landed: LandedPositions) -> None:
    """Move the positions that have not moved yet past a batch, and enter partitions that are new, empty or not.

    Raises:
        PositionsDiffer: if one of them stands elsewhere.
    """
    pending = Ranges(
        {
            key: offsets
            for key, offsets in batch.ranges.items()
            if key not in landed.positions or landed.positions[key] != offsets.until_offset
        }
    )
    moved = transaction.advance_positions(stream_id, pending, dict(batch.origin_ids), batch.fingerprints)
    if moved != len(pending):
        raise PositionsDiffer(f"Batch {batch.number} moved {moved} of {len(pending)} partitions; nothing was changed.")


def close(transaction: LedgerTransaction, permit: Permit, stream: StreamRow, row: BatchRow, *, stateful: bool) -> None:
    """Record that the positions have moved past a batch: it is the latest that landed, and none of its failures is open."""
    transaction.write_batch(permit.stream_id, row)
    transaction.settle_failures(permit.stream_id, row.batch, FailureStatus.CLOSED)
    transaction.update_stream(replace(stream, landed_batch=row.batch, stateful=stream.stateful or stateful))
