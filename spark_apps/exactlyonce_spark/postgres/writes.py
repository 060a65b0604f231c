"""The statements that write staged rows to the target: Append, Upsert, Merge. Performs no I/O.

`source` is a FROM clause's table with the columns written, and `_tag` and `_row` for their order: a task's rows have the
order in which it read them, and tasks are ordered as the driver lists their tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2 import sql

from exactlyonce.api.sink import Combine, PostgresSink, Write

STAGING_COLUMNS = ("_batch", "_tag", "_row")

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

    @property
    def source(self) -> sql.Identifier:
        """The staging table, as a statement with parameters names it."""
        return _identifier(*self.staging.strings)

    @property
    def destination(self) -> sql.Identifier:
        """The target table, as a statement with parameters names it."""
        return _identifier(*self.target.strings)


def count_staged(rows: Staged) -> sql.Composed:
    """Return the statement that counts the rows of a batch with some tags. Parameters: batch, tags."""
    return sql.SQL("select count(*) from {} where {}").format(rows.source, _chosen())


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
    names = _names(rows.columns)
    return sql.SQL("insert into {target} ({names}) select {names} from {staging} where {chosen}").format(
        target=rows.destination, names=names, staging=rows.source, chosen=_chosen()
    )


def _upsert(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """One row a key: the one with the greatest version, else the last one read. An older row replaces no newer one."""
    keys = _names(sink.keys)
    latest: sql.Composable = sql.SQL("array_position(%(tags)s::bigint[], _tag) desc, _row desc")
    guard: sql.Composable = sql.SQL("")
    if sink.version is not None:
        version = _identifier(sink.version)
        latest = sql.SQL("{} desc nulls last, {}").format(version, latest)
        guard = sql.SQL(" where old.{version} is null or old.{version} <= excluded.{version}").format(version=version)
    changes = [
        sql.SQL("{column} = excluded.{column}").format(column=_identifier(name))
        for name in rows.columns
        if name not in sink.keys
    ]
    return sql.SQL(
        "insert into {target} as old ({names}) select distinct on ({keys}) {names} from {staging} where {chosen} "
        "order by {keys}, {latest} on conflict ({keys}) {action}"
    ).format(
        target=rows.destination,
        names=_names(rows.columns),
        keys=keys,
        staging=rows.source,
        chosen=_chosen(),
        latest=latest,
        action=_on_conflict(changes, guard),
    )


def _merge(rows: Staged, sink: PostgresSink) -> sql.Composed:
    """Rows of one key are aggregated first, in the order of the keys, so that two tasks lock rows in the same order."""
    values, changes = [], []
    for name in rows.columns:
        column = _identifier(name)
        if name in sink.keys:
            values.append(sql.SQL("{}").format(column))
            continue
        combine = sink.merge[name]
        values.append(sql.SQL(_AGGREGATES[combine]).format(column=column))
        changes.append(sql.SQL("{} = {}").format(column, sql.SQL(_COMBINED[combine]).format(column=column)))
    return sql.SQL(
        "insert into {target} as old ({names}) select {values} from {staging} where {chosen} "
        "group by {keys} order by {keys} on conflict ({keys}) {action}"
    ).format(
        target=rows.destination,
        names=_names(rows.columns),
        values=sql.SQL(", ").join(values),
        staging=rows.source,
        chosen=_chosen(),
        keys=_names(sink.keys),
        action=_on_conflict(changes, sql.SQL("")),
    )


def _on_conflict(changes: Sequence[sql.Composable], guard: sql.Composable) -> sql.Composable:
    if not changes:
        return sql.SQL("do nothing")
    return sql.SQL("do update set {}{}").format(sql.SQL(", ").join(changes), guard)


def _chosen() -> sql.SQL:
    return sql.SQL("_batch = %(batch)s and _tag = any(%(tags)s::bigint[])")


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(_identifier(name) for name in columns)


def _identifier(*names: str) -> sql.Identifier:
    """Return a quoted name for a statement with parameters, in which a percent sign is written twice."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))
