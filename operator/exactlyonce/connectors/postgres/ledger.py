"""The ledger in Postgres: connections, transactions, and its schema."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psycopg2
import psycopg2.extensions

from exactlyonce.connectors.postgres.bounded_reads import OVERLAPS, overlap_from, overlap_values
from exactlyonce.connectors.postgres.connection import (
    MARGIN_SECONDS,
    Limits,
    PostgresAddress,
    first_line,
    named_errors,
)
from exactlyonce.connectors.postgres.history import Questions
from exactlyonce.connectors.postgres.lasting import find_passing
from exactlyonce.connectors.postgres.letters import BACKFILLS, recorded_backfill
from exactlyonce.connectors.postgres.pool import ConnectionPool
from exactlyonce.connectors.postgres.rows import LOOK, view_from
from exactlyonce.connectors.postgres.schema import create_schema, create_tables, only_row, quoted, require_version
from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.connectors.postgres.waits import answering_within
from exactlyonce.errors import CommitOutcomeUnknown, LedgerRefused, LedgerUnreachable, TransactionTooLong
from exactlyonce.ledger.history import Overlap, RecordedBackfill, Stretch
from exactlyonce.ledger.rows import DatabaseIdentity, FailureStatus, LedgerView, Owner

DEFAULT_SCHEMA = "exactlyonce"
_COMMIT_IN_MEMORY = "set local synchronous_commit = off"
# A role or a database may have it off; what it is beyond `on` (remote_apply), or instead of it (local), is left as it is.
_COMMIT_ON_DISK = (
    "select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off'"
)
_SCHEMA_LOCK = 0x0E0517  # one arbitrary key for pg_advisory_xact_lock, the same in every process
_TRANSACTION_TIMEOUT_FROM = 170000  # PostgreSQL 17 has transaction_timeout


class PostgresLedger(Questions):
    """A `Ledger` in a schema of a Postgres database.

    Threads may share it; each transaction has a connection of its own. Everything a session needs is set inside each
    transaction (SET LOCAL), so a transaction pooler may stand between.
    """

    def __init__(
        self,
        address: PostgresAddress,
        schema: str = DEFAULT_SCHEMA,
        limits: Limits | None = None,
        application: str = "exactlyonce",
    ) -> None:
        self.address = address
        self.schema = schema
        self.limits = limits or Limits()
        self._pool = ConnectionPool(address, self.limits, application)

    def close(self) -> None:
        """Close the idle connections now, and each of the others when it is given back."""
        self._pool.close()

    def own_errors(self) -> AbstractContextManager[None]:
        """Return the context for statements of the ledger itself: whatever the server says of one has a name."""
        return named_errors(str(self.address), own=True)

    @contextmanager
    def transaction(
        self, *, evicting: bool = False, lasting: bool = True, dispensable: bool = False
    ) -> Iterator[PostgresTransaction]:
        """Open a transaction; see `Ledger.transaction`."""
        connection = self._begin(lasting)
        transaction = PostgresTransaction(self, connection, evicting)
        began = time.monotonic()
        try:
            with named_errors(str(self.address)), answering_within(connection, self.limits.held_seconds):
                yield transaction
        except (LedgerUnreachable, psycopg2.errors.QueryCanceled) as problem:
            self._roll_back(connection)
            # By the clock: a server that ends a session for its time closes the connection, and psycopg2 says no more.
            if time.monotonic() - began < self.limits.transaction_seconds:
                raise
            raise self._too_long(problem) from problem
        except BaseException:
            self._roll_back(connection)
            raise
        self._commit(connection)

    def view(self, stream_id: str) -> LedgerView | None:
        """Return what is committed of a stream, in one query."""

        def question(cursor: psycopg2.extensions.cursor) -> tuple[Any, ...] | None:
            try:
                cursor.execute(self.named(LOOK), (stream_id,))
            except psycopg2.errors.UndefinedTable:
                return None  # no stream has ever been run against this database
            return cursor.fetchone()

        row = self._pool.query(question)
        return None if row is None else view_from(row)

    def database_identity(self) -> DatabaseIdentity:
        """Return which database this is; a plain role may ask (pg_control_system)."""

        def question(cursor: psycopg2.extensions.cursor) -> tuple[Any, ...]:
            cursor.execute(
                "select (pg_control_system()).system_identifier::text, oid::bigint "
                "from pg_database where datname = current_database()"
            )
            return only_row(cursor)

        return DatabaseIdentity(*self._pool.query(question))

    def identity(self) -> str:
        """Return the database and the schema."""
        return f"{self.database_identity()} schema {self.schema}"

    def forget(self, stream_id: str, owner: Owner) -> None:
        """Delete every row of a stream that belongs to `owner`; done again, it finds none. The target table is left as it is.

        Raises:
            LedgerUnreachable, CommitOutcomeUnknown: if the database does not answer.
        """
        with self.transaction() as transaction, self.own_errors(), transaction.cursor() as cursor:
            cursor.execute("select to_regclass(%s)", (f"{quoted(self.schema)}.streams",))
            if only_row(cursor)[0] is not None:
                deleted = "delete from {schema}.streams where (stream_id, owner_cluster, owner_uid) = (%s, %s, %s)"
                cursor.execute(self.named(deleted), (stream_id, owner.cluster, owner.uid))

    def prepare(self) -> None:
        """Make the schema under an advisory lock; nothing happens when it is there.

        Raises:
            LedgerRefused: if the role lacks a right, the schema is of another version, or one of its tables does not survive a
                crash of the server.
        """
        require_version(self, self._installed_version() or self._make())
        passing = self._pool.query(lambda cursor: find_passing(cursor, self.schema))
        if passing is not None:
            raise LedgerRefused(f"The ledger at {self.address} may lose what has landed: {passing}.")

    def _make(self) -> int:
        """Make what is missing; return the version that is there then."""
        with self.transaction() as transaction, self.own_errors(), transaction.cursor() as cursor:
            cursor.execute("select pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            cursor.execute("select exists (select from pg_namespace where nspname = %s)", (self.schema,))
            if not only_row(cursor)[0]:
                create_schema(self, cursor)
            cursor.execute("select to_regclass(%s) is not null", (f"{quoted(self.schema)}.schema_versions",))
            if not only_row(cursor)[0]:
                create_tables(self, cursor)
            cursor.execute(self.named("select coalesce(max(version), 0) from {schema}.schema_versions"))
            return int(only_row(cursor)[0])

    def overlaps_of(
        self, stream_id: str, statuses: Collection[FailureStatus], stretches: Sequence[Stretch], by: str
    ) -> tuple[Overlap, ...]:
        """Return how many records are in failed ranges, summed by the database."""
        rows = self._asked(OVERLAPS, overlap_values(stream_id, statuses, stretches, by))
        return tuple(overlap_from(row) for row in rows)

    def kept_backfills(self, stream_id: str) -> tuple[RecordedBackfill, ...]:
        """Return the backfills of a stream."""
        return tuple(recorded_backfill(row) for row in self._asked(BACKFILLS, (stream_id,)))

    def open_connection(self) -> psycopg2.extensions.connection:
        """Open a new connection with this ledger's login and limits."""
        return self._pool.open()

    def _begin(self, lasting: bool) -> psycopg2.extensions.connection:
        connection = self._pool.idle()
        if connection is not None:
            try:
                self._send_begin(connection, lasting)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                # It may have died since; nothing was begun, so a fresh one may take its place.
                connection.close()
                self._pool.close_idle()
            else:
                return connection
        connection = self.open_connection()
        with self.own_errors():
            self._send_begin(connection, lasting)
        return connection

    def _too_long(self, problem: Exception) -> TransactionTooLong:
        return TransactionTooLong(
            f"A transaction at {self.address} took longer than {self.limits.transaction_seconds} seconds and was ended "
            f"({_shown(problem)}). {self.limits.advice}"
        )

    def _send_begin(self, connection: psycopg2.extensions.connection, lasting: bool) -> None:
        limits = self.limits
        settings = {
            "lock_timeout": f"{limits.lock_seconds}s",
            "timezone": "UTC",
            "statement_timeout": f"{limits.transaction_seconds}s",
            "idle_in_transaction_session_timeout": f"{limits.transaction_seconds}s",
        }
        if connection.server_version >= _TRANSACTION_TIMEOUT_FROM:
            # Later than the statement's: a statement that is cancelled says so, a session that is ended does not.
            settings["transaction_timeout"] = f"{limits.transaction_seconds + MARGIN_SECONDS}s"
        assignments = "; ".join(f"set local {name} = '{value}'" for name, value in settings.items())
        durability = _COMMIT_ON_DISK if lasting else _COMMIT_IN_MEMORY
        with answering_within(connection, limits.answer_seconds), connection.cursor() as cursor:
            cursor.execute(f"begin isolation level read committed; {assignments}; {durability}")

    def _commit(self, connection: psycopg2.extensions.connection) -> None:
        try:
            with answering_within(connection, self.limits.held_seconds), connection.cursor() as cursor:
                cursor.execute("commit")
                status = cursor.statusmessage
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as problem:
            connection.close()
            raise CommitOutcomeUnknown(
                f"The connection to {self.address} was lost during a COMMIT ({first_line(problem)}); "
                "whether it took effect is settled under the stream's lock."
            ) from problem
        except psycopg2.Error:
            self._roll_back(connection)
            raise
        if status != "COMMIT":
            self._pool.give_back(connection)
            raise LedgerRefused(
                f"The database at {self.address} answered {status} to a COMMIT; nothing has taken effect."
            )
        self._pool.give_back(connection)

    def _roll_back(self, connection: psycopg2.extensions.connection) -> None:
        with suppress(psycopg2.Error):
            with answering_within(connection, self.limits.answer_seconds), connection.cursor() as cursor:
                cursor.execute("rollback")
            self._pool.give_back(connection)
            return
        connection.close()


def _shown(problem: Exception) -> str:
    return first_line(problem) if isinstance(problem, psycopg2.Error) else str(problem)
