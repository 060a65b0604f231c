"""How the ledger's schema is made, or refused, within a transaction that holds its lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg2
import psycopg2.extensions

from exactlyonce.connectors.postgres.connection import first_line
from exactlyonce.connectors.postgres.tables import SCHEMA, SCHEMA_VERSION
from exactlyonce.errors import LedgerRefused

if TYPE_CHECKING:
    from exactlyonce.connectors.postgres.ledger import PostgresLedger


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


def create_tables(ledger: PostgresLedger, cursor: psycopg2.extensions.cursor) -> None:
    """Create the tables and record their version."""
    cursor.execute(ledger.named(SCHEMA))
    cursor.execute(ledger.named("insert into {schema}.schema_versions (version) values (%s)"), (SCHEMA_VERSION,))


def require_version(ledger: PostgresLedger, installed: int) -> None:
    """Require that tables that are there are those that this release's statements are written for.

    Raises:
        LedgerRefused: if they are of another version.
    """
    if installed != SCHEMA_VERSION:
        raise LedgerRefused(
            f"The ledger's schema {ledger.schema} at {ledger.address} has version {installed}, and this release needs "
            f"version {SCHEMA_VERSION}; run the release that made it."
        )


def only_row(cursor: psycopg2.extensions.cursor) -> tuple[Any, ...]:
    """Return the row of a statement that has one."""
    row = cursor.fetchone()
    assert row is not None, "the statement returns one row"
    return row


def quoted(identifier: str) -> str:
    """Return an identifier as SQL writes it."""
    return '"' + identifier.replace('"', '""') + '"'
