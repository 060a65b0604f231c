"""The statements of one transaction, in memory, over the state that the log adds up to. Performs no I/O of its own.

Nothing is locked: what is read holds if the transaction's entry becomes the next one of the log, and otherwise the transaction
has never been. So a lock is a promise to append an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

from exactlyonce.connectors.object_log.expiry import expired
from exactlyonce.connectors.object_log.no_letters import NoLetters
from exactlyonce.connectors.object_log.replayed_rows import ReplayedRows
from exactlyonce.connectors.object_log.state import (
    Changes,
    Key,
    LedgerState,
    Rows,
    Stand,
    StoredBatch,
    StoredFailure,
    Table,
    landed_of,
    rest_of,
    stored_failure,
)
from exactlyonce.connectors.object_log.tenancy import require_no_other
from exactlyonce.errors import LedgerRefused, Refused
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.room import Room
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    Excess,
    FailureRow,
    FailureStatus,
    LandedPositions,
    QueryMark,
    StreamRow,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges


class WitnessesUnsupported(Refused):
    """A task asked the log for a witness of rows that are in no transaction of the log."""


class LogTransaction(NoLetters, ReplayedRows):
    """A `LedgerTransaction`. `now` is the writer's, `where` is for people, `archived` returns what the state only refers to."""

    def __init__(
        self,
        state: LedgerState,
        now: datetime,
        where: str = "this location",
        archived: Callable[[str], Mapping[BatchNumber, str]] = lambda stream_id: {},
        room: Room | None = None,
    ) -> None:
        self._state = state
        self._now = now
        self._where = where
        self._archived = archived
        self.room = room
        self._changes: dict[Key, Any] = {}
        self.is_exclusive = False
        """Whether it holds a row with Lock.UPDATE, so that it has to be the next entry even if it changes nothing."""

    @property
    def changes(self) -> Changes:
        """Return what it has changed."""
        return self._changes

    def lock_stream(self, stream_id: str, lock: Lock) -> StreamRow | None:
        """Return the stream's row; with Lock.UPDATE, the transaction will be an entry in any case."""
        self.is_exclusive = self.is_exclusive or lock is Lock.UPDATE
        row: StreamRow | None = self._get(Key(Table.STREAM, stream_id))
        return row

    def insert_stream(self, row: StreamRow) -> bool:
        """Insert the stream's row unless there is one; a log that holds another stream is refused."""
        key = Key(Table.STREAM, row.stream_id)
        if self._get(key) is not None:
            return False
        require_no_other(self._state, row.stream_id, self._where)
        self._changes[key] = row
        return True

    def update_stream(self, row: StreamRow) -> None:
        """Write the row."""
        self._changes[Key(Table.STREAM, row.stream_id)] = row

    def write_witness(self, stream_id: str, batch: BatchNumber, tag: int) -> None:
        """Refuse: the rows of a task are in no transaction of the log, so a witness would prove nothing."""
        raise _no_witnesses(stream_id)

    def take_witnesses(self, stream_id: str, batch: BatchNumber) -> frozenset[int]:
        """Refuse, as `write_witness`."""
        raise _no_witnesses(stream_id)

    def read_positions(self, stream_id: str) -> LandedPositions:
        """Return where the stream stands."""
        return landed_of(self._rows(Table.POSITION, stream_id))

    def advance_positions(
        self,
        stream_id: str,
        ranges: Ranges,
        origin_ids: dict[str, str],
        fingerprints: Mapping[Partition, Fingerprint] | None = None,
    ) -> int:
        """Compare-and-set each partition."""
        moved = 0
        for partition, offsets in ranges.items():
            key = Key(Table.POSITION, stream_id, rest_of(partition))
            known: Stand | None = self._get(key)
            if known is None and self._get(key._replace(table=Table.RETIRED)) is not None:
                continue
            origin_id = origin_ids.get(partition.origin, "") if known is None else known.origin_id
            if (0 if known is None else known.offset) == offsets.from_offset:
                self._changes[key] = Stand(offsets.until_offset, origin_id, (fingerprints or {}).get(partition))
                moved += 1
        return moved

    def set_positions(self, stream_id: str, landed: LandedPositions) -> None:
        """Replace all positions; those that are left out are kept as retired."""
        read = dict(self._rows(Table.POSITION, stream_id))
        known = {**self._rows(Table.RETIRED, stream_id), **read}
        for rest, stand in read.items():
            self._changes[Key(Table.RETIRED, stream_id, rest)] = stand
            self._changes[Key(Table.POSITION, stream_id, rest)] = None
        for partition, offset in landed.positions.items():
            rest, origin_id = rest_of(partition), landed.origin_ids.get(partition.origin, "")
            before: Stand | None = known.get(rest)
            if before is not None and (offset < before.offset or origin_id != before.origin_id):
                self._changes[Key(Table.STRETCH, stream_id, rest)] = self._stretch(stream_id, partition) + 1
            stand = Stand(offset, origin_id, landed.fingerprints.get(partition))
            self._changes[Key(Table.POSITION, stream_id, rest)] = stand
            self._changes[Key(Table.RETIRED, stream_id, rest)] = None

    def write_query(self, stream_id: str, query: QueryMark) -> None:
        """Record what the next driver is started to do."""
        self._changes[Key(Table.QUERY, stream_id)] = query

    def read_batch(self, stream_id: str, batch: BatchNumber) -> BatchRow | None:
        """Return one batch's row."""
        kept: StoredBatch | None = self._get(_key_of(stream_id, batch))
        return None if kept is None else kept.row

    def read_batches_after(self, stream_id: str, batch: BatchNumber | None) -> tuple[BatchRow, ...]:
        """Return the row of the batch given and of all later ones."""
        return tuple(kept.row for kept in self._batches(stream_id) if kept.row.batch >= (batch or 0))

    def write_batch(self, stream_id: str, row: BatchRow) -> None:
        """Insert or replace one batch's row; the moment of its landing stays."""
        key = _key_of(stream_id, row.batch)
        before: StoredBatch | None = self._get(key)
        landed_at = None if before is None else before.row.landed_at
        if landed_at is None and row.status.landed:
            landed_at = self._now
        created_at = self._now if before is None else before.created_at
        self._changes[key] = StoredBatch(replace(row, landed_at=landed_at), created_at)

    def write_committable(self, stream_id: str, batch: BatchNumber, committable: str) -> None:
        """Record what becomes visible with this very entry: a text of the sink's own, kept for as long as the stream."""
        self._changes[Key(Table.COMMITTABLE, stream_id, (batch,))] = committable

    def read_committables(self, stream_id: str) -> Mapping[BatchNumber, str]:
        """Return what each batch has made visible."""
        rows: Rows = self._rows(Table.COMMITTABLE, stream_id)
        of_state = {cast("BatchNumber", rest[0]): text for rest, text in rows.items()}
        return dict(sorted({**self._archived(stream_id), **of_state}.items()))

    def write_decided(self, stream_id: str, decided: DecidedBatch | None) -> None:
        """Record what is to be committed of the stream's decided batch."""
        self._changes[Key(Table.DECIDED, stream_id)] = decided

    def read_decided(self, stream_id: str) -> DecidedBatch | None:
        """Return the stream's decided batch."""
        decided: DecidedBatch | None = self._get(Key(Table.DECIDED, stream_id))
        return decided

    def supersede_batches(self, stream_id: str, after: BatchNumber | None) -> None:
        """Mark every later batch that has not landed, and what failed of it."""
        first = -1 if after is None else after
        for key, failure in self._failures(stream_id):
            if failure.row.batch > first and failure.row.status is FailureStatus.OPEN:
                self._write_failure(key, failure, FailureStatus.SUPERSEDED)
        for kept in self._batches(stream_id):
            if kept.row.batch > first and not kept.row.status.landed:
                row = replace(kept.row, status=BatchStatus.SUPERSEDED)
                self._changes[_key_of(stream_id, row.batch)] = replace(kept, row=row)

    def write_failures(self, stream_id: str, failures: tuple[FailureRow, ...]) -> None:
        """Record failed ranges; what is passed over of one stretch of a partition never overlaps."""
        for row in failures:
            key = Key(Table.FAILURE, stream_id, (row.batch, *rest_of(row.partition), row.from_offset))
            stretch = self._stretch(stream_id, row.partition) if row.passed_over else None
            for other_key, other in self._failures(stream_id) if stretch is not None else ():
                if other_key != key and other.stretch == stretch and row.overlaps(other.row):
                    raise LedgerRefused(
                        f"{row.partition} [{row.from_offset}, {row.until_offset}) of {stream_id} overlaps what batch "
                        f"{other.row.batch} passed over before; the stream passes over each record once."
                    )
            self._changes[key] = stored_failure(row, self._now, stretch, self._get(key))

    def read_failures(self, stream_id: str, status: FailureStatus) -> tuple[FailureRow, ...]:
        """Return the failed ranges with this status."""
        found = (failure.row for _, failure in self._failures(stream_id) if failure.row.status is status)
        return tuple(sorted(found, key=lambda row: (row.batch, row.partition, row.from_offset)))

    def settle_failures(self, stream_id: str, batch: BatchNumber, status: FailureStatus) -> None:
        """Give every open failure of the batch this status."""
        for key, failure in self._failures(stream_id):
            if failure.row.batch == batch and failure.row.status is FailureStatus.OPEN:
                self._write_failure(key, failure, status)

    def delete_batches(self, stream_id: str, excess: Excess, fewest: int, most: int) -> int:
        """Delete batches that are not kept; what they made visible stays, since readers would lose it."""
        stream: StreamRow | None = self._get(Key(Table.STREAM, stream_id))
        if stream is None or stream.landed_batch is None:
            return 0
        gone = expired(self._batches(stream_id), stream.landed_batch, excess, fewest, self._now)[:most]
        for batch in gone:
            self._changes[_key_of(stream_id, batch)] = None
        return len(gone)

    def delete_failures(self, stream_id: str, status: FailureStatus, age: timedelta, most: int) -> int:
        """Delete failures that have had this status for long."""
        stream: StreamRow | None = self._get(Key(Table.STREAM, stream_id))
        if stream is None or stream.landed_batch is None:
            return 0
        before = stream.landed_batch
        found = [
            (key, failure) for key, failure in self._failures(stream_id)
            if failure.row.status is status and failure.row.batch < before
        ]  # fmt: skip
        oldest = sorted(found, key=lambda pair: pair[1].row.batch)[:most]
        gone = [key for key, failure in oldest if failure.changed_at < self._now - age]
        self._changes.update(dict.fromkeys(gone))
        return len(gone)

    def delete_stream(self, stream_id: str) -> None:
        """Delete every row of a stream."""
        for table in Table:
            for rest in list(self._rows(table, stream_id)):
                self._changes[Key(table, stream_id, rest)] = None

    def _stretch(self, stream_id: str, partition: Partition) -> int:
        """How often a partition's records began to be read again."""
        return self._get(Key(Table.STRETCH, stream_id, rest_of(partition))) or 0

    def _write_failure(self, key: Key, failure: StoredFailure, status: FailureStatus) -> None:
        self._changes[key] = StoredFailure(replace(failure.row, status=status), self._now, failure.stretch)

    def _get(self, key: Key) -> Any:
        return self._changes[key] if key in self._changes else self._state.get(key)

    def _rows(self, table: Table, stream_id: str) -> Rows:
        """The rows of a table as this transaction sees them."""
        mine = {key.rest: row for key, row in self._changes.items() if key[:2] == (table, stream_id)}
        committed = self._state.rows(table, stream_id)
        if not mine:
            return committed
        return {rest: row for rest, row in {**committed, **mine}.items() if row is not None}

    def _batches(self, stream_id: str) -> list[StoredBatch]:
        rows: Rows = self._rows(Table.BATCH, stream_id)
        return sorted(rows.values(), key=lambda kept: kept.row.batch)

    def _failures(self, stream_id: str) -> Iterator[tuple[Key, StoredFailure]]:
        rows: list[tuple[tuple[Hashable, ...], StoredFailure]] = list(self._rows(Table.FAILURE, stream_id).items())
        return ((Key(Table.FAILURE, stream_id, rest), failure) for rest, failure in rows)


def _key_of(stream_id: str, batch: BatchNumber) -> Key:
    return Key(Table.BATCH, stream_id, (batch,))


def _no_witnesses(stream_id: str) -> WitnessesUnsupported:
    return WitnessesUnsupported(
        f"The ledger of {stream_id} is an object log, which keeps no witnesses of single tasks; set delivery: ExactlyOnce, or "
        "keep the ledger in the database that the tasks write to."
    )
