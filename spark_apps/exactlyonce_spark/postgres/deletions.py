"""Rows that delete their key: tombstones of a compacted topic, with Upsert. No pyspark here.

A row is handed over with the column `_deleted` behind the table's own. In the landing transaction the last row of each key
decides: keys whose last row is a deletion are deleted, the others are upserted. To delete a key that is not there changes
nothing, as in the topic itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg2.extensions
from psycopg2 import sql

from exactlyonce.errors import ExactlyOnceError
from exactlyonce_spark.postgres import writes
from exactlyonce_spark.postgres.fit import YieldedColumn
from exactlyonce_spark.postgres.table import Table, TargetUnfit


class DeletionKept(ExactlyOnceError):
    """The table did not let go of a row that was deleted; nothing was landed."""


class DeletionWithoutKey(ExactlyOnceError):
    """A tombstone's row has a key that is NULL, so nobody knows which row it deletes; nothing was landed."""


def without_deleted(columns: Sequence[YieldedColumn], table: Table) -> list[YieldedColumn]:
    """Return the columns that the query yields for the table, without the one that says which rows delete.

    Raises:
        TargetUnfit: if that one is missing or no BOOLEAN, or the table has a column of its name.
    """
    types = [column.spark_type for column in columns if column.name == writes.DELETED]
    if not types:
        raise TargetUnfit(
            "source.format.onTombstone is Delete and the query does not yield _deleted: name that column of the view source in "
            "the transform, and take the keys from _key where it is true."
        )
    if types != ["boolean"]:
        raise TargetUnfit(
            f"The query yields _deleted as {', '.join(types)}; it has to be the view source's, once, a boolean."
        )
    if table.column(writes.DELETED) is not None:
        raise TargetUnfit(
            f"The table {table} has a column _deleted, which is not written with source.format.onTombstone: Delete; rename it."
        )
    return [column for column in columns if column.name != writes.DELETED]


def delete_staged(
    cursor: psycopg2.extensions.cursor, rows: writes.Staged, keys: Sequence[str], parameters: Mapping[str, object]
) -> None:
    """Delete the keys whose last staged row is a deletion, and require that they are gone.

    Raises:
        DeletionWithoutKey: if a deletion does not say which row it deletes.
        DeletionKept: if a row is there still.
    """
    deleted = sql.Identifier(writes.DELETED)
    nameless = sql.SQL(" or ").join(sql.SQL("{} is null").format(writes.identifier(name)) for name in keys)
    cursor.execute(
        sql.SQL("select count(*) from {} where {} and {} and ({})").format(
            rows.source, writes.chosen(), deleted, nameless
        ),
        parameters,
    )
    count = _only_number(cursor)
    if count:
        raise DeletionWithoutKey(
            f"{count} tombstones have no value in {', '.join(keys)}, so nobody knows what they delete; take the keys from _key "
            "in the transform, such as coalesce(id, cast(cast(_key as string) as bigint)) as id. Nothing was landed."
        )
    last = writes.last_of_each_key(rows, [*keys, writes.DELETED], keys)
    same = sql.SQL(" and ").join(
        sql.SQL("old.{name} = last.{name}").format(name=writes.identifier(name)) for name in keys
    )
    gone = sql.SQL("from {} as old using ({}) as last where last.{} and {}").format(
        rows.destination, last, deleted, same
    )
    cursor.execute(sql.SQL("delete {}").format(gone), parameters)
    kept = sql.SQL("select count(*) from {} as old, ({}) as last where last.{} and {}").format(
        rows.destination, last, deleted, same
    )
    cursor.execute(kept, parameters)
    count = _only_number(cursor)
    if count:
        raise DeletionKept(
            f"The table kept {count} rows that were deleted, as a trigger or rule of it says; nothing was landed."
        )


def _only_number(cursor: psycopg2.extensions.cursor) -> int:
    row = cursor.fetchone()
    assert row is not None, "count(*) returns one row"
    return int(row[0])
