"""A Postgres table as a batch's target: staging, moving, writing, dead letters."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg2.errors
import psycopg2.extensions
import pyarrow as pa
from psycopg2 import sql

from exactlyonce.api.format import DELETED
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink, Write
from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.errors import LedgerRefused, LedgerUnreachable, LockHeldByOther
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.postgres import writes
from exactlyonce_spark.connectors.postgres.copying import (
    copy_rows,
    quoted_name,
    require_all_taken,
    require_none_left_out,
)
from exactlyonce_spark.connectors.postgres.dead_letters import write_letters
from exactlyonce_spark.connectors.postgres.deletions import delete_staged
from exactlyonce_spark.connectors.postgres.table import require_lasting
from exactlyonce_spark.target import DeadLetter, Moved, Staged

_CLEAR_LOCK_MILLISECONDS = 50


class StagingTableLost(LedgerUnreachable):
    """The staging table of this epoch is gone, as where a failover has lost that it was made; nothing was written."""


@dataclass(frozen=True)
class TargetPlan:
    """What a target needs to be recreated on an executor; holds no credentials."""

    stream_id: str
    epoch: Epoch
    ledger_schema: str
    table_schema: str
    table_name: str
    columns: tuple[str, ...]
    sink: PostgresSink
    deletes: bool = False

    @property
    def staging_table(self) -> str:
        """The staging table of this epoch; streams never share one."""
        return f"{_staging_prefix(self.stream_id)}{self.epoch}"


class PostgresTarget:
    """A `Target`; rows are Arrow batches whose columns are the plan's, in its order."""

    replaces = False
    """Whether every batch takes the place of all rows."""

    def __init__(self, ledger: PostgresLedger, plan: TargetPlan) -> None:
        self._ledger = ledger
        self._plan = plan
        self._table = sql.Identifier(plan.table_schema, plan.table_name)
        self._staging = sql.Identifier(plan.ledger_schema, plan.staging_table)
        self._staged = writes.Staged(self._staging, self._table, plan.columns, plan.deletes)
        self._write_staged = writes.write_staged(self._staged, plan.sink)
        self._keeps_order = plan.sink.write is not Write.APPEND

    def create_staging(self) -> None:
        """Make this epoch's staging table, unlogged, with the types of the target's columns."""
        names = sql.SQL(", ").join(sql.Identifier(name) for name in self._plan.columns)
        if self._plan.deletes:
            names = sql.SQL("{}, null::boolean as {}").format(names, sql.Identifier(DELETED))
        statement = sql.SQL(
            "drop table if exists {staging}; create unlogged table {staging} as "
            "select null::bigint as _batch, null::bigint as _tag, null::bigint as _row, {names} from {table} limit 0"
        ).format(staging=self._staging, names=names, table=self._table)
        with self._ledger.transaction(lasting=False) as transaction, transaction.cursor() as cursor:
            cursor.execute(statement)

    def drop_older_staging(self) -> None:
        """Drop what earlier epochs left; what a session still uses or another role made is left, never waited for."""
        prefix = _staging_prefix(self._plan.stream_id)
        with self._ledger.transaction(lasting=False) as transaction, transaction.cursor() as cursor:
            cursor.execute(
                "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
                "where n.nspname = %s and starts_with(relname, %s) and relkind = 'r'",
                (self._plan.ledger_schema, prefix),
            )
            names = [name for (name,) in cursor.fetchall()]
        for name in names:
            epoch = name.removeprefix(prefix)
            if epoch.isdigit() and int(epoch) < self._plan.epoch:
                self._where_allowed(sql.SQL("drop table if exists {}").format(
                    sql.Identifier(self._plan.ledger_schema, name)
                ))  # fmt: skip

    def stage(self, batch: BatchNumber, tag: int, rows: Iterable[pa.RecordBatch]) -> int:
        """COPY rows into the staging table under a tag."""
        with self._ledger.transaction(lasting=False) as transaction, self._requiring_staging():
            return self._copy_staged(transaction, batch, tag, rows)

    def move_staged(self, transaction: PostgresTransaction, batch: BatchNumber, staged: Sequence[Staged]) -> Moved:
        """Write the rows that carry one of the tags; in whole, but for what the table rightly leaves as it is."""
        parameters = {"batch": batch, "tags": [part.tag for part in staged]}
        with transaction.cursor() as cursor, self._requiring_staging():
            if self._plan.sink.write is Write.APPEND:
                moved = self._append(cursor, parameters, sum(part.rows for part in staged))
            else:
                moved = self._combine(cursor, parameters)
        self.require_lasting(transaction)
        return moved

    def require_lasting(self, transaction: PostgresTransaction) -> None:
        """Require that what was written is in the table, after a crash of the server too; asked once rows are written."""
        plan = self._plan
        with transaction.cursor() as cursor:
            require_lasting(
                cursor, plan.sink, plan.table_schema, plan.table_name, deletes=plan.deletes or self.replaces
            )

    def write(self, transaction: PostgresTransaction, rows: Iterable[pa.RecordBatch]) -> int:
        """Write rows to the table: by COPY, or through the staging table where rows meet older ones."""
        if self._plan.sink.write is Write.APPEND:
            with transaction.cursor() as cursor:
                count = copy_rows(cursor, self._table, self._plan.columns, rows, -1)
            self.require_lasting(transaction)
            return count
        batch, tag = BatchNumber(-1), secrets.randbits(63)
        with self._requiring_staging():
            count = self._copy_staged(transaction, batch, tag, rows)
        moved = self.move_staged(transaction, batch, [Staged(tag, count)])
        assert moved.found == count, "a transaction sees its own rows"
        with transaction.cursor() as cursor:
            cursor.execute(sql.SQL("delete from {} where _tag = %s").format(self._staging), (tag,))
        return moved.written

    def write_dead_letters(
        self,
        transaction: PostgresTransaction,
        batch: BatchNumber,
        letters: Sequence[DeadLetter],
        origin_ids: Mapping[str, str],
    ) -> int:
        """Write malformed records to the ledger's table of them."""
        with transaction.cursor() as cursor:
            write_letters(cursor, self._plan.ledger_schema, self._plan.stream_id, batch, letters, origin_ids)
        return len(letters)

    def clear_staging(self, batch: BatchNumber) -> None:
        """Empty the staging table; while a lost task still writes to it, it is left as it is."""
        self._where_allowed(sql.SQL("truncate {}").format(self._staging))

    def _copy_staged(
        self, transaction: PostgresTransaction, batch: BatchNumber, tag: int, rows: Iterable[pa.RecordBatch]
    ) -> int:
        order = writes.STAGING_COLUMNS if self._keeps_order else writes.STAGING_COLUMNS[:2]
        with transaction.cursor() as cursor:
            tagged = _tagged(rows, batch, tag, numbered=self._keeps_order)
            deleted = [DELETED] if self._plan.deletes else []
            return copy_rows(cursor, self._staging, [*order, *self._plan.columns, *deleted], tagged, batch)

    def _append(self, cursor: psycopg2.extensions.cursor, parameters: Mapping[str, object], expected: int) -> Moved:
        cursor.execute(self._write_staged, parameters)
        moved = int(cursor.rowcount)
        if moved == expected:
            return Moved(moved, moved)
        cursor.execute(writes.count_staged(self._staged), parameters)
        (found,) = writes.counted(cursor)
        require_all_taken(self._table, found, moved)
        return Moved(found, moved)

    def _combine(self, cursor: psycopg2.extensions.cursor, parameters: Mapping[str, object]) -> Moved:
        """Upsert or Merge: each key takes effect, or the table holds it rightly as it is; deletions come first."""
        sink = self._plan.sink
        cursor.execute(writes.count_keys(self._staged, sink), parameters)
        found, keys = writes.counted(cursor)
        deleted = delete_staged(cursor, self._staged, sink.keys, parameters) if self._plan.deletes else 0
        cursor.execute(self._write_staged, parameters)
        written = int(cursor.rowcount)
        if written != keys:
            named = {**parameters, "target": quoted_name(self._table)}
            cursor.execute(writes.count_left_out(self._staged, sink), named)
            lost, touched, differing = writes.counted(cursor)
            # Rows of this transaction that the statement did not write: a trigger left out a row, and changed it by itself.
            swallowed = min(max(touched - written, 0), differing)
            require_none_left_out(self._table, keys, lost + swallowed)
        return Moved(found, deleted + written)

    @contextmanager
    def _requiring_staging(self) -> Iterator[None]:
        """Tell a staging table that is gone from a target table that is: the next driver makes another one.

        Raises:
            StagingTableLost: if it is gone.
        """
        try:
            yield
        except psycopg2.errors.UndefinedTable as problem:
            if self._plan.staging_table not in str(problem):
                raise
            raise StagingTableLost(
                f"The staging table {self._plan.ledger_schema}.{self._plan.staging_table} is gone: a failover lost its latest "
                "transactions, or somebody dropped it. Nothing was written; the next driver makes another one."
            ) from problem

    def _where_allowed(self, statement: sql.Composed) -> None:
        """Run a statement on staging that nobody needs any more, unless it is in use or another role's."""
        ledger, left = self._ledger, suppress(LockHeldByOther, LedgerRefused)
        with (
            left,
            ledger.transaction(lasting=False) as transaction,
            ledger.own_errors(),
            transaction.cursor() as cursor,
        ):
            cursor.execute(f"set local lock_timeout = '{_CLEAR_LOCK_MILLISECONDS}ms'")
            cursor.execute(statement)


def _tagged(
    batches: Iterable[pa.RecordBatch], batch: BatchNumber, tag: int, *, numbered: bool
) -> Iterator[pa.RecordBatch]:
    """Put batch, tag and, where the order matters, the row's number before the columns."""
    counter = itertools.count(0)
    for rows in batches:
        count = rows.num_rows
        head = [pa.repeat(pa.scalar(batch, pa.int64()), count), pa.repeat(pa.scalar(tag, pa.int64()), count)]
        if numbered:
            head.append(pa.array(itertools.islice(counter, count), pa.int64()))
        arrays = [*head, *rows.columns]
        yield pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])


def _staging_prefix(stream_id: str) -> str:
    return f"staging_{hashlib.sha256(stream_id.encode()).hexdigest()[:16]}_"
