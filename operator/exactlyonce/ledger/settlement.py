"""A person's word on a load that the sink has committed and the ledger does not know. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
