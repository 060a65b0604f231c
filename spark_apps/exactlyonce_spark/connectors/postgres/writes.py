"""The statements that write staged rows to the target: Append, Upsert, Merge. Performs no I/O.

`source` is a FROM clause's table with the columns written, and `_tag` and `_row` for their order: a task's rows have the
order in which it read them, and tasks are ordered as the driver lists their tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg2.extensions
from psycopg2 import sql

from exactlyonce.api.format import DELETED
from exactlyonce.connectors.postgres.spec import Combine, PostgresSink, Write

STAGING_COLUMNS = ("_batch", "_tag", "_row")
_LAST_FIRST = sql.SQL("array_position(%(tags)s::bigint[], _tag) desc, _row desc")

_AGGREGATES = {
    Combine.SUM: "sum({column})",
    Combine.MIN: "min({column})",
    Combine.MAX: "max({column})",
    Combine.LAST: "(array_agg({column} order by array_position(%(tags)s::bigint[], _tag) desc, _row desc))[1]",
    Combine.FIRST: "(array_agg({column} order by array_position(%(tags)s::bigint[], _tag), _row))[1]",
}
_COMBINED = {
    Combine.SUM: "coalesce(old.{column} + excluded.{column}, old.{column}, excluded.{column})",
    Combine.MIN: "least(old.{column}, excluded.{column})",
    Combine.MAX: "greatest(old.{column}, excluded.{column})",
    Combine.LAST: "excluded.{column}",
    Combine.FIRST: "old.{column}",
}


@dataclass(frozen=True)
class Staged:
    """Where staged rows are: the staging table, and the columns of the target that it holds."""

    staging: sql.Identifier
    target: sql.Identifier
    columns: Sequence[str]
    deletes: bool = False

    @property
    def source(self) -> sql.Identifier:
        """The staging table, as a statement with parameters names it."""
        return identifier(*self.staging.strings)

    @property
    def destination(self) -> sql.Identifier:
        """The target table, as a statement with parameters names it."""
        return identifier(*self.target.strings)


def count_staged(rows: Staged) -> sql.Composed:
    """Return the statement that counts the rows of a batch with some tags. Parameters: batch, tags."""
    return sql.SQL("select count(*) from {} where {}").format(rows.source, chosen())


def count_keys(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """Return the statement that counts the rows of a batch with some tags, and their distinct keys. Parameters: batch, tags."""
    if rows.deletes:
        return sql.SQL("select (select count(*) from {} where {}), (select count(*) from ({}) as written)").format(
            rows.source, chosen(), _latest(rows, sink)
        )
    return sql.SQL(
        "select coalesce(sum(of_key), 0)::bigint, count(*) from "
        "(select count(*) as of_key from {staging} where {chosen} group by {keys}) counted"
    ).format(staging=rows.source, chosen=chosen(), keys=names_of(sink.keys))


def counted(cursor: psycopg2.extensions.cursor) -> tuple[int, ...]:
    """Return the numbers that a counting statement, which has just run, has given."""
    row = cursor.fetchone()
    assert row is not None, "an aggregate returns one row"
    return tuple(int(number) for number in row)


def count_left_out(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """Return the statement that compares the table with the staged keys. Parameters: batch, tags, target (its quoted name).

    Asked after the write, in its transaction. A key is held where the table may stay as it is: its row has a greater version,
    or holds already what would be written (suppress_redundant_updates_trigger), or is nothing but the key. It is touched
    where this transaction has written its row, the statement or a trigger. Counted are the keys that are neither, those that
    are touched, and those that are touched and not held.
    """
    return sql.SQL(
        "select count(*) filter (where not touched and not held), count(*) filter (where touched), "
        "count(*) filter (where touched and not held) from "
        "(select coalesce(old.xmin = pg_current_xact_id()::xid, false) as touched, coalesce({holds}, false) as held "
        "from ({wanted}) as new ({names}) left join {target} as old on {same} and {own}) as compared"
    ).format(
        own=own_rows(),
        wanted=_wanted(rows, sink),
        names=names_of(rows.columns),
        target=rows.destination,
        same=_same_keys(sink),
        holds=_holds(rows, sink),
    )


def count_ties(rows: Staged, sink: PostgresSink, version: str) -> sql.Composed:
    """Return the statement that counts staged keys whose row in the table has the same version and other values.

    Asked before the write. Parameters: batch, tags, target (its quoted name).
    """
    rest = [name for name in rows.columns if name not in sink.keys]
    return sql.SQL(
        "select count(*) from ({wanted}) as new ({names}) join {target} as old on {same} and {own} "
        "where old.{version} is not distinct from new.{version} and not record_image_eq(row({old}), row({new}))"
    ).format(
        own=own_rows(),
        wanted=_wanted(rows, sink),
        names=names_of(rows.columns),
        target=rows.destination,
        same=_same_keys(sink),
        version=identifier(version),
        old=_of("old", rest),
        new=_of("new", rest),
    )


def _same_keys(sink: PostgresSink) -> sql.Composed:
    return sql.SQL(" and ").join(sql.SQL("old.{key} = new.{key}").format(key=identifier(key)) for key in sink.keys)


def _wanted(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """What the write wants to put in: a row a key."""
    return _aggregated(rows, sink) if sink.write is Write.MERGE else _latest(rows, sink)


def _holds(rows: Staged, sink: PostgresSink) -> sql.Composable:
    """Whether a row `old` of the table makes it right that `new` has changed nothing."""
    rest = [name for name in rows.columns if name not in sink.keys]
    if not rest:
        return sql.SQL("old.tableoid is not null")
    if sink.write is Write.MERGE:
        return sql.SQL(" and ").join(_unchanged(identifier(name), sink.combined[name]) for name in rest)
    # By the bytes, as suppress_redundant_updates_trigger compares, and as types without equality allow.
    same: sql.Composable = sql.SQL("record_image_eq(row({}), row({}))").format(_of("old", rest), _of("new", rest))
    if sink.version is None:
        return same
    newer = sql.SQL("old.{version} is not null and (new.{version} is null or old.{version} > new.{version})")
    return sql.SQL("({} or {})").format(same, newer.format(version=identifier(sink.version)))


def _unchanged(column: sql.Identifier, combine: Combine) -> sql.Composable:
    """Whether combining the old value with the new one gives the old one."""
    match combine:
        case Combine.FIRST:
            return sql.SQL("old.tableoid is not null")
        case Combine.LAST:  # of any type, with or without equality
            return sql.SQL("old.{column}::text is not distinct from new.{column}::text").format(column=column)
        case Combine.SUM | Combine.MIN | Combine.MAX:
            combined = sql.SQL(_COMBINED[combine].replace("excluded.", "new.")).format(column=column)
            return sql.SQL("old.{} is not distinct from {}").format(column, combined)


def write_staged(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """Return the statement that writes the staged rows of a batch with some tags. Parameters: batch, tags."""
    match sink.write:
        case Write.APPEND:
            return _append(rows)
        case Write.UPSERT:
            return _upsert(rows, sink)
        case Write.MERGE:
            return _merge(rows, sink)


def _append(rows: Staged) -> sql.Composed:
    names = names_of(rows.columns)
    return sql.SQL("insert into {target} ({names}) select {names} from {staging} where {chosen}").format(
        target=rows.destination, names=names, staging=rows.source, chosen=chosen()
    )


def _upsert(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """One row a key: the one with the greatest version, else the last one read. An older row replaces no newer one."""
    guard: sql.Composable = sql.SQL("")
    if sink.version is not None:
        version = identifier(sink.version)
        guard = sql.SQL(" where old.{version} is null or old.{version} <= excluded.{version}").format(version=version)
    changes = [
        sql.SQL("{column} = excluded.{column}").format(column=identifier(name))
        for name in rows.columns
        if name not in sink.keys
    ]
    return sql.SQL("insert into {target} as old ({names}) {latest} on conflict ({keys}) {action}").format(
        target=rows.destination,
        names=names_of(rows.columns),
        latest=_latest(rows, sink),
        keys=names_of(sink.keys),
        action=_on_conflict(changes, guard),
    )


def _latest(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """The row of each key that is written; a key whose last row is a deletion is left to `deletions.delete_staged`."""
    latest: sql.Composable = _LAST_FIRST
    if sink.version is not None:
        latest = sql.SQL("{} desc nulls last, {}").format(identifier(sink.version), latest)
    if not rows.deletes:
        return _last_of_each_key(rows, rows.columns, sink.keys, latest)
    last = _last_of_each_key(rows, [*rows.columns, DELETED], sink.keys)
    return sql.SQL("select {} from ({}) as last where not {}").format(
        names_of(rows.columns), last, sql.Identifier(DELETED)
    )


def _last_of_each_key(
    rows: Staged, columns: Sequence[str], keys: Sequence[str], latest: sql.Composable = _LAST_FIRST
) -> sql.Composed:
    """Return the query of the last staged row of each key."""
    return sql.SQL(
        "select distinct on ({keys}) {names} from {staging} where {chosen} order by {keys}, {latest}"
    ).format(keys=names_of(keys), names=names_of(columns), staging=rows.source, chosen=chosen(), latest=latest)


def _merge(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """Rows of one key are aggregated first, in the order of the keys, so that two tasks lock rows in the same order."""
    changes = [
        sql.SQL("{} = {}").format(column, sql.SQL(_COMBINED[sink.combined[name]]).format(column=column))
        for name in rows.columns
        if name not in sink.keys
        for column in [identifier(name)]
    ]
    return sql.SQL("insert into {target} as old ({names}) {aggregated} on conflict ({keys}) {action}").format(
        target=rows.destination,
        names=names_of(rows.columns),
        aggregated=_aggregated(rows, sink),
        keys=names_of(sink.keys),
        action=_on_conflict(changes, sql.SQL("")),
    )


def _aggregated(rows: Staged, sink: PostgresSink) -> sql.Composed:
    values = [
        sql.SQL("{}").format(identifier(name))
        if name in sink.keys
        else sql.SQL(_AGGREGATES[sink.combined[name]]).format(column=identifier(name))
        for name in rows.columns
    ]
    return sql.SQL("select {values} from {staging} where {chosen} group by {keys} order by {keys}").format(
        values=sql.SQL(", ").join(values), staging=rows.source, chosen=chosen(), keys=names_of(sink.keys)
    )


def _on_conflict(changes: Sequence[sql.Composable], guard: sql.Composable) -> sql.Composable:
    if not changes:
        return sql.SQL("do nothing")
    return sql.SQL("do update set {}{}").format(sql.SQL(", ").join(changes), guard)


def own_rows() -> sql.SQL:
    """Return the condition of rows `old` that ON CONFLICT would find. Parameter: target (the table's quoted name).

    Of a table with inheritors only its own rows count; the rows of a partitioned one are in its leaves.
    """
    return sql.SQL(
        "(old.tableoid = %(target)s::regclass "
        "or old.tableoid in (select relid from pg_partition_tree(%(target)s::regclass)))"
    )


def chosen() -> sql.SQL:
    """Return the condition of the staged rows of a batch with some tags. Parameters: batch, tags."""
    return sql.SQL("_batch = %(batch)s and _tag = any(%(tags)s::bigint[])")


def _of(row: str, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(f"{row}." + "{}").format(identifier(name)) for name in columns)


def names_of(columns: Sequence[str]) -> sql.Composed:
    """Return quoted names with commas between them."""
    return sql.SQL(", ").join(identifier(name) for name in columns)


def identifier(*names: str) -> sql.Identifier:
    """Return a quoted name for a statement with parameters, in which a percent sign is written twice."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))
