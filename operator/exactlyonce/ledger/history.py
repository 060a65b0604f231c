"""What a ledger keeps of records that did not land, as a person looks at it. Performs no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition, key_of

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
    `timestamp` is the record's own. `value_bytes` is the length of the value, also where key and value themselves were not
    asked for and are None.
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
    value_bytes: int | None

    @property
    def identifier(self) -> str:
        """Partition and position; the same for the letters of an origin that was recreated."""
        return f"{self.partition}/{self.position}"


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """A position in any of some partitions: the text of an identifier can be that of several."""

    partitions: tuple[Partition, ...]
    position: int

    @classmethod
    def of(cls, partition: str, position: int) -> LetterPlace:
        """Return the place at a position of whichever partitions are written like this."""
        splits = [index for index, character in enumerate(partition) if character == "-"]
        found = (Partition(partition[:index], key_of(partition[index + 1 :])) for index in splits)
        return cls(tuple(it for it in found if str(it) == partition), position)


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
        self, stream_id: str, place: LetterPlace | None, after: LetterKey | None, most: int, most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return at most `most` dead letters behind `after`, by partition; only those at a place if one is given.

        They hold little more than `most_bytes` bytes: none follows the one that exceeds them. With None they come without
        their keys and values.

        A ledger that is not in the database of the rows holds none.

        Raises:
            LedgerUnreachable, LedgerRefused: if the ledger does not answer, or is of an earlier release.
        """
        ...
