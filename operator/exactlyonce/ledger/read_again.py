"""What a stream has in quarantine and will read again, because its positions are set back. Performs no I/O.

What is in quarantine may be replayed beside the stream. Where the stream itself reads it again, a replay would land it a second
time, so it leaves the quarantine in the very transaction that sets the positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.fingerprint import is_other_origin

HELD = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING)
"""Ranges that the stream has continued after and that have not taken effect; they lie before its positions."""


def read_again(held: Iterable[FailureRow], after: LandedPositions) -> tuple[FailureRow, ...]:
    """Return the rows that change when the stream is set to `after`, each with what becomes of it.

    A range from which the stream reads on is Superseded; of one that the position divides, only the part behind it. A range of
    an origin that has been replaced is Lost: nobody can read its records any more. All others stay as they are.
    """
    return tuple(changed for row in held for changed in _changed(row, after))


def _changed(row: FailureRow, after: LandedPositions) -> Iterator[FailureRow]:
    position = after.positions.get(row.partition)
    if is_other_origin(row.origin_id, after.origin_ids.get(row.partition.origin)):
        error = f"{row.partition.origin} was replaced before these records were replayed. They had failed: {row.error}"
        yield replace(row, status=FailureStatus.LOST, error=error, origin_gone=True)
    elif position is not None and position <= row.from_offset:
        yield replace(row, status=FailureStatus.SUPERSEDED)
    elif position is not None and position < row.until_offset:
        # The fingerprint is of the last record, which goes with the second part.
        yield replace(row, until_offset=position, fingerprint=None)
        yield replace(row, from_offset=position, status=FailureStatus.SUPERSEDED)
