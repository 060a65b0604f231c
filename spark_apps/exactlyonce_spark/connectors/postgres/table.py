"""The target table as the database has it."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg2.extensions
from psycopg2 import sql

from exactlyonce.connectors.postgres.lasting import CheckedTable, find_passing
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink, Write
from exactlyonce.errors import Refused


class TargetUnfit(Refused):
    """The table is missing, or does not fit what the stream writes; nothing was written."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of the table.

    `type_name` is what format_type() says, such as numeric(12,2) or text[]; of a domain, what it says of the type below.
    `category` is pg_type.typcategory, or the type's own name for dates, times, numbers, json and bytea.
    """

    name: str
    type_name: str
    category: str
    not_null: bool
    filled_by_itself: bool
    always_generated: bool
    element_category: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its columns, and the columns of each unique index that an upsert may rest on."""

    schema: str
    name: str
    columns: tuple[TableColumn, ...]
    unique_keys: tuple[frozenset[str], ...]

    @property
    def identifier(self) -> sql.Identifier:
        """The quoted name."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    def column(self, name: str) -> TableColumn | None:
        """Return a column by name."""
        return next((column for column in self.columns if column.name == name), None)


_FIND = """
select c.oid, n.nspname, c.relname, c.relkind
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)
"""

_COLUMNS = """
select a.attname, format_type(b.oid, case when t.typtype = 'd' then t.typtypmod else a.atttypmod end),
    case when t.typtype = 'e' then 'E' when b.typname in ('json', 'jsonb') then 'json' when b.typname = 'bytea' then 'bytea'
         when b.typname in ('timestamp', 'timestamptz', 'date', 'time', 'timetz') then b.typname
         when b.typname in ('int2', 'int4', 'int8', 'float4', 'float8', 'numeric') then b.typname
         else b.typcategory::text end,
    a.attnotnull, a.atthasdef or a.attidentity <> '', a.attgenerated <> '' or a.attidentity = 'a', e.typcategory::text
from pg_attribute a
join pg_type t on t.oid = a.atttypid
join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
left join pg_type e on e.oid = nullif(b.typelem, 0) and b.typcategory = 'A'
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""

_UNIQUE_KEYS = """
select array_agg(a.attname::text) from pg_index i
join lateral unnest(i.indkey::int[]) with ordinality k(attnum, place) on k.place <= i.indnkeyatts
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = %s and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null group by i.indexrelid
"""


def read_table(ledger: PostgresLedger, sink: PostgresSink, *, deletes: bool = False) -> Table:
    """Look up the sink's table by its names, exactly as written; `deletes`: rows of it are deleted, too.

    Raises:
        TargetUnfit: if there is none, or it is no table, or not all that is written to it would be there after a crash.
        LedgerRefused, LedgerUnreachable: by what the database says.
    """
    with ledger.transaction() as transaction, ledger.own_errors(), transaction.cursor() as cursor:
        cursor.execute(_FIND, (".".join(_quoted(part) for part in sink.table_names),))
        found = cursor.fetchone()
        if found is None:
            raise TargetUnfit(
                f"There is no table {sink.table} at {ledger.address} that this role can see; create it, or correct "
                "sink.postgres.table (names are case-sensitive)."
            )
        oid, schema, table, kind = found
        if kind not in ("r", "p"):
            raise TargetUnfit(f"{sink.table} at {ledger.address} is not a table (relkind {kind}); name a table.")
        require_lasting(cursor, sink, schema, table, deletes=deletes)
        return Table(schema, table, _columns(cursor, oid), _unique_keys(cursor, oid))


def require_lasting(
    cursor: psycopg2.extensions.cursor, sink: PostgresSink, schema: str, table: str, *, deletes: bool
) -> None:
    """Require that what is written to the table is there after a crash.

    The table with all of its partitions and inheritors, and the ledger's tables, have to survive one, and no rule may take
    rows elsewhere; `deletes`: rows of the table are deleted, too.

    Asked after rows were written, the answer holds until the COMMIT for whatever has got rows: the lock that an INSERT takes
    keeps an ALTER TABLE and a CREATE or DROP RULE out.

    Raises:
        TargetUnfit: naming one that does not, and what to do.
    """
    asked = CheckedTable.written(schema, table, upserts=sink.write is not Write.APPEND, deletes=deletes)
    passing = find_passing(cursor, sink.ledger_schema, [asked])
    if passing is not None:
        raise TargetUnfit(f"Nothing was written to {schema}.{table}: {passing}.")


def _columns(cursor: psycopg2.extensions.cursor, oid: int) -> tuple[TableColumn, ...]:
    cursor.execute(_COLUMNS, (oid,))
    return tuple(TableColumn(*row) for row in cursor.fetchall())


def _unique_keys(cursor: psycopg2.extensions.cursor, oid: int) -> tuple[frozenset[str], ...]:
    cursor.execute(_UNIQUE_KEYS, (oid,))
    return tuple(frozenset(row[0]) for row in cursor.fetchall())


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
