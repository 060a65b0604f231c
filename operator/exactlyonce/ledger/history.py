"""What a ledger keeps of records that did not land, as a person looks at it. Performs no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition

LetterKey = tuple[str, str, int, int]
"""What tells a dead letter from the others of its stream, and where the next page of them begins; it has no other meaning."""


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """A failed range, and when it got the status that it has."""

    row: FailureRow
    changed_at: datetime

    @property
    def identifier(self) -> str:
        """What tells the range from the others of its stream: batch, partition and first position."""
        return f"{self.row.batch}/{self.row.partition}/{self.row.from_offset}"


@dataclass(frozen=True, slots=True)
class RecordedLetter:
    """A malformed record, with its bytes.

    `position` is where it stands in its partition, and `origin_id` which origin that was: of one that was recreated there may
    be another letter with the same position. `place` is the same in the words of the source, where it has others.
    `timestamp` is the record's own.
    """

    partition: Partition
    position: int
    origin_id: str
    batch: BatchNumber
    timestamp: datetime | None
    record_key: bytes | None
    value: bytes | None
    error: str
    landed_at: datetime
    place: Mapping[str, object] | None
    letter_key: LetterKey

    @property
    def identifier(self) -> str:
        """Partition and position; the same for the letters of an origin that was recreated."""
        return f"{self.partition}/{self.position}"


class FailureHistory(Protocol):
    """The part of a ledger that a person looks at; nothing is locked and nothing is changed."""

    def kept_failures(
        self, stream_id: str, statuses: Collection[FailureStatus], batch: BatchNumber | None, most: int
    ) -> tuple[RecordedFailure, ...]:
        """Return at most `most` failed ranges with one of the statuses, earliest batches first; of one batch if it is given.

        Raises:
            LedgerUnreachable, LedgerRefused: if the ledger does not answer.
        """
        ...

    def kept_letters(
        self, stream_id: str, position: int | None, after: LetterKey | None, most: int
    ) -> tuple[RecordedLetter, ...]:
        """Return at most `most` dead letters behind `after`, by partition; only those at a position if one is given.

        A ledger that is not in the database of the rows holds none.

        Raises:
            LedgerUnreachable, LedgerRefused: if the ledger does not answer, or is of an earlier release.
        """
        ...
