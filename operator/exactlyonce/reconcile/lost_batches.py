"""Batches that AtMostOnce had taken and that may not have been written: told, whatever is decided. Performs no I/O."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.reconcile.observation import Request
from exactlyonce.reconcile.verdicts import Evidence, RecordLost, Verdict


def records_lost(ledger: LedgerView) -> tuple[RecordLost, ...]:
    """AtMostOnce: batches that were taken and whose driver ended before it had written them."""
    return tuple(RecordLost(row) for row in ledger.batches if row.status is BatchStatus.TAKEN)


def with_evidence(
    verdict: Verdict, settled: tuple[Evidence, ...], lost: tuple[RecordLost, ...], request: Request
) -> Verdict:
    """Return the verdict with what was settled, and with what may be lost, in its evidence."""
    gone = tuple(
        Evidence(
            f"batch {action.batch.batch} was taken and may not have been written: {request.shown(action.batch.ranges)} may be "
            "lost",
            {"batch": action.batch.batch, "ranges": action.batch.ranges.to_json()},
        )
        for action in lost
    )
    return replace(verdict, evidence=(*verdict.evidence, *settled, *gone))
