"""Put a stream's database back to an earlier moment, as a failover that loses transactions does: table by table, at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
import psycopg2.extensions
from psycopg2 import sql

from tests.rig import Rig


def back_up(rig: Rig) -> None:
    """Keep what every table of the stream's database holds now."""
    with _cursor(rig) as cursor:
        cursor.execute("drop schema if exists backup cascade; create schema backup")
        for schema, name in _tables(cursor):
            cursor.execute(
                sql.SQL("create table {} as table {}").format(_kept(schema, name), sql.Identifier(schema, name))
            )


def restore(rig: Rig) -> None:
    """Let every table hold what it held when it was backed up, in one transaction."""
    with _cursor(rig) as cursor:
        cursor.execute("set local session_replication_role = replica")  # foreign keys hold again when all is back
        tables = _tables(cursor)
        for schema, name in tables:
            cursor.execute(sql.SQL("delete from {}").format(sql.Identifier(schema, name)))
        for schema, name in tables:
            cursor.execute(
                "select column_name from information_schema.columns where table_schema = %s and table_name = %s "
                "and is_generated = 'NEVER' order by ordinal_position",
                (schema, name),
            )
            columns = sql.SQL(", ").join(sql.Identifier(column) for (column,) in cursor.fetchall())
            cursor.execute(
                sql.SQL("insert into {} ({columns}) overriding system value select {columns} from {}").format(
                    sql.Identifier(schema, name), _kept(schema, name), columns=columns
                )
            )


def _kept(schema: str, name: str) -> sql.Identifier:
    return sql.Identifier("backup", f"{schema}.{name}")


def _tables(cursor: psycopg2.extensions.cursor) -> list[tuple[str, str]]:
    cursor.execute(
        "select schemaname, tablename from pg_tables where schemaname in ('exactlyonce', 'public') "
        "and not starts_with(tablename, 'staging_') order by 1, 2"
    )
    return [(str(schema), str(name)) for schema, name in cursor.fetchall()]


@contextmanager
def _cursor(rig: Rig) -> Iterator[psycopg2.extensions.cursor]:
    connection = psycopg2.connect(rig.postgres.dsn(rig.name))
    try:
        with connection, connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()
