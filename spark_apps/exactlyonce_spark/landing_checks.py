"""What is required of a batch under the fence before it is recorded or landed, and what may stay after it. No pyspark here."""

from __future__ import annotations

import logging

from exactlyonce.errors import OutcomeUnknown, Refused, Unreachable
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    LandedPositions,
    StreamRow,
)
from exactlyonce.positions.fingerprint import is_other_origin
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition
from exactlyonce_spark.planned import (
    BatchNotRecorded,
    BatchPlannedOtherwise,
    LandingRefused,
    OriginReplaced,
    PlannedBatch,
    PositionsDiffer,
)
from exactlyonce_spark.target import Target

log = logging.getLogger("exactlyonce.batch")


def require_same(batch: PlannedBatch, landed: BatchRow | None) -> None:
    """Require that a batch that has landed did so with the ranges of this one."""
    if landed is None or landed.ranges != batch.ranges:
        found = "no ranges" if landed is None else str(landed.ranges)
        raise BatchPlannedOtherwise(f"Batch {batch.number} landed with {found} and Spark plans {batch.ranges}.")


def require_next(stream: StreamRow, batch: PlannedBatch) -> None:
    """Require that the batch before this one is the latest that landed."""
    if stream.landed_batch != batch.number - 1:
        raise LandingRefused(
            f"Batch {batch.number} does not follow on batch {stream.landed_batch}, the latest that landed."
        )


def require_recorded(
    transaction: LedgerTransaction,
    stream_id: str,
    batch: BatchNumber,
    partition: Partition,
    offsets: OffsetRange,
) -> None:
    """The record of the batch in progress is what explains a partition that landed alone.

    It was committed before the task began; a server that crashed since, or a standby that was promoted, may lack it. A
    partition that landed without it would leave a ledger that contradicts itself.
    """
    row = transaction.read_batch(stream_id, batch)
    if row is None or row.ranges.get(partition) != offsets:
        found = "no such batch" if row is None else f"{row.ranges}"
        raise BatchNotRecorded(
            f"The record of batch {batch}, which reads {partition} {offsets}, is not in the ledger any more ({found}): the "
            "database lost its latest transactions. Nothing was written; the batch runs again."
        )


def require_completed(row: BatchRow | None) -> None:
    """Require that a taken batch was written or given up (AtMostOnce), and that a decided one has landed.

    Only a database that lost its latest transactions says otherwise, while a driver runs that was started after them: each
    driver finishes what was decided before its first batch.
    """
    if row is not None and row.status is BatchStatus.DECIDED:
        raise LandingRefused(
            f"The ledger says that batch {row.batch} was decided and has not landed: the database lost its latest "
            "transactions. The next attempt finishes it."
        )
    if row is not None and row.status is BatchStatus.TAKEN:
        raise LandingRefused(
            f"The ledger says that batch {row.batch} was taken and not written: the database lost its latest transactions. "
            "The next attempt records which records that may have cost."
        )


def require_start(landed: LandedPositions, batch: PlannedBatch, except_for: frozenset[Partition] = frozenset()) -> None:
    """Every partition, empty ranges too, starts where the sink stands; one that the ledger does not know starts at 0.

    Only a partition that has landed to its end may be left out.
    """
    absent = [str(key) for key in landed.positions if key not in batch.ranges and key not in landed.positions.ended]
    if absent:
        raise PositionsDiffer(f"Batch {batch.number} does not read {', '.join(absent)}, which the stream has read.")
    for key, offsets in batch.ranges.items():
        known = landed.positions.get(key, 0)
        if known != offsets.from_offset and key not in except_for:
            raise PositionsDiffer(
                f"Batch {batch.number} reads {key} from {offsets.from_offset}, the sink stands at {known}."
            )
    for origin, origin_id in batch.origin_ids.items():
        first = landed.origin_ids.get(origin)
        if is_other_origin(first, origin_id):
            raise OriginReplaced(
                f"{origin} has the id {origin_id}, and the records that have landed are of the one with the id {first}."
            )


def clear_staging_if_possible(target: Target, batch: BatchNumber) -> None:
    """Forget what was staged for a batch that has landed: what is left of it is no reason to end as failed."""
    try:
        target.clear_staging(batch)
    except (Unreachable, Refused, OutcomeUnknown) as problem:
        log.warning("What was staged for batch %s stays until the next attempt: %s", batch, problem)
