"""Does the ledger hold what the resource's status remembers of it? Performs no I/O."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.api.resource import FRESH
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import Contradiction, ContradictionReason, Evidence, Verdict


def known_evidence(seen: Observation) -> tuple[Evidence, ...]:
    """Return what the status remembers, where it remembers a batch."""
    known = seen.known
    if known is None:
        return ()
    data = {"knownBatch": known.batch, "knownAt": None if known.at is None else known.at.isoformat()}
    return (Evidence(known.words, data),)


def ledger_lost(seen: Observation) -> Contradiction | None:
    """The status knows a landed batch and the ledger holds none: to start now would land everything a second time."""
    if seen.known is None:
        return None
    stream_id = seen.request.stream_id
    token = "the token that the next attempt names" if seen.ledger is None else seen.ledger.stream.token
    found = Evidence(
        f"the ledger at {seen.database} holds no batch of {stream_id}", {"streamId": stream_id, "landed": None}
    )
    return Contradiction(
        ContradictionReason.LEDGER_LOST,
        f"The ledger at {seen.database} holds no batch of {stream_id}, and {seen.known.words}: the ledger was lost, was "
        f"restored to a moment before the first batch, or is another one. Restore it; or annotate {FRESH}={token} to start "
        "over at the start position: what is still in the table stays, and what is read again lands again.",
        (found, *known_evidence(seen)),
    )


def went_back(seen: Observation, ledger: LedgerView) -> Evidence | None:
    """Return what is told when the ledger holds an earlier batch than the status remembers.

    No reason to halt: rows and ledger are in one database, so what the ledger no longer holds is no longer in the table either,
    unless somebody has restored a part of it.
    """
    landed, known = ledger.stream.landed_batch, seen.known
    if known is None or landed is None or known.batch <= landed:
        return None
    words = (
        f"{known.words}, and the ledger holds batch {landed} as the latest: the database went back, and the records of the "
        "batches since then land again"
    )
    return Evidence(words, {"knownBatch": known.batch, "landed": landed})


def telling_that_it_went_back(verdict: Verdict, found: Evidence | None) -> Verdict:
    """Return the verdict with what the status remembers in its message and its evidence, where the ledger went back."""
    if found is None:
        return verdict
    said = found.words[0].upper() + found.words[1:]
    return replace(verdict, message=f"{verdict.message} {said}.", evidence=(*verdict.evidence, found))


def adopts_too_little(seen: Observation, planned: BatchNumber) -> bool:
    """Whether a checkpoint without a ledger ends before a batch that the status knows to have landed."""
    return seen.known is not None and planned < seen.known.batch
