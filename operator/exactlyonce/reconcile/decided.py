"""A batch that is decided in a sink of two phases, and not landed: the next driver finishes it. Performs no I/O."""

from __future__ import annotations

from exactlyonce.api.resource import FRESH
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Evidence,
    FinishCommit,
    Resume,
    RewindToSink,
    SkipLanded,
    Verdict,
)

MOST_LABELS = 20
"""So many are told; the ledger has all of them."""


def finish_commit(verdict: Resume | SkipLanded, decided: DecidedBatch) -> FinishCommit:
    """Return the verdict for a stream whose logs and positions agree, and whose decided batch has not landed."""
    reason = (
        f"Batch {decided.batch} is decided and {len(decided.committables)} of its loads are not known to be committed; the "
        "next driver commits what the sink has of them, before its first batch."
    )
    return FinishCommit(decided.batch, reason, verdict.evidence)


def decided_evidence(ledger: LedgerView) -> tuple[Evidence, ...]:
    """Return what is told of a decided batch, whatever the verdict is: no generation and no new start takes it back."""
    decided = ledger.decided
    if decided is None:
        return ()
    labels = [committable.label for committable in decided.committables]
    rows = sum(committable.rows for committable in decided.committables)
    told = ", ".join(labels[:MOST_LABELS]) + (" …" if len(labels) > MOST_LABELS else "")
    words = f"batch {decided.batch} is decided: {rows} rows are to be committed in the sink, as {told or 'nothing'}"
    data = {"batch": decided.batch, "rows": rows, "labels": labels[:MOST_LABELS], "loads": len(labels)}
    return (Evidence(words, data),)


def behind_its_sink(token: str, verdict: Verdict, went_back: Evidence | None) -> Contradiction | None:
    """The ledger holds less than it did: its sink has committed what it no longer knows of, which would land again.

    In a sink whose rows are in the ledger's database they went back as well; those of a manifest show which batch they are of.
    """
    if went_back is None and not isinstance(verdict, RewindToSink):
        return None
    found = verdict.evidence if went_back is None else (*verdict.evidence, went_back)
    words = verdict.reason if went_back is None else f"{went_back.words[0].upper()}{went_back.words[1:]}."
    return Contradiction(
        ContradictionReason.LEDGER_BEHIND_SINK,
        f"{words} The sink commits by itself and did not go back with its ledger: what landed since is there, and would land "
        f"again. Restore the ledger to a later moment; or annotate {FRESH}={token} to start over, with a start position that "
        "fits the sink.",
        found,
    )


def contradicts_its_batches(ledger: LedgerView) -> str | None:
    """Return how the record of the decided batch and the batches' own rows contradict each other."""
    decided = ledger.decided
    row = None if decided is None else ledger.batch(decided.batch)
    if decided is not None and row is not None and row.status is not BatchStatus.DECIDED:
        return f"it names batch {decided.batch} as decided and its table of batches says {row.status}"
    other = next((row for row in ledger.batches if row.status is BatchStatus.DECIDED and row is not _row(ledger)), None)
    return None if other is None else f"batch {other.batch} is Decided and nothing says what is to be committed of it"


def _row(ledger: LedgerView) -> object:
    return None if ledger.decided is None else ledger.batch(ledger.decided.batch)
