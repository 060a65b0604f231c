"""What a batch loop is told of its stream, what it says of a batch, and what it refuses. No pyspark here."""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.api.recovery import DEFAULT_MOST_QUARANTINED
from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.launch.port import Quarantine
from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce_spark.left_out import FailingRecords
from exactlyonce_spark.spark_port import ExecutedPlan


class PlanUnfit(Refused):
    """The query's plan cannot keep the promise with the sink as it is configured."""


class LedgerWentBack(ExactlyOnceError):
    """The ledger holds less than this very process has landed: the database was restored."""


@dataclass(frozen=True)
class BatchSettings:
    """How a stream lands its batches. A batch of at most `small_batch_records` offsets is written by the driver itself.

    `deletes`: rows may delete their key, so the order of the records decides. Where positions do not count records
    (`positions_count_records`), only a batch that reads nothing is known to be small. `quarantine` names a batch that is passed
    over, `left_out` records that the query leaves out, and `most_quarantined` is how many offsets may be in quarantine.
    """

    delivery: Delivery = Delivery.EXACTLY_ONCE
    commit: Commit = Commit.BATCH
    dead_letters: bool = False
    small_batch_records: int = 2000
    deletes: bool = False
    positions_count_records: bool = True
    quarantine: Quarantine | None = None
    left_out: tuple[FailingRecords, ...] = ()
    most_quarantined: int = DEFAULT_MOST_QUARANTINED

    def is_small(self, ranges: Ranges) -> bool:
        """Whether the driver can take the rows of a batch by itself, as far as its ranges tell."""
        most = self.small_batch_records if self.positions_count_records else 0
        return ranges.record_count <= most

    def records_in(self, ranges: Ranges, records_read: int | None) -> int | None:
        """Return how many records a batch had: what its ranges span, or what was read where they do not tell."""
        return ranges.record_count if self.positions_count_records else records_read

    @property
    def by_partition(self) -> bool:
        """Whether each partition lands in a transaction of its own."""
        return self.delivery is Delivery.EXACTLY_ONCE and self.commit is Commit.PARTITION

    def comparable(self, records_read: int | None) -> int | None:
        """Return how many records were read, where that can be compared with what the ranges span."""
        return records_read if self.positions_count_records else None


@dataclass(frozen=True, slots=True)
class Landing:
    """What a batch that has landed held, and the rows it wrote, each where that is known.

    `records` are the offsets of its ranges, or what was read where positions do not count records.
    """

    records: int | None
    rows: int | None


def require_order(batch: BatchNumber, plan: ExecutedPlan) -> None:
    """The last row of a key is of its last record only where no shuffle and no state stand between record and row."""
    if plan.task_ranges is None or plan.stateful:
        raise PlanUnfit(
            f"Batch {batch}: source.format.onTombstone: Delete needs a query that keeps the order of the records: every task "
            "reads exactly one range of the source and nothing else (no join, aggregation, deduplication, union or "
            "repartition). Change the transform, or set onTombstone: Skip."
        )


def require_partitions(batch: BatchNumber, plan: ExecutedPlan) -> None:
    """Require that each task reads one range of the source, and nothing else."""
    if plan.task_ranges is None:
        raise PlanUnfit(
            f"Batch {batch}: commit: Partition needs a query whose every task reads exactly one range of the source "
            "and nothing else (no join, aggregation, union or repartition); set commit to Batch in the sink."
        )


def require_not_restored(landed_here: BatchNumber | None, landed: BatchNumber | None) -> None:
    """Require that the ledger still holds what this process has landed.

    Raises:
        LedgerWentBack: if it does not.
    """
    if landed_here is not None and (landed is None or landed < landed_here):
        raise LedgerWentBack(
            f"Batch {landed_here} landed and the ledger holds {landed} as the latest: it was restored."
        )
