"""What a ledger keeps of records that did not land, as a person looks at it. Performs no I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.letters import LetterKey, LetterRow, LetterStatus
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition, key_of


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
class RecordedBackfill:
    """A backfill as the ledger has it, when it was first asked for, and when something of it last changed."""

    backfill: Backfill
    began_at: datetime
    changed_at: datetime


class Stretch(Protocol):
    """A stretch of one partition, whatever batches its records were in; half-open."""

    @property
    def partition(self) -> Partition:
        """The partition."""
        ...

    @property
    def from_offset(self) -> int:
        """The first position."""
        ...

    @property
    def until_offset(self) -> int:
        """The position behind the last."""
        ...


class Span(Stretch, Protocol):
    """A stretch of one partition within one batch; half-open."""

    @property
    def batch(self) -> BatchNumber:
        """The batch."""
        ...


@dataclass(frozen=True, slots=True)
class FailureSummary:
    """How much failed: when the oldest range got its status, None where there is none, and records since some moments."""

    oldest: datetime | None = None
    records_since: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedLetter:
    """A malformed record, with its bytes.

    `row` is the letter as the ledger has it, and `status` what became of it. `place` is its position in the words of the
    source, where it has others. `timestamp` is the record's own. `value_bytes` is the length of the value, also where key and
    value themselves were not asked for and are None.
    """

    row: LetterRow
    status: LetterStatus
    timestamp: datetime | None
    record_key: bytes | None
    value: bytes | None
    landed_at: datetime
    place: Mapping[str, object] | None
    value_bytes: int | None

    @property
    def identifier(self) -> str:
        """Partition and position; the same for the letters of an origin that was recreated."""
        return self.row.identifier


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


def parts_within(rows: Iterable[FailureRow], spans: Sequence[Span]) -> tuple[FailureRow, ...]:
    """Return what `FailureHistory.parts_of` does of a stream's rows that have one of the statuses."""
    held: list[FailureRow] = []
    ended: dict[tuple[Span, FailureStatus], FailureRow] = {}
    places: dict[tuple[BatchNumber, Partition], list[Span]] = defaultdict(list)
    for span in spans:
        places[span.batch, span.partition].append(span)
    for row in sorted(rows, key=lambda it: (it.batch, it.partition, it.from_offset)):
        for span in places[row.batch, row.partition]:
            if span.from_offset <= row.from_offset < span.until_offset:
                if row.status in HELD:
                    held.append(row)
                else:
                    before = ended.get((span, row.status))
                    until = row.until_offset if before is None else before.until_offset + row.offset_count
                    ended[span, row.status] = replace(before or row, until_offset=until)
    return (*ended.values(), *held)


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many records of one stretch are in failed ranges with a status."""

    partition: Partition
    from_offset: int
    status: FailureStatus
    records: int


def overlaps_within(rows: Iterable[FailureRow], stretches: Sequence[Stretch], by: str) -> tuple[Overlap, ...]:
    """Return what `FailureHistory.overlaps_of` does of a stream's rows that have one of the statuses."""
    records: Counter[tuple[Partition, int, FailureStatus]] = Counter()
    for row in rows:
        if row.status is FailureStatus.REPLAYED and not row.replay.startswith(by):
            continue
        for it in stretches:
            begin, end = max(row.from_offset, it.from_offset), min(row.until_offset, it.until_offset)
            if row.partition == it.partition and begin < end:
                records[it.partition, it.from_offset, row.status] += end - begin
    return tuple(Overlap(*place, count) for place, count in records.items())


class FailureHistory(Protocol):
    """The part of a ledger that a person looks at; nothing is locked and nothing is changed."""

    def kept_failures(
        self,
        stream_id: str,
        statuses: Collection[FailureStatus],
        batches: Collection[BatchNumber] | None,
        most: int,
        most_characters: int | None = None,
    ) -> tuple[RecordedFailure, ...]:
        """Return at most `most` failed ranges with one of the statuses, earliest batches first; None is every batch.

        Of each error they have the first `most_characters`, and no text beyond what a driver writes, or all of it.

        Raises:
            LedgerUnreachable, LedgerRefused: if the ledger does not answer.
        """
        ...

    def parts_of(
        self, stream_id: str, statuses: Collection[FailureStatus], spans: Sequence[Span], most: int
    ) -> tuple[FailureRow, ...]:
        """Return the failed ranges with one of the statuses that begin in one of some spans, without their errors.

        What is in quarantine comes range by range. The rest of a span comes as one range for each status, which has as many
        records as all of that together: a span that has landed in a thousand parts is one row. The spans do not overlap.
        At most `most` rows, and what is in quarantine last.

        Raises:
            LedgerUnreachable, LedgerRefused: if the ledger does not answer.
        """
        ...

    def overlaps_of(
        self, stream_id: str, statuses: Collection[FailureStatus], stretches: Sequence[Stretch], by: str
    ) -> tuple[Overlap, ...]:
        """Return how many records of each stretch are in failed ranges with each of the statuses, however many there are.

        Of what replays have landed only those count whose token begins with `by`. The stretches do not overlap.

        Raises:
            LedgerUnreachable, LedgerRefused: if the ledger does not answer.
        """
        ...

    def summed_failures(
        self, stream_id: str, statuses: Collection[FailureStatus], moments: Sequence[datetime]
    ) -> FailureSummary:
        """Return what there is with one of the statuses, and for each moment the records that got theirs after it.

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
            LedgerUnreachable, LedgerRefused: if the ledger does not answer.
        """
        ...

    def replayed_records(self, stream_id: str, by: str) -> int:
        """Return how many records of failed ranges have been landed by replays whose token begins with `by`.

        Raises:
            LedgerUnreachable, LedgerRefused: as `kept_failures`.
        """
        ...

    def kept_backfills(self, stream_id: str) -> tuple[RecordedBackfill, ...]:
        """Return the backfills of a stream, the earliest first; a ledger that takes no replay has none.

        Raises:
            LedgerUnreachable, LedgerRefused: as `kept_failures`.
        """
        ...

    def replayed_letters(self, stream_id: str, by: str) -> int:
        """Return how many dead letters have been landed by replays whose token begins with `by`.

        Raises:
            LedgerUnreachable, LedgerRefused: as `kept_letters`.
        """
        ...

    def letters_of(
        self, stream_id: str, keys: Collection[LetterKey], most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return the dead letters with these keys, in the order of keys; bounded in bytes as `kept_letters` is.

        Raises:
            LedgerUnreachable, LedgerRefused: as `kept_letters`.
        """
        ...
