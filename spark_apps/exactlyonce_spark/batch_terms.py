"""What a batch loop is told of its stream, what it says of a batch, and what it refuses. No pyspark here."""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.spark_port import ExecutedPlan


class PlanUnfit(Refused):
    """The query's plan cannot keep the promise with the sink as it is configured."""


class LedgerWentBack(ExactlyOnceError):
    """The ledger holds less than this very process has landed: the database was restored."""


@dataclass(frozen=True)
class BatchSettings:
    """How a stream lands its batches. A batch of at most `small_batch_records` offsets is written by the driver itself.

    `deletes`: rows may delete their key, so the order of the records decides.
    """

    delivery: Delivery = Delivery.EXACTLY_ONCE
    commit: Commit = Commit.BATCH
    dead_letters: bool = False
    small_batch_records: int = 2000
    deletes: bool = False

    @property
    def by_partition(self) -> bool:
        """Whether each partition lands in a transaction of its own."""
        return self.delivery is Delivery.EXACTLY_ONCE and self.commit is Commit.PARTITION


@dataclass(frozen=True, slots=True)
class Landing:
    """What a batch that has landed held: the offsets of its ranges, and the rows it wrote where that is known."""

    records: int
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
