"""A batch that is decided in a sink of two phases, and not landed: the next driver finishes it. Performs no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from exactlyonce.api.resource import FRESH, SETTLE_LOADS
from exactlyonce.bounded_text import one_line
from exactlyonce.ledger.decided import Answer, DecidedBatch
from exactlyonce.ledger.known_loads import FoundLoad
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.reconcile.asked_reset import MOST_CHARACTERS_OF_BY
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Evidence,
    FinishCommit,
    RecordAnswers,
    Resume,
    RewindToSink,
    SkipLanded,
    Verdict,
)

MOST_LABELS = 20
"""So many are told; the ledger has all of them."""


def finish_commit(verdict: Resume | SkipLanded, decided: DecidedBatch) -> FinishCommit:
    """Return the verdict for a stream whose logs and positions agree, and whose decided batch has not landed."""
    loads = len(decided.committables)
    message = (
        f"Batch {decided.batch} is decided and {loads} of its loads are not known to be committed; the "
        "next driver commits what the sink has of them, before its first batch."
        if loads
        else f"Batch {decided.batch} is decided and all of its loads are committed; the next driver lands it."
    )
    return FinishCommit(decided.batch, message, verdict.evidence)


def decided_evidence(ledger: LedgerView) -> tuple[Evidence, ...]:
    """Return what is told of a decided batch, whatever the verdict is: no generation and no new start takes it back."""
    decided = ledger.decided
    if decided is None:
        return ()
    labels = [committable.answered_as for committable in decided.committables]
    rows = sum(committable.rows for committable in decided.committables)
    told = ", ".join(labels[:MOST_LABELS]) + (" …" if len(labels) > MOST_LABELS else "")
    left = f"{rows} rows are to be committed in the sink, as {told}" if labels else "all of its rows are committed"
    words = f"batch {decided.batch} is decided: {left}"
    data = {"batch": decided.batch, "rows": rows, "labels": labels[:MOST_LABELS], "loads": len(labels)}
    return (Evidence(words, data),)


_BY = re.compile(r"(?:^|[\s,])by=([^\s,]+)")
_ANSWER = re.compile(rf"([^\s=,]+)=({'|'.join(Answer)})")


def answered(ledger: LedgerView, settle_loads: str | None) -> tuple[tuple[RecordAnswers, ...], tuple[Evidence, ...]]:
    """Return what is to be written down of the answers that the annotation gives, and what is told of it.

    An answer names a load by its label, with the id of its transaction where another load may have that label; one that names
    no load of the decided batch has no effect, so that an annotation that was left behind has none.
    """
    if ledger.decided is None or settle_loads is None:
        return (), ()
    given = answers_in(settle_loads)
    new: Mapping[str, Answer] = {
        one.label: given[one.answered_as]
        for one in ledger.decided.committables
        if one.answered_as in given and one.answer is not given[one.answered_as]
    }
    if not new:
        return (), ()
    told = ", ".join(f"{label}={answer}" for label, answer in list(new.items())[:MOST_LABELS])
    words = (
        f"a person answers for {len(new)} loads that the sink may have forgotten or loaded in part, by the annotation "
        f"{SETTLE_LOADS}: {told}"
    )
    return (RecordAnswers(ledger.decided.batch, new),), (Evidence(words, {"answers": len(new)}),)


def answered_by(text: str | None) -> str:
    """Return who has given the answers, as far as they say."""
    found = _BY.search(text or "")
    return one_line(found[1], MOST_CHARACTERS_OF_BY) if found else f"the annotation {SETTLE_LOADS}"


def answers_in(text: str) -> dict[str, Answer]:
    """Return answers by their labels; a label that is given both has none, since only one of them can be right."""
    words = (_ANSWER.fullmatch(word) for word in re.split(r"[\s,]+", text))
    found = {(match[1], Answer(match[2])) for match in words if match is not None}
    times = Counter(label for label, _ in found)
    return {label: answer for label, answer in found if times[label] == 1}


def behind_its_sink(token: str, verdict: Verdict, went_back: Evidence | None, doubt: FoundLoad) -> Contradiction:
    """The ledger holds less than it did: its sink has committed what it no longer knows of, which would land again.

    In a sink whose rows are in the ledger's database they went back as well; those of a manifest show which batch they are of.
    """
    found = verdict.evidence if went_back is None else (*verdict.evidence, went_back)
    words = f"Batch {doubt.batch} had landed, and the ledger does not have it."
    if went_back is not None:
        words = f"{went_back.words[0].upper()}{went_back.words[1:]}."
    elif isinstance(verdict, RewindToSink):
        words = verdict.message
    return Contradiction(
        ContradictionReason.LEDGER_BEHIND_SINK,
        f"{words} The sink commits by itself and did not go back with its ledger: what landed since is there, and would land "
        "again. Restore the ledger to a later moment; or look into the sink and set the positions after what it has with "
        f"`exactlyonce offsets reset`; or annotate {FRESH}={token} to start over, with a start position that fits the sink.",
        found,
    )


def contradicts_its_batches(ledger: LedgerView) -> str | None:
    """Return how the record of the decided batch and the batches' own rows contradict each other."""
    decided = ledger.decided
    row = None if decided is None else ledger.batch(decided.batch)
    if decided is not None and row is not None and row.status is not BatchStatus.DECIDED:
        return f"it names batch {decided.batch} as decided and its table of batches says {row.status}"
    other = next((one for one in ledger.batches if one.status is BatchStatus.DECIDED and one is not row), None)
    return None if other is None else f"batch {other.batch} is Decided and nothing says what is to be committed of it"
