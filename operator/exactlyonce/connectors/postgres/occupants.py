"""Whose a table is that rows are to land into: the database is asked what the names stand for."""

from __future__ import annotations

from collections.abc import Sequence

from exactlyonce.connectors.postgres.spec import names_in
from exactlyonce.connectors.postgres.statements import Statements
from exactlyonce.ledger.backfills import Occupant

_SINKS = "select stream_id, sink from {schema}.streams where sink is not null"
# A name with its schema is looked up in the catalogue, which takes no right to the schema: it may be another stream's. A row
# of a partition, or of an inheritor, is one of the table above it, so two tables share rows where one is below both.
_OCCUPANT = """
with recursive named as (
    select t.stream_id, case when t.schema is null then to_regclass(quote_ident(t.name))::oid else (
        select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where (n.nspname, c.relname) = (t.schema::name, t.name::name)
    ) end as root
    from unnest(%s::text[], %s::text[], %s::text[]) as t(stream_id, schema, name)
), below(root, oid) as (
    select distinct root, root from named where root is not null
    union
    select b.root, i.inhrelid from below b join pg_inherits i on i.inhparent = b.oid
), reached as (
    select b.oid from named join below b using (root) where stream_id is null
)
select owner from (
    select s.stream_id as owner, s.stream_id <> %s as place
    from named s join below b using (root) join reached r using (oid) where s.stream_id is not null
    union all
    select null, null from reached r join pg_class c using (oid) join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s
) found order by place nulls last, owner limit 1
"""


def occupant_of(transaction: Statements, schema: str, place: str, stream_id: str, own: str) -> Occupant | None:
    """Return whose table rows reach that land into `place`; `schema` is the ledger's."""
    known: list[tuple[str | None, str]] = [(None, place), *transaction.rows(_SINKS)]
    if own:
        known.append((stream_id, own))
    names = [names_in(it) for _, it in known]
    columns: Sequence[list[str | None]] = (
        [owner for owner, _ in known],
        [it[0] if len(it) > 1 else None for it in names],
        [it[-1] if it else None for it in names],
    )
    found = transaction.rows(_OCCUPANT, *columns, stream_id, schema)
    return Occupant(found[0][0]) if found else None
