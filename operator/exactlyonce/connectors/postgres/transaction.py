"""The statements of the ledger inside one Postgres transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from exactlyonce.connectors.postgres.housekeeping import Housekeeping
from exactlyonce.connectors.postgres.keys import partition_columns, position_columns
from exactlyonce.connectors.postgres.rows import (
    BATCH_COLUMNS,
    POSITION_COLUMNS,
    STREAM_COLUMNS,
    batch_from,
    decided_from,
    positions_from,
    stream_from,
    stream_values,
)
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.port import LANDED_STATUSES, Lock
from exactlyonce.ledger.room import Room
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    FailureStatus,
    LandedPositions,
    QueryMark,
    StreamRow,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges

_LANDED = [str(status) for status in LANDED_STATUSES]


class PostgresTransaction(Housekeeping):
    """A `LedgerTransaction` on one connection; made by `PostgresLedger.transaction` only."""

    room: ClassVar[Room | None] = None

    def lock_stream(self, stream_id: str, lock: Lock) -> StreamRow | None:
        """Lock the stream's row and return it as committed once the lock is had."""
        # READ COMMITTED: after a wait the row is read again as it then is (EvalPlanQual), so what comes back is never
        # older than the lock.
        statement = f"select {STREAM_COLUMNS} from {{schema}}.streams where stream_id = %s {lock.value}"
        with self.waiting():
            rows = self._rows(statement, stream_id)
        return stream_from(rows[0]) if rows else None

    def insert_stream(self, row: StreamRow) -> bool:
        """Insert the stream's row unless there is one."""
        values = stream_values(row)
        marks = ", ".join(["%s"] * len(values))
        statement = f"insert into {{schema}}.streams ({STREAM_COLUMNS}) values ({marks}) on conflict do nothing"
        return self._count(statement, *values) == 1

    def update_stream(self, row: StreamRow) -> None:
        """Write the row's columns."""
        values = stream_values(row)
        names = [name.strip() for name in STREAM_COLUMNS.split(",")]
        assignments = ", ".join(f"{name} = %s" for name in names)
        statement = f"update {{schema}}.streams set {assignments}, changed_at = now() where stream_id = %s"
        self._count(statement, *values, row.stream_id)

    def write_witness(self, stream_id: str, batch: BatchNumber, tag: int) -> None:
        """Record that a task wrote its rows in this transaction."""
        self._count("insert into {schema}.witnesses (stream_id, batch, tag) values (%s, %s, %s)", stream_id, batch, tag)

    def take_witnesses(self, stream_id: str, batch: BatchNumber) -> frozenset[int]:
        """Remove the witnesses up to a batch and return the batch's own."""
        statement = "delete from {schema}.witnesses where stream_id = %s and batch <= %s returning batch, tag"
        return frozenset(tag for number, tag in self._rows(statement, stream_id, batch) if number == batch)

    def read_positions(self, stream_id: str) -> LandedPositions:
        """Return where the stream stands."""
        statement = f"select {POSITION_COLUMNS} from {{schema}}.offsets o where stream_id = %s and not retired"
        return positions_from(self._rows(statement, stream_id))

    def advance_positions(
        self,
        stream_id: str,
        ranges: Ranges,
        origin_ids: dict[str, str],
        fingerprints: Mapping[Partition, Fingerprint] | None = None,
    ) -> int:
        """Compare-and-set each partition from its range's start to its end."""
        kept = fingerprints or {}
        rows = []
        for key, offsets in ranges.items():
            topic, number, name = partition_columns(key)
            until, position = position_columns(offsets.until_offset)
            topic_id = origin_ids.get(key.origin, "")
            fingerprint = kept[key].to_json() if key in kept else None
            rows.append((stream_id, topic, number, until, topic_id, fingerprint, name, position, offsets.from_offset))
        moved = self._values(
            "update {schema}.offsets o set next_offset = v.until_offset, fingerprint = v.fingerprint, position = v.position "
            "from (values %s) "
            "as v(stream_id, topic, partition, until_offset, topic_id, fingerprint, name, position, from_offset) "
            "where o.stream_id = v.stream_id and o.topic = v.topic and o.partition = v.partition and not o.retired "
            "and coalesce(o.position, o.next_offset) = v.from_offset returning o.topic, o.partition",
            rows,
            template="(%s, %s, %s, %s::bigint, %s, %s::text, %s::text, %s::numeric, %s::numeric)",
        )
        known = {(topic, partition) for topic, partition in moved}
        fresh = [row[:8] for row in rows if row[8] == 0 and (row[1], row[2]) not in known]
        inserted = self._insert_positions(fresh, "do nothing")
        return len(moved) + inserted

    def set_positions(self, stream_id: str, landed: LandedPositions) -> None:
        """Replace all positions; partitions that are left out are kept as retired."""
        self._count("update {schema}.offsets set retired = true where stream_id = %s", stream_id)
        rows = []
        for key, offset in landed.positions.items():
            topic, number, name = partition_columns(key)
            fingerprint = landed.fingerprints[key].to_json() if key in landed.fingerprints else None
            topic_id = landed.origin_ids.get(key.origin, "")
            rows.append((stream_id, topic, number, position_columns(offset)[0], topic_id, fingerprint, name, offset))
        # Records that are read again may be given up again, beside what was given up before.
        self._values(
            "update {schema}.offsets o set position_id = default from (values %s) "
            "as v(stream_id, topic, partition, next_offset, topic_id, fingerprint, name, position) "
            "where o.stream_id = v.stream_id and o.topic = v.topic and o.partition = v.partition "
            "and (v.position < coalesce(o.position, o.next_offset) or v.topic_id <> o.topic_id) returning 1",
            rows,
            template="(%s, %s, %s, %s::bigint, %s, %s::text, %s::text, %s::numeric)",
        )
        self._insert_positions(
            [(*row[:7], position_columns(row[7])[1]) for row in rows],
            "do update set next_offset = excluded.next_offset, topic_id = excluded.topic_id, retired = false, "
            "fingerprint = excluded.fingerprint, position = excluded.position",
        )

    def write_query(self, stream_id: str, query: QueryMark) -> None:
        """Record what the next driver is started to do."""
        self._count("update {schema}.streams set query = %s where stream_id = %s", query.to_json(), stream_id)

    def read_batch(self, stream_id: str, batch: BatchNumber) -> BatchRow | None:
        """Return one batch's row."""
        rows = self._rows(
            f"select {BATCH_COLUMNS} from {{schema}}.batches where stream_id = %s and batch = %s", stream_id, batch
        )
        return batch_from(rows[0]) if rows else None

    def read_batches_after(self, stream_id: str, batch: BatchNumber | None) -> tuple[BatchRow, ...]:
        """Return the row of the batch given and of all later ones."""
        rows = self._rows(
            f"select {BATCH_COLUMNS} from {{schema}}.batches where stream_id = %s and batch >= %s order by batch",
            stream_id,
            batch or 0,
        )
        return tuple(batch_from(row) for row in rows)

    def write_batch(self, stream_id: str, row: BatchRow) -> None:
        """Insert or replace one batch's row."""
        self._count(
            "insert into {schema}.batches as b (stream_id, batch, epoch, status, ranges, records_read, rows_written, "
            "dead_letters, note, landed_at) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, "
            "case when %s then clock_timestamp() end) "
            "on conflict (stream_id, batch) do update set epoch = excluded.epoch, status = excluded.status, "
            "ranges = excluded.ranges, records_read = excluded.records_read, rows_written = excluded.rows_written, "
            "dead_letters = excluded.dead_letters, note = excluded.note, "
            "landed_at = coalesce(b.landed_at, excluded.landed_at)",
            stream_id,
            row.batch,
            row.epoch,
            str(row.status),
            row.ranges.to_json(),
            row.records_read,
            row.rows_written,
            row.dead_letters,
            row.note,
            row.status.landed,
        )

    def write_committable(self, stream_id: str, batch: BatchNumber, committable: str) -> None:
        """Record what becomes visible by this transaction."""
        self._count(
            "insert into {schema}.committables (stream_id, batch, committable) values (%s, %s, %s) "
            "on conflict (stream_id, batch) do update set committable = excluded.committable",
            stream_id,
            batch,
            committable,
        )

    def read_committables(self, stream_id: str) -> Mapping[BatchNumber, str]:
        """Return what each batch has made visible."""
        rows = self._rows(
            "select batch, committable from {schema}.committables where stream_id = %s order by batch", stream_id
        )
        return {BatchNumber(batch): committable for batch, committable in rows}

    def write_decided(self, stream_id: str, decided: DecidedBatch | None) -> None:
        """Record what is to be committed of the stream's decided batch."""
        text = None if decided is None else decided.to_json()
        self._count("update {schema}.streams set decided = %s where stream_id = %s", text, stream_id)

    def read_decided(self, stream_id: str) -> DecidedBatch | None:
        """Return the stream's decided batch."""
        rows = self._rows("select decided from {schema}.streams where stream_id = %s", stream_id)
        return decided_from(rows[0][0]) if rows else None

    def supersede_batches(self, stream_id: str, after: BatchNumber | None) -> None:
        """Mark every later batch that has not landed as Superseded, and what failed of it, too."""
        self._count(
            "update {schema}.failures set status = %s, changed_at = now() "
            "where stream_id = %s and batch > %s and status = %s",
            str(FailureStatus.SUPERSEDED),
            stream_id,
            -1 if after is None else after,
            str(FailureStatus.OPEN),
        )
        self._count(
            "update {schema}.batches set status = %s where stream_id = %s and batch > %s and status <> all(%s)",
            str(BatchStatus.SUPERSEDED),
            stream_id,
            -1 if after is None else after,
            _LANDED,
        )

    def _insert_positions(self, rows: list[tuple[Any, ...]], on_conflict: str) -> int:
        """Insert positions, the last three values being fingerprint, name and position; return how many rows that has made."""
        inserted = self._values(
            "insert into {schema}.offsets as o (stream_id, topic, partition, next_offset, topic_id, fingerprint, "
            "partition_name, position) values %s "
            f"on conflict (stream_id, topic, partition) {on_conflict} returning 1",
            rows,
        )
        return len(inserted)
