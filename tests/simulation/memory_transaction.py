"""A transaction of the in-memory database: the statements of the ledger's port, and those of the sink beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar

from exactlyonce.errors import LedgerRefused, LedgerUnreachable, LockHeldByOther
from exactlyonce.ledger.backfills import Backfill, Occupant
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
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions, Ranges
from tests.simulation.committables import MemoryCommittables
from tests.simulation.letters import MemoryLetters
from tests.simulation.scheduler import Process
from tests.simulation.server import GONE, Key, MemoryDatabase

PATIENCE_LOOKS = 30
LOCK_TIMEOUT_LOOKS = 400


@dataclass(eq=False)
class MemoryTransaction(MemoryCommittables, MemoryLetters):
    """A `LedgerTransaction`, and the sink's statements beside it."""

    room: ClassVar[Room | None] = None

    database: MemoryDatabase
    evicting: bool
    lasting: bool
    writes: dict[Key, Any] = field(default_factory=dict)
    appended: Counter[Hashable] = field(default_factory=Counter)
    closed: bool = False
    terminated: bool = False
    process: Process | None = None

    def __post_init__(self) -> None:
        self.process = self.database.hooks.running()

    def lock_stream(self, stream_id: str, lock: Lock) -> StreamRow | None:
        """Lock the stream's row."""
        self._step(f"lock stream {lock.value}")
        self._lock(("stream", stream_id), lock)
        row: StreamRow | None = self._get(("stream", stream_id))
        return row

    def insert_stream(self, row: StreamRow) -> bool:
        """Insert the stream's row unless there is one."""
        self._step("insert stream")
        key = ("stream", row.stream_id)
        self._lock(key, Lock.UPDATE)
        if self._get(key) is not None:
            return False
        self.writes[key] = row
        return True

    def update_stream(self, row: StreamRow) -> None:
        """Write the row."""
        self._step("update stream")
        self._lock(("stream", row.stream_id), Lock.UPDATE)
        self.writes[("stream", row.stream_id)] = row

    def write_witness(self, stream_id: str, batch: BatchNumber, tag: int) -> None:
        """Record that a task wrote its rows in this transaction."""
        self._step("write witness")
        self.writes[("witness", stream_id, batch, tag)] = True

    def take_witnesses(self, stream_id: str, batch: BatchNumber) -> frozenset[int]:
        """Remove the witnesses up to a batch and return the batch's own."""
        self._step("take witnesses")
        rows = self._rows()
        found = [
            key for key, value in rows.items()
            if key[0] == "witness" and key[1] == stream_id and key[2] <= batch and value is not GONE
        ]  # fmt: skip
        self.writes.update(dict.fromkeys(found, GONE))
        return frozenset(key[3] for key in found if key[2] == batch)

    def read_positions(self, stream_id: str) -> LandedPositions:
        """Return where the stream stands."""
        self._step("read positions")
        return landed_in(self._rows(), stream_id)

    def advance_positions(
        self,
        stream_id: str,
        ranges: Ranges,
        origin_ids: dict[str, str],
        fingerprints: Mapping[Partition, Fingerprint] | None = None,
    ) -> int:
        """Compare-and-set each partition."""
        self._step("advance positions")
        moved = 0
        for partition, offsets in ranges.items():
            key = ("position", stream_id, partition)
            self._lock(key, Lock.UPDATE)
            known = self._get(key)
            if known is None and self._get(("retired", stream_id, partition)) is not None:
                continue
            topic_id = origin_ids.get(partition.origin, "") if known is None else known[1]
            if (0 if known is None else known[0]) == offsets.from_offset:
                self.writes[key] = (offsets.until_offset, topic_id, (fingerprints or {}).get(partition))
                moved += 1
        return moved

    def set_positions(self, stream_id: str, landed: LandedPositions) -> None:
        """Replace all positions; those that are left out are kept as retired."""
        self._step("set positions")
        known = {
            key[2]: value
            for key, value in self._rows().items()
            if key[0] in ("position", "retired") and key[1] == stream_id and value is not GONE
        }
        for key in list(self.database.tables.rows):
            if key[0] == "position" and key[1] == stream_id:
                self.writes[("retired", *key[1:])] = self._get(key)
                self.writes[key] = GONE
        for partition, offset in landed.positions.items():
            topic_id = landed.origin_ids.get(partition.origin, "")
            before = known.get(partition)
            if before is not None and (offset < before[0] or topic_id != before[1]):
                self.writes[("stretch", stream_id, partition)] = self._stretch(stream_id, partition) + 1
            self.writes[("position", stream_id, partition)] = (offset, topic_id, landed.fingerprints.get(partition))
            self.writes[("retired", stream_id, partition)] = GONE

    def write_query(self, stream_id: str, query: QueryMark) -> None:
        """Record what the next driver is started to do."""
        self._step("write query")
        self.writes[("query", stream_id)] = query

    def write_sink(self, stream_id: str, epoch: Epoch, sink: str) -> None:
        """Record into what the process of an epoch lands."""
        self._step("write sink")
        self.writes[("sink", stream_id)] = (epoch, sink)

    def read_sink(self, stream_id: str) -> str | None:
        """Return what the latest claim has recorded."""
        self._step("read sink")
        epoch, sink = self._get(("sink", stream_id)) or (None, None)
        stream: StreamRow | None = self._get(("stream", stream_id))
        return sink if stream is not None and stream.writer == epoch else None

    def read_backfill(self, stream_id: str, name: str) -> Backfill | None:
        """Return a backfill."""
        self._step("read backfill")
        found: Backfill | None = self._get(("backfill", stream_id, name))
        return found

    def occupant_of(self, place: str, stream_id: str, own: str) -> Occupant | None:
        """Return whose table it is; with its schema it is the same one."""
        self._step("read whose table it is")
        recorded = self._get(("sink", stream_id))
        taken = {_table(it) for it in (own, recorded[1] if recorded else "") if it}
        return Occupant(stream_id) if _table(place) in taken else None

    def write_backfill(self, stream_id: str, backfill: Backfill) -> None:
        """Insert or replace a backfill."""
        self._step("write backfill")
        self.writes[("backfill", stream_id, backfill.name)] = backfill

    def read_batch(self, stream_id: str, batch: BatchNumber) -> BatchRow | None:
        """Return one batch's row."""
        self._step("read batch")
        row: BatchRow | None = self._get(("batch", stream_id, batch))
        return row

    def read_batches_after(self, stream_id: str, batch: BatchNumber | None) -> tuple[BatchRow, ...]:
        """Return the row of the batch given and of all later ones."""
        self._step("read batches")
        rows = self._rows()
        found = [row for key, row in rows.items() if key[:2] == ("batch", stream_id) and row is not GONE]
        return tuple(sorted((row for row in found if row.batch >= (batch or 0)), key=lambda row: row.batch))

    def write_batch(self, stream_id: str, row: BatchRow) -> None:
        """Insert or replace one batch's row."""
        self._step("write batch")
        self.writes[("batch", stream_id, row.batch)] = row

    def supersede_batches(self, stream_id: str, after: BatchNumber | None) -> None:
        """Mark every later batch that has not landed, and what failed of it."""
        first = -1 if after is None else after
        for key, row in list(self._rows().items()):
            if key[:2] == ("failure", stream_id) and row.batch > first and row.status is FailureStatus.OPEN:
                self.writes[key] = replace(row, status=FailureStatus.SUPERSEDED)
        for row in self.read_batches_after(stream_id, BatchNumber(-1 if after is None else after)):
            if row.batch > (-1 if after is None else after) and not row.status.landed:
                self.writes[("batch", stream_id, row.batch)] = replace(row, status=BatchStatus.SUPERSEDED)

    def write_failures(self, stream_id: str, failures: tuple[FailureRow, ...]) -> None:
        """Record failed ranges; what is given up of one stretch of a partition never overlaps."""
        self._step("write failures")
        for failure in failures:
            key = ("failure", stream_id, failure.batch, failure.partition, failure.from_offset)
            given_up = ("given up", *key[1:])
            self.writes[key] = failure
            self.writes[given_up] = GONE
            if failure.passed_over:
                mine = (self._stretch(stream_id, failure.partition), failure.from_offset, failure.until_offset)
                self._require_no_overlap(stream_id, failure.partition, mine)
                self.writes[given_up] = mine

    def read_failures(self, stream_id: str, status: FailureStatus) -> tuple[FailureRow, ...]:
        """Return the failed ranges with this status."""
        # Where nobody gives ranges up, a step for them would only move every seed of the table of mutations.
        if status is not FailureStatus.GIVEN_UP or self._failures(stream_id, status):
            self._step("read failures")
        return self._failures(stream_id, status)

    def _failures(self, stream_id: str, status: FailureStatus) -> tuple[FailureRow, ...]:
        rows = [row for key, row in self._rows().items() if key[:2] == ("failure", stream_id) and row is not GONE]
        found = (row for row in rows if row.status is status)
        return tuple(sorted(found, key=lambda row: (row.batch, row.partition, row.from_offset)))

    def settle_failures(self, stream_id: str, batch: BatchNumber, status: FailureStatus) -> None:
        """Give every open failure of the batch this status."""
        self._step("settle failures")
        for key, row in list(self._rows().items()):
            if key[:3] == ("failure", stream_id, batch) and row is not GONE and row.status is FailureStatus.OPEN:
                self.writes[key] = replace(row, status=status)

    def delete_batches(self, stream_id: str, excess: Excess, fewest: int, most: int) -> int:
        """Delete batches that are not kept. No time passes here: every row is a moment old."""
        self._step("delete batches")
        stream = self._get(("stream", stream_id))
        if stream is None:
            return 0
        landed_batch = stream.landed_batch
        rows = self.read_batches_after(stream_id, None)
        kept = [row.batch for row in rows if row.status is BatchStatus.LANDED]
        if len(kept) < fewest:
            return 0
        oldest = [
            row.batch for row in rows
            if row.status in excess.statuses and row.batch < min(landed_batch, kept[-fewest])
        ][:most]  # fmt: skip
        before = -1 if excess.before is None else excess.before
        gone = [batch for batch in oldest if batch < before or excess.age <= timedelta(0)]
        for row in rows:
            if row.batch in gone:
                self.writes[("batch", stream_id, row.batch)] = GONE
                self.writes[("expired batch", stream_id, row.batch)] = row  # for the oracle alone
        return len(gone)

    def delete_failures(self, stream_id: str, status: FailureStatus, age: timedelta, most: int) -> int:
        """Delete failures with this status; every row is a moment old."""
        self._step("delete failures")
        stream = self._get(("stream", stream_id))
        if stream is None:
            return 0
        landed_batch = stream.landed_batch
        known = self._rows()
        found = [
            key for key, row in known.items()
            if key[:2] == ("failure", stream_id) and row is not GONE and row.status is status and row.batch < landed_batch
        ]  # fmt: skip
        gone = sorted(found, key=lambda key: key[2])[:most] if age <= timedelta(0) else []
        for key in gone:
            self.writes.update({key: GONE, ("given up", *key[1:]): GONE})
        return len(gone)

    def delete_dead_letters(self, stream_id: str, age: timedelta, most: int) -> int:
        """No time passes here: every letter is a moment old."""
        self._step("delete dead letters")
        return 0

    def append(self, rows: Sequence[Hashable]) -> int:
        """Write rows to the target table."""
        self._step("write rows")
        self.appended.update(rows)
        return len(rows)

    def _stretch(self, stream_id: str, partition: Partition) -> int:
        """How often a partition's records began to be read again."""
        return int(self._get(("stretch", stream_id, partition)) or 0)

    def _require_no_overlap(self, stream_id: str, partition: Partition, range_: tuple[int, int, int]) -> None:
        stretch, begin, end = range_
        for key, value in self._rows().items():
            if key[0] == "given up" and (key[1], key[3]) == (stream_id, partition) and value is not GONE:
                other_stretch, other_begin, other_end = value
                if stretch == other_stretch and begin < other_end and other_begin < end:
                    raise LedgerRefused(f"{partition} [{begin}, {end}) overlaps what was given up before")

    def _step(self, label: str) -> None:
        self.database.hooks.step(label)
        self._require_alive()

    def _require_alive(self) -> None:
        if self.terminated:
            raise LedgerUnreachable("the session was ended by the server")

    def _rows(self) -> Mapping[Key, Any]:
        """The rows as this transaction sees them; what it has deleted is GONE."""
        return {**self.database.tables.rows, **self.writes} if self.writes else self.database.tables.rows

    def _get(self, key: Key) -> Any:
        value = self.writes.get(key, self.database.tables.rows.get(key))
        return None if value is GONE else value

    def _lock(self, resource: Key, lock: Lock) -> None:
        """Wait until the lock can be had; evict holders when patience runs out, give up when the timeout does."""
        database = self.database
        looks = 0
        involved = {self.process}

        def may_go() -> bool:
            nonlocal looks
            looks += 1
            involved.update(holder.process for holder in database.holders(resource, self))
            if self.terminated or database.can_lock(resource, lock, self) or looks > LOCK_TIMEOUT_LOOKS:
                return True
            if self.evicting and looks > PATIENCE_LOOKS:
                for holder in database.holders(resource, self):
                    database.terminate(holder)
                    database.hooks.evicted(involved)
                return True
            return False

        if not database.can_lock(resource, lock, self):
            database.hooks.wait(f"lock on {resource}", may_go)
            self._require_alive()
            if not database.can_lock(resource, lock, self):
                raise LockHeldByOther("the row is locked by another session")
        database.take_lock(resource, lock, self)


def landed_in(rows: Mapping[Key, Any], stream_id: str, kind: str = "position") -> LandedPositions:
    """Return where a stream stands by these rows; `kind` is `retired` for partitions that it no longer reads."""
    positions: dict[Partition, int] = {}
    origin_ids: dict[str, str] = {}
    fingerprints: dict[Partition, Fingerprint] = {}
    for key, value in rows.items():
        if key[0] == kind and key[1] == stream_id and value is not GONE:
            positions[key[2]] = value[0]
            origin_ids[key[2].origin] = value[1]
            if value[2] is not None:
                fingerprints[key[2]] = value[2]
    return LandedPositions(Positions(positions), origin_ids, fingerprints)


def _table(place: str) -> str:
    """Return a table as the database knows it, whether or not its schema was named."""
    return place.removeprefix("table ").removeprefix("public.")
