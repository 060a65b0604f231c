"""A role, a database and a secret as an administrator may have left them, and the ledger of a stream that has to use them."""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from testbed.postgres import Postgres
from tests.conftest import QUICK
from tests.ledgers import STREAM

Given = Callable[[Postgres, str], dict[str, str]]
"""Brings about a situation for the role and database of that name, and returns what the secret says otherwise."""


def situation(*statements: str) -> Given:
    """Statements of an administrator, with `{name}` for the role and the database."""

    def bring_about(server: Postgres, name: str) -> dict[str, str]:
        for statement in statements:
            server.execute(statement.format(name=name))
        return {}

    return bring_about


def secret_says(**changes: str) -> Given:
    return lambda server, name: changes


def ledger_of_a_role(server: Postgres, name: str, given: Given) -> PostgresLedger:
    """A ledger whose role and database have that name, as the situation leaves them."""
    server.create_database(name)
    server.execute(f"create role {name} login password 'right-canary'")
    secret = {"host": "127.0.0.1", "port": str(server.port), "dbname": name, "user": name, "password": "right-canary"}
    secret.update(given(server, name))
    return PostgresLedger(PostgresAddress.from_secret("warehouse", secret), limits=QUICK)


def asks_of(ledger: PostgresLedger) -> list[Callable[[], object]]:
    """What is asked of a ledger first."""
    return [ledger.prepare, lambda: ledger.view(STREAM)]


def assert_one_line_without_secrets(sentence: str) -> None:
    """Require one line that shows no password of these roles."""
    assert "\n" not in sentence
    assert "canary" not in sentence
