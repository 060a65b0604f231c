"""What a log adds up to. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from exactlyonce.connectors.object_log.bounds import NOTHING, Bounds, Weight
from exactlyonce.connectors.object_log.state import LedgerState


@dataclass(frozen=True, slots=True)
class Fold:
    """What a log adds up to: its state after entry `number`, and the newest snapshot up to there that was seen.

    `weight` is that of what it was read from, and `base` the part of it that a snapshot was.
    """

    log_id: str
    number: int
    entry_id: str
    state: LedgerState = field(hash=False)
    snapshot: int = 0
    weight: Weight = NOTHING
    base: Weight = NOTHING

    def is_long(self, snapshot_every: int, bounds: Bounds) -> bool:
        """Return whether it is time for a snapshot: there are many entries after the latest one, or large ones."""
        return (
            self.number - self.snapshot >= snapshot_every
            or self.weight.size_bytes - self.base.size_bytes >= bounds.snapshot_bytes
            or self.weight.values - self.base.values >= bounds.snapshot_values
        )
