"""What a log adds up to: tables of typed rows, never changed in place. Performs no I/O."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.rows import BatchRow, FailureRow, LandedPositions, LedgerView
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition, Positions


class Table(StrEnum):
    """The kinds of rows; the words are part of the format."""

    STREAM = "stream"
    QUERY = "query"
    POSITION = "position"
    RETIRED = "retired"
    STRETCH = "stretch"
    BATCH = "batch"
    FAILURE = "failure"
    COMMITTABLE = "committable"
    DECIDED = "decided"
    REPLAYED = "replayed"
    """What a replay made visible and no batch has taken over."""
    ARCHIVE = "archive"
    """Which objects hold committables that are in the snapshots no more: by number and part, with how many."""


class Key(NamedTuple):
    """Which row: its table, its stream, and what tells it from the stream's other rows there."""

    table: Table
    stream_id: str
    rest: tuple[Hashable, ...] = ()


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a stream stands in one partition."""

    offset: int
    origin_id: str
    fingerprint: Fingerprint | None = None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch's row, and when the first of its records was made."""

    row: BatchRow
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """A failure's row and when it was changed last.

    `stretch` is set where its records are given up: how often the partition had begun to be read again by then. `held_since` is
    since when the range is in quarantine, however often replays have taken it since.
    """

    row: FailureRow
    changed_at: datetime
    stretch: int | None = None
    held_since: datetime | None = None


def stored_failure(row: FailureRow, now: datetime, stretch: int | None, before: StoredFailure | None) -> StoredFailure:
    """Return a failure that is written now in the place of another one, if there is one."""
    if row.status not in HELD:
        return StoredFailure(row, now, stretch)
    if before is None or before.row.status not in HELD:
        return StoredFailure(row, now, stretch, now)
    return StoredFailure(row, now, stretch, before.held_since)


Rows = Mapping[tuple[Hashable, ...], Any]
Changes = Mapping[Key, Any]
"""New rows by their key; None where a row goes."""

_NO_ROWS: Rows = MappingProxyType({})


@dataclass(frozen=True)
class LedgerState:
    """All rows of a ledger after some transaction. A change makes another state and shares the tables it leaves alone."""

    tables: Mapping[tuple[Table, str], Rows] = field(default_factory=dict)

    def rows(self, table: Table, stream_id: str) -> Rows:
        """Return a stream's rows in one table."""
        return self.tables.get((table, stream_id), _NO_ROWS)

    def get(self, key: Key) -> Any:
        """Return a row, or None."""
        return self.rows(key.table, key.stream_id).get(key.rest)

    def after(self, changes: Changes) -> LedgerState:
        """Return the state with these changes. With a stream's own row, all of its rows go.

        Whoever deletes them need not know each: committables may be in one process's state and archived in another's.
        """
        gone = {key.stream_id for key, row in changes.items() if key.table is Table.STREAM and row is None}
        if gone:
            return LedgerState({place: rows for place, rows in self.tables.items() if place[1] not in gone}).after(
                {key: row for key, row in changes.items() if key.stream_id not in gone}
            )
        changed: dict[tuple[Table, str], dict[tuple[Hashable, ...], Any]] = {}
        for key, row in changes.items():
            place = (key.table, key.stream_id)
            rows = changed.get(place)
            if rows is None:
                rows = changed[place] = dict(self.rows(*place))
            if row is None:
                rows.pop(key.rest, None)
            else:
                rows[key.rest] = row
        kept = {place: rows for place, rows in {**self.tables, **changed}.items() if rows}
        return LedgerState(kept)

    def streams(self) -> tuple[str, ...]:
        """Return the streams that have a row, in order."""
        return tuple(sorted(stream_id for table, stream_id in self.tables if table is Table.STREAM))

    def everything(self) -> Changes:
        """Return the changes that make this state of an empty one."""
        return {
            Key(table, stream_id, rest): row
            for (table, stream_id), rows in self.tables.items()
            for rest, row in rows.items()
        }

    def view(self, stream_id: str) -> LedgerView | None:
        """Return what a look shows of a stream; None when it has no row."""
        stream = self.get(Key(Table.STREAM, stream_id))
        if stream is None:
            return None
        first = stream.landed_batch or 0
        batches = [kept.row for kept in self.rows(Table.BATCH, stream_id).values() if kept.row.batch >= first]
        return LedgerView(
            stream,
            landed_of(self.rows(Table.POSITION, stream_id)),
            tuple(sorted(batches, key=lambda row: row.batch)),
            landed_of(self.rows(Table.RETIRED, stream_id)),
            self.get(Key(Table.QUERY, stream_id)),
            self.get(Key(Table.DECIDED, stream_id)),
        )


def landed_of(rows: Rows) -> LandedPositions:
    """Return the positions of a table of stands."""
    stands: dict[Partition, Stand] = {_partition(rest): stand for rest, stand in rows.items()}
    return LandedPositions(
        Positions({partition: stand.offset for partition, stand in stands.items()}),
        {partition.origin: stand.origin_id for partition, stand in stands.items()},
        {partition: stand.fingerprint for partition, stand in stands.items() if stand.fingerprint is not None},
    )


def rest_of(partition: Partition) -> tuple[Hashable, ...]:
    """Return what a partition's rows are known by."""
    return (partition.origin, partition.key)


def _partition(rest: tuple[Any, ...]) -> Partition:
    return Partition(*rest)
