"""What a stream has in quarantine, with what a replay has taken of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exactlyonce.ledger.rows import FailureRow, FailureStatus

if TYPE_CHECKING:
    from exactlyonce.ledger.port import LedgerTransaction

HELD = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING)
"""Ranges that the stream has continued after and that have not taken effect; they lie before its positions."""


def held_failures(transaction: LedgerTransaction, stream_id: str) -> tuple[FailureRow, ...]:
    """Return a stream's failed ranges that are HELD."""
    return tuple(row for status in HELD for row in transaction.read_failures(stream_id, status))
