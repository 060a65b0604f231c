"""The statements of the ledger inside one Postgres transaction."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg2.extensions
from psycopg2.extras import execute_values

from exactlyonce.connectors.postgres.eviction import evicting
from exactlyonce.connectors.postgres.expiry import DELETE_BATCHES, DELETE_DEAD_LETTERS, DELETE_FAILURES
from exactlyonce.connectors.postgres.rows import (
    BATCH_COLUMNS,
    POSITION_COLUMNS,
    STREAM_COLUMNS,
    batch_from,
    positions_from,
    stream_from,
    stream_values,
    ticket_from,
)
from exactlyonce.ledger.port import LANDED_STATUSES, Lock
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    Excess,
    FailureRow,
    FailureStatus,
    LandedPositions,
    QueryMark,
    StreamRow,
    Ticket,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges

if TYPE_CHECKING:
    from exactlyonce.connectors.postgres.ledger import PostgresLedger

_LANDED = [str(status) for status in LANDED_STATUSES]


class PostgresTransaction:
    """A `LedgerTransaction` on one connection; made by `PostgresLedger.transaction` only."""

    def __init__(self, ledger: PostgresLedger, connection: psycopg2.extensions.connection, evicting: bool) -> None:
        self._ledger = ledger
        self._evicting = evicting
        self.connection = connection

    def cursor(self) -> psycopg2.extensions.cursor:
        """Return a cursor of this transaction, for the sink's own statements."""
        return self.connection.cursor()

    def waiting(self) -> AbstractContextManager[None]:
        """Return the context for a statement that may wait for a lock."""
        if not self._evicting:
            return nullcontext()
        # The backend's own number, which behind a transaction pooler is not the one the client was told at first.
        pid = int(self._rows("select pg_backend_pid()")[0][0])
        return evicting(pid, self._ledger.open_connection, self._ledger.limits.patience_seconds)

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
        rows = [
            (
                stream_id,
                key.origin,
                key.key,
                offsets.until_offset,
                origin_ids.get(key.origin, ""),
                kept[key].to_json(offsets.until_offset) if key in kept else None,
                offsets.from_offset,
            )
            for key, offsets in ranges.items()
        ]
        also = ", fingerprint = v.fingerprint" if self._ledger.keeps_fingerprints(self) else ""
        moved = self._values(
            f"update {{schema}}.offsets o set next_offset = v.until_offset{also} from (values %s) "
            "as v(stream_id, topic, partition, until_offset, topic_id, fingerprint, from_offset) "
            "where o.stream_id = v.stream_id and o.topic = v.topic and o.partition = v.partition and not o.retired "
            "and o.next_offset = v.from_offset returning o.topic, o.partition",
            rows,
            template="(%s, %s, %s, %s::bigint, %s, %s::text, %s::bigint)",
        )
        known = {(topic, partition) for topic, partition in moved}
        fresh = [row[:6] for row in rows if row[6] == 0 and (row[1], row[2]) not in known]
        inserted = self._insert_positions(fresh, "do nothing")
        return len(moved) + inserted

    def set_positions(self, stream_id: str, landed: LandedPositions) -> None:
        """Replace all positions; partitions that are left out are kept as retired."""
        self._count("update {schema}.offsets set retired = true where stream_id = %s", stream_id)
        rows = [
            (stream_id, key.origin, key.key, offset, landed.origin_ids.get(key.origin, ""))
            for key, offset in landed.positions.items()
        ]
        kept = [
            landed.fingerprints[key].to_json(offset) if key in landed.fingerprints else None
            for key, offset in landed.positions.items()
        ]
        # Records that are read anew may be given up anew, beside what was given up before.
        self._values(
            "update {schema}.offsets o set position_id = default from (values %s) "
            "as v(stream_id, topic, partition, next_offset, topic_id) "
            "where o.stream_id = v.stream_id and o.topic = v.topic and o.partition = v.partition "
            "and (v.next_offset < o.next_offset or v.topic_id <> o.topic_id) returning 1",
            rows,
            template="(%s, %s, %s, %s::bigint, %s)",
        )
        also = ", fingerprint = excluded.fingerprint" if self._ledger.keeps_fingerprints(self) else ""
        self._insert_positions(
            [(*row, fingerprint) for row, fingerprint in zip(rows, kept, strict=True)],
            f"do update set next_offset = excluded.next_offset, topic_id = excluded.topic_id, retired = false{also}",
        )

    def write_query(self, stream_id: str, query: QueryMark) -> None:
        """Record what the next driver is started to do."""
        self._count("update {schema}.streams set query = %s where stream_id = %s", query.to_json(), stream_id)

    def read_ticket(self, stream_id: str) -> Ticket | None:
        """Return the latest ticket that was drawn; a schema of before has none."""
        columns = "to_jsonb(s) -> 'ticket_epoch', to_jsonb(s) ->> 'ticket'"
        rows = self._rows(f"select {columns} from {{schema}}.streams s where stream_id = %s", stream_id)
        return ticket_from(*rows[0]) if rows else None

    def write_ticket(self, stream_id: str, ticket: Ticket) -> None:
        """Record the ticket of an epoch."""
        statement = "update {schema}.streams set ticket = %s, ticket_epoch = %s where stream_id = %s"
        self._count(statement, ticket.secret, ticket.epoch, stream_id)

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

    def write_failures(self, stream_id: str, failures: tuple[FailureRow, ...]) -> None:
        """Record failed ranges; a lost one may not overlap another lost one (a constraint)."""
        for failure in failures:
            self._count(
                "insert into {schema}.failures (stream_id, batch, topic, partition, from_offset, until_offset, status, "
                "brokers, error, given_up) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, "
                "(select numrange(position_id * 1e19 + %s, position_id * 1e19 + %s) from {schema}.offsets "
                "where %s and stream_id = %s and topic = %s and partition = %s)) "
                "on conflict (stream_id, batch, topic, partition, from_offset) do update set "
                "status = excluded.status, error = excluded.error, given_up = excluded.given_up, changed_at = now()",
                stream_id,
                failure.batch,
                failure.partition.origin,
                failure.partition.key,
                failure.from_offset,
                failure.until_offset,
                str(failure.status),
                failure.address,
                failure.error,
                failure.from_offset,
                failure.until_offset,
                failure.status is FailureStatus.LOST and not failure.origin_gone,
                stream_id,
                failure.partition.origin,
                failure.partition.key,
            )

    def settle_failures(self, stream_id: str, batch: BatchNumber, status: FailureStatus) -> None:
        """Give every open failure of the batch this status."""
        self._count(
            "update {schema}.failures set status = %s, changed_at = now() "
            "where stream_id = %s and batch = %s and status = %s",
            str(status),
            stream_id,
            batch,
            str(FailureStatus.OPEN),
        )

    def _insert_positions(self, rows: list[tuple[Any, ...]], on_conflict: str) -> int:
        """Insert positions with their fingerprints, the last of the values, and return how many rows that has made."""
        keeps = self._ledger.keeps_fingerprints(self)
        inserted = self._values(
            "insert into {schema}.offsets as o (stream_id, topic, partition, next_offset, topic_id"
            f"{', fingerprint' if keeps else ''}) values %s "
            f"on conflict (stream_id, topic, partition) {on_conflict} returning 1",
            rows if keeps else [row[:-1] for row in rows],
        )
        return len(inserted)

    def delete_batches(self, stream_id: str, excess: Excess, fewest: int, most: int) -> int:
        """Delete batches that are not kept."""
        values = {
            "stream": stream_id,
            "statuses": [str(status) for status in excess.statuses],
            "landed": str(BatchStatus.LANDED),
            "before": excess.before,
            "age": excess.age,
            "fewest": fewest,
            "most": most,
        }
        return self._deleted(DELETE_BATCHES, values)

    def delete_failures(self, stream_id: str, status: FailureStatus, age: timedelta, most: int) -> int:
        """Delete failures that have had this status for long."""
        return self._deleted(DELETE_FAILURES, {"stream": stream_id, "status": str(status), "age": age, "most": most})

    def delete_dead_letters(self, stream_id: str, age: timedelta, most: int) -> int:
        """Delete dead letters that landed long ago."""
        return self._deleted(DELETE_DEAD_LETTERS, {"stream": stream_id, "age": age, "most": most})

    def _deleted(self, statement: str, values: dict[str, Any]) -> int:
        with self._ledger.own_errors(), self.cursor() as cursor:
            cursor.execute(self._ledger.named(statement), values)
            return int(cursor.rowcount)

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._ledger.own_errors(), self.cursor() as cursor:
            cursor.execute(self._ledger.named(statement), values or None)
            return list(cursor.fetchall())

    def _count(self, statement: str, *values: Any) -> int:
        with self._ledger.own_errors(), self.cursor() as cursor:
            cursor.execute(self._ledger.named(statement), values)
            return int(cursor.rowcount)

    def _values(self, statement: str, rows: list[Any], template: str | None = None) -> list[tuple[Any, ...]]:
        if not rows:
            return []
        with self._ledger.own_errors(), self.waiting(), self.cursor() as cursor:
            return list(execute_values(cursor, self._ledger.named(statement), rows, template, len(rows), fetch=True))
