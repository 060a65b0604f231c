"""What has been fetched of one shard and not yet been planned into a batch. Performs no I/O; no pyspark here.

Records are held as Kinesis gives them, aggregates whole. What is fetched while too much is held already is only counted,
page by page: a batch may then end behind such a page, and its task reads the range again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exactlyonce.connectors.kinesis.aggregation import RawRecord, user_record_count
from exactlyonce.connectors.kinesis.positions import (
    TRIM_HORIZON,
    UserRecord,
    position_after_record,
    position_of_record,
)

RECORD_OVERHEAD_BYTES = 300
"""What a held record takes of memory beside its data and key: 34 MB of records of 100 bytes took 155 MB (measured)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a batch ends in a shard, and how many user records and bytes lie before that."""

    position: int
    records: int
    size_bytes: int


class _Held(NamedTuple):
    """A record; of its `last` user records those from `first` on are still to be planned."""

    record: RawRecord
    first: int
    last: int

    @property
    def left(self) -> int:
        return self.last - self.first


def size_of(record: RawRecord) -> int:
    """Return the bytes by which Kinesis' own limits count a record."""
    return len(record.data) + len(record.partition_key)


class ReadAhead:
    """One shard: what lies between `start`, where the next batch begins, and `reached`, where the next fetch does."""

    def __init__(self, start: int) -> None:
        self.start = self.reached = start
        self._held: deque[_Held] = deque()
        self._counted: list[Cut] = []
        self.held_bytes = 0

    @property
    def records(self) -> int:
        """How many user records there are."""
        return sum(held.left for held in self._held) + sum(page.records for page in self._counted)

    @property
    def size_bytes(self) -> int:
        """How many bytes there are, counted pages included."""
        return self.held_bytes + sum(page.size_bytes for page in self._counted)

    @property
    def memory_bytes(self) -> int:
        """How much memory what is held takes, about."""
        return self.held_bytes + RECORD_OVERHEAD_BYTES * len(self._held)

    @property
    def holds_records(self) -> bool:
        """Whether a batch can end behind the next user record."""
        return bool(self._held)

    def add(self, records: Sequence[RawRecord], reached: int, keep: Callable[[int], bool]) -> None:
        """Add a page; `reached` is the position behind it. `keep` says whether so many bytes of memory may be held."""
        held = [entry for record in records if (entry := self._entry(record)).left]
        size = sum(size_of(entry.record) for entry in held)
        self.reached = reached
        if not self._counted and keep(size + RECORD_OVERHEAD_BYTES * len(held)):
            self._held.extend(held)
            self.held_bytes += size
        elif held:
            self._counted.append(Cut(reached, sum(entry.left for entry in held), size))
        elif self._counted:
            self._counted.append(Cut(reached, 0, 0))

    def cut(self, records: int, size_bytes: int) -> Cut:
        """Return where a batch ends that takes at most so much; a record that is larger than all of it is taken alone.

        At the start of a shard a batch takes nothing, and ends where the oldest record begins: so the log and then the ledger
        name that record before any is read, and a later read that does not find it there says so.
        """
        if self.start == TRIM_HORIZON and self._held:
            return Cut(position_of_record(self._held[0].record.sequence_number), 0, 0)
        position, taken, size = self.start, 0, 0
        for held in self._held:
            if taken >= records or (taken and size + size_of(held.record) > size_bytes):
                return Cut(position, taken, size)
            size += size_of(held.record)
            if taken + held.left > records:
                inside = UserRecord(held.record.sequence_number, held.first + records - taken)
                return Cut(inside.position, records, size)
            taken += held.left
            position = position_after_record(held.record.sequence_number)
        for page in self._counted:
            if taken + page.records > records or size + page.size_bytes > size_bytes:
                return Cut(position, taken, size)
            position, taken, size = page.position, taken + page.records, size + page.size_bytes
        return Cut(self.reached, taken, size)

    def advance(self, start: int) -> None:
        """Let the next batch begin at `start`: forget what lies before it, and what does not follow on it.

        `reached` tells afterwards where the next fetch has to begin, which may be before what was fetched.
        """
        if start == self.reached or not self.start <= start <= self._end_of_held:
            self._held.clear()
            self._counted.clear()
            self.start, self.reached, self.held_bytes = start, start, 0
            return
        if self._counted:
            self._counted.clear()
            self.reached = self._end_of_held
        while self._held and position_after_record(self._held[0].record.sequence_number) <= start:
            self.held_bytes -= size_of(self._held.popleft().record)
        self.start = start
        if self._held:
            self._held.appendleft(self._entry(self._held.popleft().record))

    def between(self, start: int, end: int) -> tuple[RawRecord, ...] | None:
        """Return the records of a range, None where they are not all here."""
        if start != self.start or end > (self._end_of_held if self._counted else self.reached):
            return None
        return tuple(held.record for held in self._held if position_of_record(held.record.sequence_number) < end)

    @property
    def _end_of_held(self) -> int:
        return position_after_record(self._held[-1].record.sequence_number) if self._held else self.start

    def _entry(self, record: RawRecord) -> _Held:
        """A batch may have ended inside the record, or behind it."""
        count = user_record_count(record)
        if position_of_record(record.sequence_number) >= self.start:  # nearly always
            return _Held(record, 0, count)
        if position_after_record(record.sequence_number) <= self.start:
            return _Held(record, count, count)
        return _Held(record, min(UserRecord.at(self.start).sub_sequence_number, count), count)
