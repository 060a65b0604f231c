"""How statements of the ledger are run inside one Postgres transaction."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import psycopg2.extensions
from psycopg2.extras import execute_values

from exactlyonce.connectors.postgres.eviction import evicting

if TYPE_CHECKING:
    from exactlyonce.connectors.postgres.ledger import PostgresLedger


class Statements:
    """One connection within a transaction; each statement is named with the ledger's schema."""

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

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return what a statement yields."""
        return self._rows(statement, *values)

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
