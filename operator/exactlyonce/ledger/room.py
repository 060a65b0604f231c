"""Whether a ledger has room for ranges that a stream continues without. This is the one place that decides it: docs/adr/0061.

Performs no I/O. A person may bound the records in quarantine (recovery.maxQuarantined). A ledger that is read as a whole bounds
the ranges, since each is a row however many records it spans.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exactlyonce.errors import Refused
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.rows import FailureRow, FailureStatus

if TYPE_CHECKING:
    from exactlyonce.ledger.port import LedgerTransaction

KEPT = (*HELD, FailureStatus.LOST, FailureStatus.GIVEN_UP)
"""Ranges whose rows are the only record of what took no effect, so nothing deletes them unasked."""


class TooMuchInQuarantine(Refused):
    """More would be in quarantine than the resource allows, or more kept than the ledger holds; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Room:
    """Most ranges in quarantine, most ranges that are KEPT, and most bytes of the errors of those, each text counted once.

    `held` is smaller than `kept`: so what is in quarantine can be given up, and there is room in quarantine again.
    """

    held: int
    kept: int
    error_bytes: int


def counted_failures(
    transaction: LedgerTransaction, stream_id: str, *, counts_records: bool = True
) -> tuple[FailureRow, ...]:
    """Return a stream's failed ranges that `why_no_room` counts: those that are KEPT, where the ledger bounds those.

    Otherwise those in quarantine, where their records are bounded (`counts_records`).
    """
    statuses = KEPT if transaction.room is not None else HELD if counts_records else ()
    return tuple(row for status in statuses for row in transaction.read_failures(stream_id, status))


def why_no_room(
    before: Iterable[FailureRow], after: Iterable[FailureRow], most_records: int | None, room: Room | None
) -> str | None:
    """Return why the KEPT ranges may not become those of `after`, as a clause with the way out; None if they may.

    What does not grow is never refused, so giving up, replaying and deleting always pass. `most_records` is None where the
    resource does not bound the quarantine, `room` where the ledger has no bound.
    """
    were, would_be = _Amount.of(before), _Amount.of(after)
    if most_records is not None and would_be.records > max(most_records, were.records):
        return (
            f"{would_be.records} records would be in quarantine, more than recovery.maxQuarantined ({most_records}); replay "
            "some of them or give them up (`exactlyonce failures give-up`), or raise the limit"
        )
    if room is None:
        return None
    measures = (
        (would_be.held, were.held, room.held, "ranges in quarantine"),
        (would_be.kept, were.kept, room.kept, "ranges that are in quarantine, lost or given up"),
        (would_be.error_bytes, were.error_bytes, room.error_bytes, "bytes of the errors of such ranges"),
    )
    for found, was, most, what in measures:
        if found > max(most, was):
            return (
                f"the ledger would hold {found} {what}, more than the {most} that it has room for; replay what is in "
                "quarantine or give it up (`exactlyonce failures give-up`), and set ledgerRetention.lostFailures.age, after "
                "which ranges that are lost or given up are deleted"
            )
    return None


@dataclass(frozen=True, slots=True)
class _Amount:
    records: int
    held: int
    kept: int
    error_bytes: int

    @classmethod
    def of(cls, rows: Iterable[FailureRow]) -> _Amount:
        kept = [row for row in rows if row.status in KEPT]
        held = [row for row in kept if row.status in HELD]
        texts = {row.error for row in kept}
        return cls(sum(row.offset_count for row in held), len(held), len(kept), sum(map(text_bytes, texts)))


def text_bytes(text: str) -> int:
    """Return how many bytes of JSON a text is."""
    return len(json.dumps(text))
