"""The path of a batch whose sink is a manifest: written unseen, recorded in the ledger, then shown to readers. No pyspark here.

The ledger's transaction is the only point at which rows begin to count. Before it, a crash leaves files that nobody reads;
after it, readers are shown them by this driver or by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from exactlyonce.errors import Refused
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.landing import land_batch, require_permit
from exactlyonce_spark.planned import PlannedBatch, Written
from exactlyonce_spark.target import ManifestTarget


def recover_manifests(ledger: Ledger, permit: Permit, target: ManifestTarget) -> None:
    """Show readers what earlier drivers landed and did not come to show, before the first batch of this one.

    It is read under the fence: no earlier driver lands anything after that. Whoever compacts the sink may change what is
    recorded of landed batches, and then what readers are shown: so a refusal counts only if the ledger still says the same.

    Raises:
        Fenced: if this process may not land any more.
        Refused: if the sink lacks what has landed, or shows what has not.
    """
    while True:
        with ledger.transaction() as transaction:
            stream = fence(transaction, permit, Lock.SHARE)
            committables = transaction.read_committables(permit.stream_id)
        try:
            target.recover(committables, stream.landed_batch)
        except Refused:
            if _is_still_recorded(ledger, permit, committables):
                raise
        else:
            return


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

    def record(transaction: LedgerTransaction) -> Written:
        transaction.write_committable(permit.stream_id, planned.number, prepared.committable)
        return Written(prepared.rows)

    land_batch(ledger, permit, marked, record, records_read=records_read)
    reached("batch.landed", planned.number)
    show_landed(ledger, permit, target, planned.number, prepared.committable)
    reached("batch.published", planned.number)
    return prepared.rows


def show_landed(ledger: Ledger, permit: Permit, target: ManifestTarget, batch: BatchNumber, committable: str) -> None:
    """Show readers a batch that has landed. What does not fit is judged again by all that the ledger records by now.

    Raises:
        Fenced: if this process may not land any more.
        Refused: if readers are shown something else.
    """
    try:
        target.publish(batch, committable)
    except Refused:
        recover_manifests(ledger, permit, target)
