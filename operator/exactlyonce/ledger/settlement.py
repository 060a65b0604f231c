"""A person's word on a load that the sink has committed and the ledger does not know. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.known_loads import FoundLoad, KnownLoads, LatestLoads
from exactlyonce.ledger.rows import BatchRow


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a person says of a load that was found: from then on the ledger knows it. `by` says who, as far as that is known.

    With COMMITTED its rows are in the sink, and its batch gets a `row`. With ABORTED none is; and with None the person set the
    positions by hand.
    """

    found: FoundLoad
    answer: Answer | None
    by: str
    row: BatchRow | None = None

    def settled(self, known: KnownLoads) -> KnownLoads:
        """Return what the stream's row says from then on."""
        label, latest = self.found.label or None, known.latest
        if label is None:
            return replace(known, found=None)
        if self.answer is Answer.COMMITTED or latest is None:
            return KnownLoads(LatestLoads(self.found.batch, (label,), None, self.found.place))
        return KnownLoads(replace(latest, before=label))


def how_to_answer(label: str) -> str:
    """Return in sentences what a person does who is to say whether the rows of a load are in the sink."""
    return (
        f"Look for these rows in the sink, then annotate the stream {SETTLE_LOADS} with {label}={Answer.COMMITTED} where it "
        f"has them, or {label}={Answer.ABORTED} where it has none: `exactlyonce settle-loads` writes the answer. Or restore a "
        "later state of the ledger."
    )
