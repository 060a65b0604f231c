"""How much a log holds, so that it can always be read, and always be emptied: docs/adr/0061. Performs no I/O.

Whoever reads a log serves others as well, so it reads no more than so many bytes and values. A writer stays below that by a
reserve. Only what makes the log smaller, and who takes the stream over to do that, may use the reserve.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from exactlyonce.bounded_json import values_in
from exactlyonce.checkpoint.store import MOST_BYTES
from exactlyonce.connectors.object_log.state import Changes, LedgerState, Table
from exactlyonce.errors import LedgerRefused, Refused
from exactlyonce.ledger.room import Room, text_bytes

MOST_VALUES = 1_000_000
"""Of one object, and of a snapshot with the entries after it. Parsed, they need 140 MB at most, and are let go once they are
rows."""

LONGEST_TEXT = 20_000
"""Characters of an error or a note that are kept: of a longer one the beginning, and the end, where the cause often stands."""

_REPLACED_ROWS = frozenset({Table.STREAM, Table.QUERY})
"""Tables with one row each, which a raise, a claim and the start of a driver replace."""


class LogTooLarge(LedgerRefused):
    """A log is larger than what anybody reads."""


class LogFull(Refused):
    """A log has no room for what is to be written, and nothing was written; what empties the log still is."""


@dataclass(frozen=True, slots=True)
class Weight:
    """How much was read for a state: bytes, and values, which take more memory than they have bytes.

    It is at least what a snapshot of the state would have. `archived_bytes` of them leave with the next snapshot: committables.
    """

    size_bytes: int = 0
    values: int = 0
    archived_bytes: int = 0

    def and_of(self, content: bytes) -> Weight:
        """Return the weight with one more object."""
        values = values_in(content.decode(errors="replace"), MOST_VALUES)
        return replace(self, size_bytes=self.size_bytes + len(content), values=self.values + values)

    def archiving(self, changes: Changes) -> Weight:
        """Return the weight once it is known what the latest object changes."""
        texts = [row for key, row in changes.items() if key.table is Table.COMMITTABLE and row is not None]
        return replace(self, archived_bytes=self.archived_bytes + sum(map(text_bytes, texts)))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a log may hold; tests have smaller ones.

    The sums, in values: 1,000,000 are read, and 150,000 of them are reserved. The widest entry of a stream of 5,000 partitions
    has 200,000. The other 650,000 are its positions (40,000), its latest 5 batches (75,000) and the failures of the latest two
    (90,000), earlier batches (150,000), and failed ranges of at most 24 each: 10,000 that are kept, and 2,500 that are over.
    """

    object_bytes: int = MOST_BYTES
    folded_bytes: int = 2 * MOST_BYTES
    values: int = MOST_VALUES
    reserved: float = 0.15
    """The part of each of the three that only `frees` may use."""
    snapshot_bytes: int = 8 << 20
    snapshot_values: int = MOST_VALUES // 8
    """So much more than the latest snapshot is in the entries after it before the next one is made, however few they are."""
    batch_ranges: int = 50_000
    """Of all batches that are kept; each counts as 5 more for its row."""
    ended_ranges: int = 2500
    """Of failures that have landed or are planned again."""
    text_bytes: int = 2 << 20
    """Of the errors of those, and of the notes of batches."""
    room: Room = field(default_factory=lambda: Room(held=5000, kept=10_000, error_bytes=8 << 20))

    def require_readable(self, weight: Weight, location: str) -> None:
        """Require that a log is not larger than what is read of one.

        Raises:
            LogTooLarge: if it is.
        """
        if weight.size_bytes > self.folded_bytes or weight.values > self.values:
            raise LogTooLarge(
                f"The ledger at {location} has more than {self.folded_bytes} bytes or {self.values} values in its latest "
                "snapshot and the entries after it, which is more than is read of one and than any release writes; restore it "
                "from a backup, or start the stream afresh with an empty folder for its ledger."
            )

    def require_object(self, where: str, content: bytes) -> bytes:
        """Return the content of an object that is to be written, if whoever reads it does not refuse it for its size.

        Raises:
            LogFull: if they would.
        """
        values = values_in(content.decode(), self.values)
        if len(content) > self.object_bytes or values > self.values:
            raise LogFull(
                f"{where} would have {len(content)} bytes and {values} values, and no more than {self.object_bytes} bytes and "
                f"{self.values} values are read of an object of a ledger; it was not written."
            )
        return content

    def refusal(
        self, weight: Weight, entry: bytes, changes: Changes, location: str, *, frees: bool = False
    ) -> LogFull | None:
        """Return the refusal of an entry that would make a log of this weight too large for a snapshot or a reader."""
        made, share = weight.and_of(entry).archiving(changes), 1.0 if frees else 1.0 - self.reserved
        if (
            len(entry) <= self.object_bytes
            and made.size_bytes <= share * self.folded_bytes
            and made.size_bytes - made.archived_bytes <= share * self.object_bytes
            and made.values <= share * self.values
        ):
            return None
        return LogFull(
            f"The ledger at {location} has no room for an entry of {len(entry)} bytes: with it there would be "
            f"{made.size_bytes} bytes, {made.archived_bytes} of them lists of files, and {made.values} values. It takes "
            f"{int(share * self.folded_bytes)} bytes, {int(share * self.object_bytes)} beside lists of files, and "
            f"{int(share * self.values)} values; nothing was written. Replay what is in quarantine or give it up "
            "(`exactlyonce failures give-up`), shorten ledgerRetention, make batches smaller (limits of the source) or files "
            "larger (targetFileSize of a sink that writes files), or let another stream read some of the partitions."
        )


NOTHING = Weight()
BOUNDS = Bounds()


def frees(changes: Changes, state: LedgerState) -> bool:
    """Whether changes only remove rows, settle failed ranges, or have an epoch raised, claimed or released: no table grows."""
    return all(
        row is None or (key.table in (*_REPLACED_ROWS, Table.FAILURE) and state.get(key) is not None)
        for key, row in changes.items()
    )


def cut(text: str) -> str:
    """Return what is kept of a longer error or note."""
    half = LONGEST_TEXT // 2
    return f"{text[: half - 3]} … {text[-half:]}"


def distinct_bytes(texts: Iterable[str]) -> int:
    """Return how many bytes texts have, each of which is written once."""
    return sum(map(text_bytes, set(texts)))
