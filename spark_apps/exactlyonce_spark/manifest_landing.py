"""The path of a batch whose sink is a manifest: written unseen, recorded in the ledger, then shown to readers. No pyspark here.

The ledger's transaction is the only point at which rows begin to count. Before it, a crash leaves files that nobody reads;
after it, readers are shown them by this driver or by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from exactlyonce.errors import LandedGone, Refused
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.replay_decisions import made_visible, take_visible
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.landing import land_batch, require_permit
from exactlyonce_spark.planned import PlannedBatch, Written
from exactlyonce_spark.target import ManifestTarget, NotLookedAt, RecordsOfBatch

_NAMED = 3
"""Of how many batches that are gone the ranges are named."""


def recover_manifests(ledger: Ledger, permit: Permit, target: ManifestTarget) -> BatchNumber | None:
    """Show readers what earlier drivers landed and did not come to show, before the first batch of this one.

    Return the latest batch that made something visible. It is read under the fence: no earlier driver lands anything after
    that. Whoever compacts the sink may change what is recorded of landed batches, and then what readers are shown: so a refusal
    counts only if the ledger still says the same.

    Raises:
        Fenced: if this process may not land any more.
        Refused: if the sink lacks what has landed, or shows what has not; `LandedGone` names the ranges.
    """
    while True:
        with ledger.transaction() as transaction:
            stream = fence(transaction, permit, Lock.SHARE)
            committables = transaction.read_committables(permit.stream_id)
            latest = max(committables, default=None) if target.tells_records else None
            records = _records_of(transaction, permit.stream_id, latest)
            replayed = made_visible(transaction.read_replayed(permit.stream_id)) if target.takes_replays else {}
        try:
            target.recover(committables, stream.landed_batch, records)
            target.require_replayed(replayed if target.writes else {})
        except LandedGone as problem:
            if _is_still_recorded(ledger, permit, committables):
                raise type(problem)(f"{problem}{_ranges_of(ledger, permit, problem)}", problem.batches) from problem
        except Refused:
            if _is_still_recorded(ledger, permit, committables):
                raise
        else:
            return max(committables, default=None)


def _records_of(transaction: LedgerTransaction, stream_id: str, latest: BatchNumber | None) -> RecordsOfBatch | None:
    """Return which records the latest batch that made something visible holds; retention never takes its row.

    The note of a row in another state is an error, which may quote records and is told nobody who reads the sink.
    """
    row = None if latest is None else transaction.read_batch(stream_id, latest)
    return RecordsOfBatch(row.ranges, row.note) if row is not None and row.status is BatchStatus.LANDED else None


def _ranges_of(ledger: Ledger, permit: Permit, problem: LandedGone) -> str:
    """Return the sentence about the records in doubt, as far as the ledger keeps the rows of their batches."""
    with ledger.transaction() as transaction:
        rows = [transaction.read_batch(permit.stream_id, BatchNumber(batch)) for batch in problem.batches[:_NAMED]]
    named = [f"{row.ranges} of batch {row.batch}" for row in rows if row is not None]
    more = ", …" if len(problem.batches) > _NAMED else ""
    return f" In doubt are the records {'; '.join(named)}{more}." if named else ""


def _is_still_recorded(ledger: Ledger, permit: Permit, committables: Mapping[BatchNumber, str]) -> bool:
    """Whether the ledger says what it said, so that a refusal for its sake holds.

    Raises:
        Fenced: if this process may not land any more: a successor may have landed and shown more.
    """
    require_permit(ledger, permit)
    with ledger.transaction() as transaction:
        return transaction.read_committables(permit.stream_id) == committables


def land_manifest(
    ledger: Ledger,
    permit: Permit,
    target: ManifestTarget,
    planned: PlannedBatch,
    rows: Any,
    check: Callable[[], tuple[PlannedBatch, int | None]],
) -> int:
    """Write a batch, record it and show it; return its rows.

    `check` is called once the rows are written: it requires that the source still is what was read, and returns the batch with
    the fingerprints of its records, and how many records were read.

    Raises:
        Fenced, LandingRefused: nothing counts of what was written.
        CommitOutcomeUnknown: if the outcome could not be settled.
    """
    prepared = target.prepare(planned.number, rows)
    reached("batch.rows-written", planned.number)
    marked, records_read = check()
    recorded = prepared.committable

    def record(transaction: LedgerTransaction) -> Written:
        # What the last run has recorded is what landed: it is run again only if the run before has not taken effect.
        nonlocal recorded
        recorded = _taken_over(transaction, permit.stream_id, target, planned.number, prepared.committable)
        transaction.write_committable(permit.stream_id, planned.number, recorded)
        return Written(prepared.rows)

    _landed_once_looked_at(target, lambda: land_batch(ledger, permit, marked, record, records_read=records_read))
    reached("batch.landed", planned.number)
    show_landed(ledger, permit, target, planned.number, recorded, RecordsOfBatch(marked.ranges, marked.left_out.note))
    reached("batch.published", planned.number)
    return prepared.rows


def _landed_once_looked_at(target: ManifestTarget, land: Callable[[], None]) -> None:
    """Run a landing; what it would take over and was not looked at is looked at, behind its transaction, which it ends."""
    while True:
        try:
            land()
        except NotLookedAt as found:
            target.require_replayed(found.replayed)
        else:
            return


def _taken_over(
    transaction: LedgerTransaction, stream_id: str, target: ManifestTarget, batch: BatchNumber, committable: str
) -> str:
    """Return what makes a batch visible, with what replays have landed: readers who follow batches see that with this one."""
    replayed = take_visible(transaction, stream_id) if target.takes_replays else {}
    return target.with_replayed(batch, committable, replayed) if replayed else committable


def show_landed(
    ledger: Ledger,
    permit: Permit,
    target: ManifestTarget,
    batch: BatchNumber,
    committable: str,
    records: RecordsOfBatch | None,
) -> None:
    """Show readers a batch that has landed. What does not fit is judged again by all that the ledger records by now.

    Raises:
        Fenced: if this process may not land any more.
        Refused: if readers are shown something else.
    """
    try:
        target.publish(batch, committable, records)
    except Refused:
        recover_manifests(ledger, permit, target)
