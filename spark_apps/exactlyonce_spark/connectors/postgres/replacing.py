"""A table that belongs to a stream of outputMode: Complete: each batch's rows take the place of all that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from psycopg2 import sql

from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.postgres.table import TargetUnfit
from exactlyonce_spark.connectors.postgres.target import PostgresTarget
from exactlyonce_spark.target import Moved, Staged

MOST_ROWS = 100_000
"""Every batch writes the whole result: a larger one would cost more in each batch than what has changed in it."""


class ReplacingTarget(PostgresTarget):
    """A `Target` that replaces the table's rows in the transaction that lands the batch; none means an empty table.

    By DELETE, not TRUNCATE: readers see the former result until the new one is committed, and wait for nothing.
    """

    replaces = True

    def write(self, transaction: PostgresTransaction, rows: Iterable[pa.RecordBatch]) -> int:
        """Write the rows in place of all that are there."""
        batches = list(rows)
        self._make_room(transaction, sum(batch.num_rows for batch in batches))
        return super().write(transaction, batches)

    def move_staged(self, transaction: PostgresTransaction, batch: BatchNumber, staged: Sequence[Staged]) -> Moved:
        """Write the staged rows in place of all that are there."""
        self._make_room(transaction, sum(part.rows for part in staged))
        return super().move_staged(transaction, batch, staged)

    def _make_room(self, transaction: PostgresTransaction, rows: int) -> None:
        """Delete every row.

        Raises:
            TargetUnfit: if the result is too large, or the table keeps a row; nothing is written.
        """
        name = ".".join(self._table.strings)
        if rows > MOST_ROWS:
            raise TargetUnfit(
                f"The result has {rows} rows, and outputMode: Complete writes all of them in every batch, {MOST_ROWS} at most; "
                f"nothing was written to {name}. Set outputMode: Update with write: Upsert, or aggregate to fewer rows."
            )
        with transaction.cursor() as cursor:
            cursor.execute(sql.SQL("delete from {}").format(self._table))
            cursor.execute(sql.SQL("select exists (select from {})").format(self._table))
            if cursor.fetchone() != (False,):
                raise TargetUnfit(
                    f"The table {name} keeps rows that outputMode: Complete has to replace; nothing was written. Drop the "
                    "trigger or the rule that keeps them from being deleted, and let nobody else write to the table."
                )
