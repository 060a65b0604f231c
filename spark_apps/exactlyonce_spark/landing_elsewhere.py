"""Batches whose rows are in no transaction of the ledger: it records where they are, or what to commit. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import OffsetRange
from exactlyonce_spark.manifest_landing import land_manifest
from exactlyonce_spark.planned import PlannedBatch
from exactlyonce_spark.spark_port import ExecutedPlan, SparkBatch
from exactlyonce_spark.target import ManifestTarget, TwoPhaseTarget
from exactlyonce_spark.two_phase_landing import land_two_phase, prepared

Elsewhere = ManifestTarget | TwoPhaseTarget


def land_elsewhere(
    ledger: Ledger,
    permit: Permit,
    target: Elsewhere,
    batch: SparkBatch,
    plan: ExecutedPlan,
    planned: PlannedBatch,
    check: Callable[[], tuple[PlannedBatch, int | None]],
    *,
    is_small: bool,
) -> int:
    """Land a batch as its kind of sink has it, and return its rows; `check` is as `land_manifest` has it.

    Raises:
        Fenced, LandingRefused, DecisionDiffers, DecisionTooLarge: nothing counts of what was written.
        CommitOutcomeUnknown, NotCommitted, Unreachable: the next driver finds out what has landed, and finishes it.
    """
    if isinstance(target, ManifestTarget):
        return land_manifest(ledger, permit, target, planned, batch.unread(), check)
    spans = [(row.partition, OffsetRange(row.from_offset, row.until_offset)) for row in planned.left_out.failures]
    return land_two_phase(
        ledger, permit, target, planned, lambda: prepared(batch, plan, target, spans, is_small=is_small), check
    )
