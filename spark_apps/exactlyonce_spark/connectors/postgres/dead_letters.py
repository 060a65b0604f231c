"""Malformed records in the ledger's table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg2
import psycopg2.extensions
from psycopg2 import sql
from psycopg2.extras import execute_values

from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import DeadLetter

_RECORD = ("stream_id", "topic", "topic_id", "partition", "record_offset")
_SINCE = "created_at"  # the moment of the insert by default, from which its age counts
_CONTENT = ("batch", "record_timestamp", "key", "value", "error")


def write_letters(
    cursor: psycopg2.extensions.cursor,
    schema: str,
    stream_id: str,
    batch: BatchNumber,
    letters: Sequence[DeadLetter],
    origin_ids: Mapping[str, str],
) -> None:
    """Write malformed records; what a stream that starts over reads again replaces what was written of it before.

    A topic recreated has another id, so its records never stand for those of the topic before. An older operator's schema
    has no ids: there the latest record of an offset is kept, since it is the one that landed in this batch.
    """
    record = _RECORD if _has_topic_ids(cursor, schema) else tuple(name for name in _RECORD if name != "topic_id")
    names = (*record, *_CONTENT)
    statement = sql.SQL("insert into {} ({}) values %s on conflict ({}) do update set {}").format(
        sql.Identifier(schema, "dead_letters"),
        _listed(names),
        _listed(record),
        sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in (*_CONTENT, _SINCE)),
    )
    rows = [
        {
            "stream_id": stream_id,
            "topic": letter.partition.origin,
            "topic_id": origin_ids.get(letter.partition.origin, ""),
            "partition": letter.partition.key,
            "record_offset": letter.offset,
            "batch": batch,
            "record_timestamp": letter.timestamp,
            "key": None if letter.key is None else psycopg2.Binary(letter.key),
            "value": None if letter.value is None else psycopg2.Binary(letter.value),
            "error": letter.error,
        }
        for letter in letters
    ]
    template = f"({', '.join(f'%({name})s' for name in names)})"
    execute_values(cursor, statement, rows, template, page_size=1000)


def _has_topic_ids(cursor: psycopg2.extensions.cursor, schema: str) -> bool:
    """Whether the ledger was migrated to tell topics apart; a driver may be newer than its operator."""
    cursor.execute(
        "select exists (select from pg_attribute a join pg_class c on c.oid = a.attrelid "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = 'dead_letters' and a.attname = 'topic_id' and not a.attisdropped)",
        (schema,),
    )
    row = cursor.fetchone()
    assert row is not None, "select exists returns one row"
    return bool(row[0])


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
