"""A table as a replay writes to it: in the transaction that marks the ranges, without an epoch and its staging table."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg2 import sql

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink, Write
from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.errors import RowsNotTaken
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.connectors.postgres import writes
from exactlyonce_spark.connectors.postgres.copying import quoted_name
from exactlyonce_spark.connectors.postgres.fit import fit_columns
from exactlyonce_spark.connectors.postgres.table import Table
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.target import Moved, Staged

_TEMPORARY = "pg_temp"
"""The schema of a session's own temporary tables, whatever it is really called."""


class VersionTied(RowsNotTaken):
    """The table has rows with the version of those that are replayed, and nothing tells which are later."""


class ReplayTarget(PostgresTarget):
    """A `Target` whose rows go through a temporary table where they meet older ones; it goes with its transaction.

    To a stream, which lands records in their order, a row with the version of one that is there is the later one. A replay
    comes out of order: the row that is there may be of an earlier record or of a later one. So it takes neither for that.
    """

    def __init__(self, ledger: PostgresLedger, plan: TargetPlan) -> None:
        super().__init__(ledger, plan)
        self._staging_name = f"exactlyonce_replay_{secrets.token_hex(8)}"
        self._staging = sql.Identifier(_TEMPORARY, self._staging_name)
        self._staged = writes.Staged(self._staging, self._table, plan.columns)
        self._write_staged = writes.write_staged(self._staged, plan.sink)

    def write(self, transaction: PostgresTransaction, rows: Iterable[pa.RecordBatch]) -> int:
        """Write rows to the table."""
        if self._plan.sink.write is not Write.APPEND:
            names = sql.SQL(", ").join(sql.Identifier(name) for name in self._plan.columns)
            statement = sql.SQL(
                "create temporary table {staging} on commit drop as "
                "select null::bigint as _batch, null::bigint as _tag, null::bigint as _row, {names} from {table} limit 0"
            ).format(staging=sql.Identifier(self._staging_name), names=names, table=self._table)
            with transaction.cursor() as cursor:
                cursor.execute(statement)
        return super().write(transaction, rows)

    def move_staged(self, transaction: PostgresTransaction, batch: BatchNumber, staged: Sequence[Staged]) -> Moved:
        """Write the staged rows, unless one has the version of the row of its key, and other values.

        Raises:
            VersionTied: if one has.
        """
        version = self._plan.sink.version
        if version is not None:
            tags = [part.tag for part in staged]
            named = {"batch": batch, "tags": tags, "target": quoted_name(self._table)}
            with transaction.cursor() as cursor:
                cursor.execute(writes.count_ties(self._staged, self._plan.sink, version), named)
                (ties,) = writes.counted(cursor)
            if ties:
                raise VersionTied(
                    f"For {ties} rows, {self._plan.table_name} has a row of the same key with the same {version} and other "
                    "values, and nothing tells which is the later one. Correct the row by hand, or have the transform make a "
                    "version that differs."
                )
        return super().move_staged(transaction, batch, staged)


@dataclass(frozen=True)
class PreparedTableOfReplay:
    """A `PreparedReplay`: the target table as the database has it."""

    sink: PostgresSink
    ledger: PostgresLedger
    stream_id: str
    table: Table

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return how each column is handed over as text that Postgres reads."""
        assert not deletes, "a replay of deletions is refused"
        return fit_columns(yielded, self.table, self.sink)

    def target(self, columns: Sequence[FittedColumn], token: str) -> ReplayTarget:
        """Return the table."""
        plan = TargetPlan(
            self.stream_id,
            Epoch(0),  # it names a staging table, which a replay has not
            self.sink.ledger_schema,
            self.table.schema,
            self.table.name,
            tuple(column.name for column in columns),
            self.sink,
        )
        return ReplayTarget(self.ledger, plan)
