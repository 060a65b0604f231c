"""Rows that tasks write in transactions of their own, and the proof that none was lost: AtLeastOnce and AtMostOnce.

A database may lose a commit that it has acknowledged, and look the same afterwards: after a backend died and the server
re-initialised, after a failover, after a restore. So each task leaves a witness in the transaction of its rows: who finds
the witness knows that the rows are there, and a commit that waits for the disk after that makes both last.
"""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.rows import BatchStatus, FailureRow
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.planned import LandingRefused, PlannedBatch, Written, planned_row


class RowsInDoubt(ExactlyOnceError):
    """Rows were written in transactions before this one, and the database has lost some of them since."""


@rerun_after_lost_race
def write_under_fence(
    ledger: Ledger,
    permit: Permit,
    batch: BatchNumber,
    landed_batch: BatchNumber,
    tag: int,
    write: Callable[[LedgerTransaction], int],
) -> int:
    """Write rows in a transaction of their own that checks the fence, and leave a witness under `tag`; in a task.

    `landed_batch` is what the ledger holds as landed while these tasks write: with AtMostOnce the batch itself.

    Raises:
        Fenced, LandingRefused: nothing was written.
        CommitOutcomeUnknown: AtLeastOnce runs the task again; AtMostOnce gives the batch up.
    """
    with ledger.transaction(evicting=True) as transaction:
        stream = fence(transaction, permit, Lock.SHARE)
        reached("task.fenced", batch)
        if stream.landed_batch != landed_batch:
            raise LandingRefused(
                f"The rows of batch {batch} belong after batch {landed_batch} and the ledger is at {stream.landed_batch}."
            )
        rows = write(transaction)
        transaction.write_witness(permit.stream_id, batch, tag)
        reached("task.before-commit", batch)
    reached("task.committed", batch)
    return rows


def require_witnesses(transaction: LedgerTransaction, stream_id: str, batch: BatchNumber, tags: frozenset[int]) -> None:
    """Require a witness of each of these tasks, and remove them with what failed tasks and dead drivers have left.

    Raises:
        RowsInDoubt: if one is missing, and the rows of its task with it.
    """
    missing = len(tags - transaction.take_witnesses(stream_id, batch))
    if missing:
        raise RowsInDoubt(
            f"The database has lost what {missing} of {len(tags)} tasks had written for batch {batch}: it crashed, failed over "
            "or was restored meanwhile."
        )


@rerun_after_lost_race
def complete_taken(
    ledger: Ledger,
    permit: Permit,
    batch: PlannedBatch,
    written: Written,
    records_read: int | None,
    tags: frozenset[int],
    lost: tuple[FailureRow, ...] = (),
) -> None:
    """AtMostOnce: record that all rows of a batch that was taken have been written, or which ranges are `lost`.

    Raises:
        RowsInDoubt: if rows of one of the tasks are gone; reconciliation then records the batch as lost.
    """
    status = BatchStatus.LOST if lost else BatchStatus.LANDED
    with ledger.transaction(evicting=True) as transaction:
        fence(transaction, permit, Lock.UPDATE)
        require_witnesses(transaction, permit.stream_id, batch.number, tags)
        transaction.write_batch(permit.stream_id, planned_row(permit, batch, status, written, records_read))
        transaction.write_failures(permit.stream_id, lost)
