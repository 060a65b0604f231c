"""Postgres as a ledger outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from exactlyonce.connectors.postgres.fleet import PostgresFleet
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.parameters import servers_of
from exactlyonce.connectors.postgres.spec import PostgresSink


@dataclass(frozen=True)
class PostgresLedgerAddress:
    """The schema of a database, and the login."""

    database: PostgresAddress
    schema: str

    @property
    def key(self) -> Hashable:
        """The database, the login and the schema."""
        return self.server, self.schema

    @property
    def server(self) -> tuple[tuple[str, str], ...]:
        """The database and the login."""
        return tuple(sorted(self.database.parameters.items()))

    @property
    def space(self) -> str:
        """The schema."""
        return self.schema

    @property
    def shown(self) -> str:
        """The database without the password."""
        return self.database.shown

    def store_name(self, namespace: str) -> str:
        """Return the name of the server: its databases fail together, and each user has places of its own."""
        servers = ",".join(servers_of(self.database.parameters))
        return f"Postgres {self.database.parameters['user']}@{servers} of namespace {namespace}"

    def open(self, application: str = "exactlyonce") -> PostgresLedger:
        """Return the ledger, with the limits of the operator."""
        return PostgresLedger(self.database, self.schema, application=application)

    def open_for_batches(self, sink: PostgresSink, application: str) -> PostgresLedger:
        """Return the ledger with the limits of a driver and its tasks."""
        return PostgresLedger(self.database, self.schema, Limits.of_batches(sink), application)


class PostgresConnector:
    """Postgres."""

    def address(self, spec: object, secret: Mapping[str, str]) -> PostgresLedgerAddress:
        """Return the ledger that is in the sink's own database."""
        assert isinstance(spec, PostgresSink), "the registry gives each connector its own spec"
        return PostgresLedgerAddress(PostgresAddress.from_secret(spec.secret_ref.name, secret), spec.ledger_schema)

    def fleet(self, server: tuple[tuple[str, str], ...], shown: str) -> PostgresFleet:
        """Return a database as the monitor asks it."""
        return PostgresFleet(PostgresAddress(dict(server), shown))


LEDGER = PostgresConnector()
