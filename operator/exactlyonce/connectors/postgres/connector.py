"""Postgres as a ledger outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from exactlyonce.connectors.postgres.fleet import PostgresFleet
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.ledger_spec import LedgerInPostgres
from exactlyonce.connectors.postgres.parameters import servers_of
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.ledger.connector import Use


@dataclass(frozen=True)
class PostgresLedgerAddress:
    """The schema of a database, and the login."""

    database: PostgresAddress
    schema: str
    of_batches: Limits = field(default_factory=Limits)

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

    def open(self, application: str = "exactlyonce", use: Use = Use.PASSES) -> PostgresLedger:
        """Return the ledger, with the limits of its use."""
        return PostgresLedger(self.database, self.schema, self._limits(use), application)

    def _limits(self, use: Use) -> Limits:
        match use:
            case Use.PASSES:
                return Limits()
            case Use.BATCHES:
                return self.of_batches
            case Use.HOUSEKEEPING:
                return Limits(lock_seconds=1, transaction_seconds=10, answer_seconds=10)
            case _:
                assert_never(use)


class PostgresConnector:
    """Postgres."""

    def address(self, spec: object, secret: Mapping[str, str]) -> PostgresLedgerAddress:
        """Return the ledger that is in the sink's own database, or the one of a stream whose rows go elsewhere."""
        assert isinstance(spec, PostgresSink | LedgerInPostgres), "the registry gives each connector its own spec"
        address = PostgresAddress.from_secret(spec.secret_ref.name, secret)
        if isinstance(spec, PostgresSink):
            return PostgresLedgerAddress(address, spec.ledger_schema, Limits.of_batches(spec))
        return PostgresLedgerAddress(address, spec.schema_name, Limits())

    def fleet(self, server: tuple[tuple[str, str], ...], shown: str) -> PostgresFleet:
        """Return a database as the monitor asks it."""
        return PostgresFleet(PostgresAddress(dict(server), shown))


LEDGER = PostgresConnector()
