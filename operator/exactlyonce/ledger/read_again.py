"""What a stream has in quarantine and will read again, because its positions are set back. Performs no I/O.

What is in quarantine may be replayed beside the stream. Where the stream itself reads it again, a replay would land it a second
time, so it leaves the quarantine in the very transaction that sets the positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions
from exactlyonce.positions.fingerprint import is_origin_id, is_other_origin


def read_again(
    held: Sequence[FailureRow], after: LandedPositions, known_ids: Mapping[str, str]
) -> tuple[FailureRow, ...]:
    """Return the rows that change when the stream is set to `after`, each with what becomes of it.

    A range from which the stream continues reading is Superseded; of one that the position divides, only the part behind it. A
    range of an origin that has been replaced is Lost: nobody can read its records any more. All others stay as they are.

    `known_ids` are the ids of the origins until now: a row whose source had none is of these.
    """
    return tuple(changed for row in held for changed in _changed(row, after, known_ids))


def decided_of(
    held: Sequence[FailureRow], after: LandedPositions, known_ids: Mapping[str, str]
) -> tuple[FailureRow, ...]:
    """Return what a replay has decided of the rows, and the stream would read again: its records would land twice."""
    return tuple(
        row
        for row in held
        if row.is_decided and any(it.status is FailureStatus.SUPERSEDED for it in _changed(row, after, known_ids))
    )


def _changed(row: FailureRow, after: LandedPositions, known_ids: Mapping[str, str]) -> Iterator[FailureRow]:
    origin = row.partition.origin
    origin_id = row.origin_id if is_origin_id(row.origin_id) else known_ids.get(origin)
    position = after.positions.get(row.partition)
    if is_other_origin(origin_id, after.origin_ids.get(origin)):
        error = f"{row.partition.origin} was replaced before these records were replayed. They had failed: {row.error}"
        yield replace(row, status=FailureStatus.LOST, error=error, origin_gone=True)
    elif position is not None and position <= row.from_offset:
        yield replace(row, status=FailureStatus.SUPERSEDED)
    elif position is not None and position < row.until_offset:
        # The fingerprint is of the last record, which goes with the second part.
        yield replace(row, until_offset=position, fingerprint=None)
        yield replace(row, from_offset=position, status=FailureStatus.SUPERSEDED)
