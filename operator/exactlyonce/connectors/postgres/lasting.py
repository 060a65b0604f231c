"""Do tables survive a crash of the server, with every partition and inheritor of theirs?

What is committed to an unlogged table is gone after a crash or a failover, and the ledger would go on as if it were there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg2.extensions

from exactlyonce.connectors.postgres.tables import MIGRATIONS

LEDGER_TABLES = tuple(
    name for migration in MIGRATIONS for name in re.findall(r"create table {schema}\.(\w+)", migration.sql)
)
"""The ledger's own tables, without those of its schema that may be unlogged: staging."""

# Carries what it asks about along, so that a target without partitions costs index lookups alone: 0.1 ms on the server.
_FIND = """
with recursive part(oid, namespace, name, kind, persistence, root) as (
    select c.oid, c.relnamespace, c.relname, c.relkind, c.relpersistence, c.relname
    from unnest(%(schemas)s::name[], %(tables)s::name[]) as asked(schema_name, table_name)
    join pg_namespace n on n.nspname = asked.schema_name
    join pg_class c on c.relnamespace = n.oid and c.relname = asked.table_name
    union all
    select c.oid, c.relnamespace, c.relname, c.relkind, c.relpersistence, part.root
    from part join pg_inherits i on i.inhparent = part.oid join pg_class c on c.oid = i.inhrelid
)
select (select nspname from pg_namespace n where n.oid = part.namespace), name, root, kind::text, persistence::text
from part where persistence <> 'p' or kind not in ('r', 'p') limit 1
"""


@dataclass(frozen=True, slots=True)
class Passing:
    """A relation whose rows do not last, or are not this database's own; `root` is the table that it is part of."""

    schema: str
    name: str
    root: str
    kind: str
    persistence: str

    def __str__(self) -> str:
        """Say which relation it is, why it will not do, and what to do: the end of a sentence."""
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))
        part = "" if self.name == self.root else f", which is part of {self.root},"
        if self.kind == "f":
            return (
                f"{quoted}{part} is a foreign table, whose rows another server commits on its own; detach it, or name an "
                "ordinary table"
            )
        if self.kind not in ("r", "p"):
            return f"{quoted}{part} is no table (relkind {self.kind}); name an ordinary table"
        if self.persistence == "t":
            return f"{quoted}{part} is a temporary table; name an ordinary table"
        return (
            f"{quoted}{part} is UNLOGGED, so a crash of the server empties it; run: alter table {quoted} set logged; and if "
            "the server has crashed since the table became unlogged, what had landed there is gone"
        )


def find_passing(
    cursor: psycopg2.extensions.cursor, ledger_schema: str, targets: Sequence[tuple[str, str]] = ()
) -> Passing | None:
    """Return one relation that is not permanent, of the ledger's tables and of `targets` (schema and name); None if all are."""
    asked = [*targets, *((ledger_schema, table) for table in LEDGER_TABLES)]
    schemas, tables = zip(*asked, strict=True)
    cursor.execute(_FIND, {"schemas": list(schemas), "tables": list(tables)})
    found = cursor.fetchone()
    return None if found is None else Passing(*found)
