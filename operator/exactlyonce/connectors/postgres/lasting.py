"""Do rows get into the tables they are written to, and survive a crash of the server, with every partition and inheritor?

What is committed to an unlogged table is gone after a crash or a failover, and the ledger would continue as if it were there.
What a rule puts into another table was never in this one, though the statement counts it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg2.extensions

from exactlyonce.connectors.postgres.schema import quoted
from exactlyonce.connectors.postgres.tables import SCHEMA

LEDGER_TABLES = tuple(re.findall(r"create table {schema}\.(\w+)", SCHEMA))
"""The ledger's own tables, without those of its schema that may be unlogged: staging."""

# Carries what it asks about along, so that a target without partitions costs index lookups alone: 0.1 ms on the server.
# PostgreSQL applies the rules of the table that a statement names, not those of its partitions and inheritors. A rule that is
# disabled, or for replication, does not fire; but ON CONFLICT is refused beside any rule ON UPDATE, fired or not.
_FIND = """
with recursive part(oid, namespace, name, kind, persistence, root, events) as (
    select c.oid, c.relnamespace, c.relname, c.relkind, c.relpersistence, c.relname,
        case when c.relhasrules then asked.events else '' end
    from unnest(%(schemas)s::name[], %(tables)s::name[], %(events)s::text[]) as asked(schema_name, table_name, events)
    join pg_namespace n on n.nspname = asked.schema_name
    join pg_class c on c.relnamespace = n.oid and c.relname = asked.table_name
    union all
    select c.oid, c.relnamespace, c.relname, c.relkind, c.relpersistence, part.root, ''
    from part join pg_inherits i on i.inhparent = part.oid join pg_class c on c.oid = i.inhrelid
)
select (select nspname from pg_namespace n where n.oid = part.namespace), name, root, kind::text, persistence::text,
    rule.rulename, rule.ev_type::text
from part left join lateral (
    select rulename, ev_type from pg_rewrite
    where events <> '' and ev_class = part.oid and strpos(events, ev_type::text) > 0 and (ev_type = '2' or ev_enabled = 'A'
        or ev_enabled = case current_setting('session_replication_role') when 'replica' then 'R' else 'O' end)
    order by rulename limit 1
) rule on true
where persistence <> 'p' or kind not in ('r', 'p') or rule.rulename is not null limit 1
"""

_EVENTS = {"3": "INSERT", "2": "UPDATE", "4": "DELETE"}
"""The events of rules by pg_rewrite.ev_type."""


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table to look at; `events` has the ev_type of whatever is done to it, since a rule could change what that does."""

    schema: str
    name: str
    events: str = "".join(_EVENTS)

    @classmethod
    def written(cls, schema: str, name: str, *, upserts: bool, deletes: bool) -> CheckedTable:
        """Return what to ask of a table that gets rows; `upserts` and `deletes`: rows that it has are changed, or deleted."""
        return cls(schema, name, "3" + "2" * upserts + "4" * deletes)


@dataclass(frozen=True, slots=True)
class Passing:
    """A relation whose rows do not last, are not this database's, or go elsewhere; `root` is the table that it is part of."""

    schema: str
    name: str
    root: str
    kind: str
    persistence: str
    rule: str | None = None
    event: str | None = None

    def __str__(self) -> str:
        """Say which relation it is, why it will not do, and what to do: the end of a sentence."""
        table = f"{quoted(self.schema)}.{quoted(self.name)}"
        part = "" if self.name == self.root else f", which is part of {self.root},"
        if self.kind == "f":
            return (
                f"{table}{part} is a foreign table, whose rows another server commits on its own; detach it, or name an "
                "ordinary table"
            )
        if self.kind not in ("r", "p"):
            return f"{table}{part} is not a table (relkind {self.kind}); name an ordinary table"
        if self.persistence == "t":
            return f"{table}{part} is a temporary table; name an ordinary table"
        if self.persistence == "p" and self.rule is not None and self.event is not None:
            return (
                f"{table} has the rule {quoted(self.rule)} ON {_EVENTS[self.event]}, by which {_EVENTS[self.event]} could "
                f"do something else, or nothing; run: drop rule {quoted(self.rule)} on {table}"
            )
        return (
            f"{table}{part} is UNLOGGED, so a crash of the server empties it; run: alter table {table} set logged; and if "
            "the server has crashed since the table became unlogged, what had landed there is gone"
        )


def find_passing(
    cursor: psycopg2.extensions.cursor, ledger_schema: str, targets: Sequence[CheckedTable] = ()
) -> Passing | None:
    """Return one relation that will not do, of the ledger's tables and of `targets`; None if all will."""
    asked = [*targets, *(CheckedTable(ledger_schema, table) for table in LEDGER_TABLES)]
    cursor.execute(
        _FIND,
        {
            "schemas": [table.schema for table in asked],
            "tables": [table.name for table in asked],
            "events": [table.events for table in asked],
        },
    )
    found = cursor.fetchone()
    return None if found is None else Passing(*found)
