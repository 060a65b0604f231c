"""Rows that delete their key: tombstones of a compacted topic, with Upsert. No pyspark here.

A row is handed over with the column `_deleted` behind the table's own. The landing transaction leaves the table as if the rows
had been applied one by one: it deletes every key that a row deletes, then it upserts the keys whose last row does not. So the
border between two batches may fall anywhere. To delete a key that is not there changes nothing, as in the topic itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg2.extensions
from psycopg2 import sql

from exactlyonce.api.format import DELETED
from exactlyonce.errors import ExactlyOnceError
from exactlyonce_spark.connectors.ports import YieldedColumn
from exactlyonce_spark.connectors.postgres import writes
from exactlyonce_spark.connectors.postgres.copying import quoted_name
from exactlyonce_spark.connectors.postgres.table import Table, TargetUnfit


class DeletionUnclear(ExactlyOnceError):
    """A row does not say whether it deletes its key or replaces it; nothing was landed."""


class DeletionWithoutKey(ExactlyOnceError):
    """A tombstone's row has a key that is NULL, so nobody knows which row it deletes; nothing was landed."""


def without_deleted(columns: Sequence[YieldedColumn], table: Table) -> list[YieldedColumn]:
    """Return the columns that the query yields for the table, without the one that says which rows delete.

    Raises:
        TargetUnfit: if that one is missing or no BOOLEAN, or the table has a column of its name.
    """
    types = [column.spark_type for column in columns if column.name == DELETED]
    if not types:
        raise TargetUnfit(
            "source.format.onTombstone is Delete and the query does not yield _deleted: name that column of the view source in "
            "the transform, and take the keys from _key where it is true."
        )
    if types != ["boolean"]:
        raise TargetUnfit(
            f"The query yields _deleted as {', '.join(types)}; it has to be the view source's, once, a boolean."
        )
    if table.column(DELETED) is not None:
        raise TargetUnfit(
            f"The table {table} has a column _deleted, which is not written with source.format.onTombstone: Delete; rename it."
        )
    return [column for column in columns if column.name != DELETED]


def delete_staged(
    cursor: psycopg2.extensions.cursor, rows: writes.Staged, keys: Sequence[str], parameters: Mapping[str, object]
) -> int:
    """Delete the keys that a staged row deletes, require that they are gone, and return how many rows were deleted.

    Raises:
        DeletionUnclear: if a row does not say whether it deletes.
        DeletionWithoutKey: if a deletion does not say which row it deletes.
        TargetUnfit: if a row is still there.
    """
    _require_clear(cursor, rows, keys, parameters)
    gone = sql.SQL("(select distinct {keys} from {staging} where {chosen} and {deleted}) as gone").format(
        keys=writes.names_of(keys), staging=rows.source, chosen=writes.chosen(), deleted=_DELETED
    )
    same = sql.SQL(" and ").join(
        sql.SQL("old.{name} = gone.{name}").format(name=writes.identifier(name)) for name in keys
    )
    concerned = sql.SQL("{same} and {own}").format(same=same, own=writes.own_rows())
    named = {**parameters, "target": quoted_name(rows.target)}
    cursor.execute(
        sql.SQL("delete from {} as old using {} where {}").format(rows.destination, gone, concerned),
        named,
    )
    deleted = int(cursor.rowcount)
    cursor.execute(
        sql.SQL("select count(*) from {} as old, {} where {}").format(rows.destination, gone, concerned),
        named,
    )
    (kept,) = writes.counted(cursor)
    if kept:
        raise TargetUnfit(
            f"The table {'.'.join(rows.target.strings)} kept {kept} rows that were to be deleted; nothing was written. A "
            "trigger BEFORE DELETE that returns NULL, or a rule, keeps them: drop it, or set source.format.onTombstone to Skip."
        )
    return deleted


_DELETED = sql.Identifier(DELETED)


def _require_clear(
    cursor: psycopg2.extensions.cursor, rows: writes.Staged, keys: Sequence[str], parameters: Mapping[str, object]
) -> None:
    nameless = sql.SQL(" or ").join(sql.SQL("{} is null").format(writes.identifier(name)) for name in keys)
    cursor.execute(
        sql.SQL(
            "select count(*) filter (where {deleted} is null), count(*) filter (where {deleted} and ({nameless})) "
            "from {staging} where {chosen}"
        ).format(deleted=_DELETED, nameless=nameless, staging=rows.source, chosen=writes.chosen()),
        parameters,
    )
    unclear, without_key = writes.counted(cursor)
    if unclear:
        raise DeletionUnclear(
            f"{unclear} rows have no value in _deleted, so nobody knows whether they delete their key; let the transform yield "
            "the view source's own column _deleted, or coalesce(_deleted, false). Nothing was landed."
        )
    if without_key:
        raise DeletionWithoutKey(
            f"{without_key} tombstones have no value in {', '.join(keys)}, so nobody knows what they delete; in the "
            "transform, take the keys from _key, such as coalesce(id, cast(cast(_key as string) as bigint)) as id, or leave "
            "out tombstones whose key says nothing. Nothing was landed."
        )
