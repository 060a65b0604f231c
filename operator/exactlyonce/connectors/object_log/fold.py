"""What a log adds up to, and how much of one is read: a tenant writes it, and an operator reads those of many. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from exactlyonce.bounded_json import values_in
from exactlyonce.checkpoint.store import MOST_BYTES
from exactlyonce.connectors.object_log.documents import MOST_VALUES
from exactlyonce.connectors.object_log.state import LedgerState
from exactlyonce.errors import LedgerRefused

MOST_FOLDED_BYTES = 2 * MOST_BYTES
"""Of a snapshot and the entries after it, together."""

MOST_FOLDED_VALUES = MOST_VALUES

SNAPSHOT_FROM_BYTES = 8 << 20
SNAPSHOT_FROM_VALUES = MOST_FOLDED_VALUES // 4
"""So much more than the latest snapshot is in the entries after it before the next one is made, however few they are."""

ORIGIN_BYTES = 4096
"""The first object is no larger."""


class LogTooLarge(LedgerRefused):
    """A log, or an object that would become a part of one, is larger than what anybody reads."""


@dataclass(frozen=True, slots=True)
class Weight:
    """How much was read for a state: bytes, and values, which take more memory than they have bytes."""

    size_bytes: int = 0
    values: int = 0

    def and_of(self, content: bytes, location: str) -> Weight:
        """Return the weight with one more object.

        Raises:
            LogTooLarge: if that is more than is read of a log.
        """
        values = values_in(content.decode(errors="replace"), MOST_FOLDED_VALUES)
        weight = Weight(self.size_bytes + len(content), self.values + values)
        if weight.size_bytes > MOST_FOLDED_BYTES or weight.values > MOST_FOLDED_VALUES:
            raise LogTooLarge(
                f"The ledger at {location} has more than {MOST_FOLDED_BYTES} bytes or {MOST_FOLDED_VALUES} values in its "
                "latest snapshot and the entries after it, which is more than is read of one; restore it from a backup of "
                "when it was smaller, or start the stream afresh with an empty folder for its ledger."
            )
        return weight


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
    weight: Weight = Weight()
    base: Weight = Weight()

    def is_long(self, snapshot_every: int) -> bool:
        """Return whether it is time for a snapshot: there are many entries after the latest one, or large ones."""
        return (
            self.number - self.snapshot >= snapshot_every
            or self.weight.size_bytes - self.base.size_bytes >= SNAPSHOT_FROM_BYTES
            or self.weight.values - self.base.values >= SNAPSHOT_FROM_VALUES
        )


def require_readable(where: str, content: bytes) -> bytes:
    """Return the content of an object that is to be written, if whoever reads it does not refuse it for its size.

    Raises:
        LogTooLarge: if they would.
    """
    values = values_in(content.decode(), MOST_VALUES)
    if len(content) > MOST_BYTES or values > MOST_VALUES:
        has = f"{len(content)} bytes" if len(content) > MOST_BYTES else f"more than {MOST_VALUES} values"
        raise LogTooLarge(
            f"{where} would have {has}, and an object of a ledger may have at most {MOST_BYTES} bytes and {MOST_VALUES} "
            "values; keep fewer batches (ledgerRetention.batches.count), make batches smaller (limits of the source), or "
            "files larger (targetFileSize of a sink that writes files)."
        )
    return content
