"""Is a batch that was planned and landed nothing to be planned again? docs/adr/0016. Performs no I/O."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import Evidence, ReplanBatch, ReplayBatch


def replanned(
    seen: Observation, ledger: LedgerView, verdict: ReplayBatch, *, keeps_state: bool
) -> ReplayBatch | ReplanBatch:
    """Return the verdict for a batch of which nothing landed: Spark runs it again, or it is given up as a proposal."""
    why = _wanted(seen, ledger, verdict)
    if why is None:
        return verdict
    if keeps_state:
        kept = Evidence("the query keeps state, so the batch cannot be planned again", {"batch": verdict.batch})
        message = f"{verdict.message} It cannot be planned again, although {why.words}: the query keeps state."
        return replace(verdict, message=message, evidence=(*verdict.evidence, why, kept))
    message = (
        f"Batch {verdict.batch} was planned and nothing of it has landed, and {why.words}; a new generation plans its records "
        f"again from {seen.request.shown(ledger.landed.positions)}."
    )
    row = ledger.batch(verdict.batch)
    given_up = (
        ()
        if row is None
        else (
            Evidence(
                f"batch {verdict.batch} is given up as a proposal: it was to read {seen.request.shown(row.ranges)}",
                {"batch": verdict.batch, "ranges": row.ranges.to_json(), "status": str(row.status)},
            ),
        )
    )
    return ReplanBatch(verdict.batch, message, (*verdict.evidence, why, *given_up))


def _wanted(seen: Observation, ledger: LedgerView, verdict: ReplayBatch) -> Evidence | None:
    """Return what says that the batch is to be planned again; a kill or a crash alone does not."""
    before, request = ledger.mark, seen.request
    # A driver whose limit had grown back plans beyond the one it was started with: then the batch itself tells.
    is_it = request.too_large == verdict.batch
    if request.shrunk is not None and (before.shrunk is None or request.shrunk < before.shrunk or is_it):
        words = f"it was too large, so a batch may have {request.shrunk} offsets for now"
        return Evidence(words, {"shrunkBefore": before.shrunk, "shrunk": request.shrunk})
    if before.limit != request.limit:
        words = f"the limit of a batch was changed since the last driver was started: from {before.limit} to {request.limit}"
        return Evidence(words, {"limitBefore": before.limit, "limit": request.limit})
    row = ledger.batch(verdict.batch)
    if row is not None and row.status is BatchStatus.FAILED and before.query != request.query:
        words = "it failed, and the format or the transform was changed since"
        return Evidence(words, {"before": before.query, "now": request.query})
    return None
