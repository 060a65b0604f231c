"""A ledger in Postgres that loses its latest commits, as where a standby is promoted that had not received them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg2

from tests.rig import Rig

SCHEMA = "exactlyonce"


@dataclass(frozen=True)
class Standby:
    """What a standby had received of the ledger of a stream: each table's rows, as COPY writes them."""

    rig: Rig
    tables: Mapping[str, str]

    @classmethod
    def of(cls, rig: Rig) -> Standby:
        """Take what is committed by now."""
        names = [
            name for (name,) in rig.sql("select tablename from pg_tables where schemaname = %s order by 1", SCHEMA)
        ]
        connection = psycopg2.connect(rig.postgres.dsn(rig.name))
        try:
            connection.set_session(isolation_level="REPEATABLE READ")
            tables = {}
            with connection.cursor() as cursor:
                for name in names:
                    content = io.StringIO()
                    cursor.copy_expert(f'copy {SCHEMA}."{name}" to stdout', content)
                    tables[name] = content.getvalue()
        finally:
            connection.close()
        return cls(rig, tables)

    def promote(self) -> None:
        """Let the ledger be as the standby has it; what was committed since is gone."""
        connection = psycopg2.connect(self.rig.postgres.dsn(self.rig.name))
        try:
            with connection, connection.cursor() as cursor:
                names = ", ".join(f'{SCHEMA}."{name}"' for name in self.tables)
                cursor.execute(f"truncate {names} cascade")
                cursor.execute("set session_replication_role = replica")  # rows come in no order of their keys
                for name, content in self.tables.items():
                    cursor.copy_expert(f'copy {SCHEMA}."{name}" from stdin', io.StringIO(content))
        finally:
            connection.close()
