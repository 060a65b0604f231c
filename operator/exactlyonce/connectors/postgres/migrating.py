"""How the ledger's schema is made and migrated, within a transaction that holds the lock of migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg2
import psycopg2.extensions

from exactlyonce.connectors.postgres.connection import first_line
from exactlyonce.connectors.postgres.tables import MIGRATIONS, SCHEMA_VERSION
from exactlyonce.errors import LedgerRefused

if TYPE_CHECKING:
    from exactlyonce.connectors.postgres.ledger import PostgresLedger


def is_latest(installed: int) -> bool:
    """Whether a schema of this version needs no migration."""
    return installed == SCHEMA_VERSION


def create_schema(ledger: PostgresLedger, cursor: psycopg2.extensions.cursor) -> None:
    """Create the schema.

    Raises:
        LedgerRefused: if the role may not.
    """
    try:
        cursor.execute(ledger.named("create schema {schema}"))
    except psycopg2.errors.InsufficientPrivilege as problem:
        raise LedgerRefused(
            f"The ledger's schema {ledger.schema} is missing at {ledger.address} and the role may not create it "
            f"({first_line(problem)}); let an administrator run: "
            f"create schema {quoted(ledger.schema)} authorization {quoted(ledger.address.parameters['user'])};"
        ) from problem


def migrate(ledger: PostgresLedger, cursor: psycopg2.extensions.cursor) -> None:
    """Apply the migrations that are missing.

    Raises:
        LedgerRefused: if the schema is of a release that this one cannot use.
    """
    cursor.execute(
        ledger.named(
            "create table if not exists {schema}.schema_versions "
            "(version integer primary key, oldest_reader integer not null, applied_at timestamptz default now())"
        )
    )
    cursor.execute(ledger.named("select coalesce(max(version), 0), max(oldest_reader) from {schema}.schema_versions"))
    installed, oldest_reader = only_row(cursor)
    if oldest_reader is not None and oldest_reader > SCHEMA_VERSION:
        raise LedgerRefused(
            f"The ledger's schema {ledger.schema} at {ledger.address} has version {installed}, which this release "
            f"(version {SCHEMA_VERSION}) cannot use; run the newer release."
        )
    for migration in MIGRATIONS:
        if migration.version > installed:
            cursor.execute(ledger.named(migration.sql))
            cursor.execute(
                ledger.named("insert into {schema}.schema_versions (version, oldest_reader) values (%s, %s)"),
                (migration.version, migration.oldest_reader),
            )


def only_row(cursor: psycopg2.extensions.cursor) -> tuple[Any, ...]:
    """Return the row of a statement that has one."""
    row = cursor.fetchone()
    assert row is not None, "the statement returns one row"
    return row


def quoted(identifier: str) -> str:
    """Return an identifier as SQL writes it."""
    return '"' + identifier.replace('"', '""') + '"'
