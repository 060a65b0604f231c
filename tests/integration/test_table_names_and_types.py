"""A real table with names and types that few have: what the catalog says of them, and that each write finds them."""

from __future__ import annotations

import psycopg2
import pytest
from psycopg2 import sql

from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import Combine, MergedColumn, PostgresSink, Write
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.connectors.ports import YieldedColumn
from exactlyonce_spark.connectors.postgres.fit import fit_columns
from exactlyonce_spark.connectors.postgres.table import TargetUnfit, read_table
from exactlyonce_spark.connectors.postgres.writes import Staged, count_staged, write_staged

NASTY = ('a"; drop table t; --', "{}", "per cent %", "%s", "%(batch)s")
APPEND = PostgresSink(secret_ref=SecretRef(name="warehouse"), table="t")
MERGED = (MergedColumn(column="id", combine=Combine.LAST),)


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize(
    ("write", "key", "merge", "ids"),
    [
        (Write.APPEND, (), (), [1, 2, 3]),
        (Write.UPSERT, None, (), [2, 3]),
        (Write.MERGE, None, MERGED, [2, 3]),
    ],
)
def test_a_column_of_any_name_is_written(
    database: str,
    nasty: str,
    write: Write,
    key: tuple[str, ...] | None,
    merge: tuple[MergedColumn, ...],
    ids: list[int],
) -> None:
    keys = (nasty,) if key is None else key
    sink = APPEND.model_copy(update={"write": write, "keys": keys, "merge": merge})
    column = sql.Identifier(nasty)
    staged = Staged(sql.Identifier("staging"), sql.Identifier(nasty), (nasty, "id"))
    unique = sql.SQL("unique") if keys else sql.SQL("")
    with psycopg2.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            sql.SQL(
                "create table {target} ({column} int {unique}, id int);"
                "create table staging (_batch bigint, _tag bigint, _row bigint, {column} int, id int);"
                "insert into staging values (7, 1, 0, 10, 1), (7, 1, 1, 10, 2), (7, 2, 0, 20, 3), (7, 9, 0, 30, 4)"
            ).format(target=staged.target, column=column, unique=unique)
        )
        parameters = {"batch": 7, "tags": [1, 2]}
        cursor.execute(count_staged(staged), parameters)
        assert cursor.fetchone() == (3,)
        cursor.execute(write_staged(staged, sink), parameters)
        cursor.execute(sql.SQL("select id from {} order by id").format(staged.target))
        assert [found for (found,) in cursor.fetchall()] == ids


@pytest.mark.parametrize(
    ("domain", "spark_type", "changed_by"),
    [
        ("numeric(5,2)", "decimal(10,3)", "1.005"),
        ("name", "string", "x" * 64),
        ("timestamp(0)", "timestamp", "2026-01-01 00:00:00.7"),
    ],
)
def test_a_type_that_would_change_a_value_is_found_behind_a_domain(
    address: PostgresAddress, database: str, domain: str, spark_type: str, changed_by: str
) -> None:
    with psycopg2.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(f"create domain narrow as {domain}; create table t (plain {domain}, behind narrow)")
        cursor.execute("insert into t values (%s, %s) returning plain::text, behind::text", (changed_by, changed_by))
        assert cursor.fetchone() not in ((changed_by, changed_by), None), "the server changes it in silence"
    table = read_table(PostgresLedger(address, "exactlyonce"), APPEND)
    for column in ("plain", "behind"):
        with pytest.raises(TargetUnfit, match=f"column {column} is "):
            fit_columns([YieldedColumn(column, spark_type)], table, APPEND)
