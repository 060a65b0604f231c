"""Malformed records in the ledger's table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg2
import psycopg2.extensions
from psycopg2 import sql
from psycopg2.extras import execute_values

from exactlyonce.connectors.postgres.keys import is_plain, partition_columns
from exactlyonce.ledger.life import life_of
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import DeadLetter

_PARTITION = ("stream_id", "topic", "topic_id", "partition")
_SINCE = "created_at"  # the moment of the insert by default, from which its age counts
_CONTENT = ("batch", "record_timestamp", "key", "value", "error", "status", "replay", "life")
"""With what became of a letter: one that lands again is kept as a new one, whatever a replay has done with it before."""


def write_letters(
    cursor: psycopg2.extensions.cursor,
    schema: str,
    stream_id: str,
    batch: BatchNumber,
    letters: Sequence[DeadLetter],
    origin_ids: Mapping[str, str],
) -> None:
    """Write malformed records; what a stream that starts over reads again replaces what was written of it before.

    A topic recreated has another id, so its records never stand for those of the topic before.
    """
    table = sql.Identifier(schema, "dead_letters")
    life = _life(cursor, schema, stream_id)
    rows = [(_is_plain(letter), _row(letter, stream_id, batch, origin_ids, life)) for letter in letters]
    plain = [row for is_plain_one, row in rows if is_plain_one]
    if plain:
        _upsert(cursor, table, (*_PARTITION, "record_offset"), _CONTENT, plain)
    named = [row for is_plain_one, row in rows if not is_plain_one]
    if named:
        _upsert(cursor, table, (*_PARTITION, "position"), ("partition_name", "place", *_CONTENT), named)


def _is_plain(letter: DeadLetter) -> bool:
    """Whether partition number and offset tell the record from every other one; else its position does."""
    return is_plain(letter.partition, letter.offset)


def _life(cursor: psycopg2.extensions.cursor, schema: str, stream_id: str) -> str:
    """Return the life of the stream, whose row this very transaction holds."""
    cursor.execute(
        sql.SQL("select token from {} where stream_id = %s").format(sql.Identifier(schema, "streams")),
        (stream_id,),
    )
    row = cursor.fetchone()
    assert row is not None, "the stream's row was locked before its rows are written"
    return life_of(row[0])


def _row(
    letter: DeadLetter, stream_id: str, batch: BatchNumber, origin_ids: Mapping[str, str], life: str
) -> dict[str, Any]:
    topic, number, name = partition_columns(letter.partition)
    return {
        "stream_id": stream_id,
        "topic": topic,
        "topic_id": origin_ids.get(letter.partition.origin, ""),
        "partition": number,
        "partition_name": name,
        "record_offset": letter.offset,
        "position": letter.offset,
        "place": letter.place,
        "batch": batch,
        "record_timestamp": letter.timestamp,
        "key": None if letter.key is None else psycopg2.Binary(letter.key),
        "value": None if letter.value is None else psycopg2.Binary(letter.value),
        "error": letter.error,
        "status": None,
        "replay": None,
        "life": life,
    }


def _upsert(
    cursor: psycopg2.extensions.cursor,
    table: sql.Identifier,
    record: Sequence[str],
    content: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Insert rows; where one is there of the same `record`, its `content` is replaced."""
    names = (*record, *content)
    only = " where position is not null" if "position" in record else ""
    statement = sql.SQL("insert into {} ({}) values %s on conflict ({}){} do update set {}").format(
        table,
        _listed(names),
        _listed(record),
        sql.SQL(only),
        sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in (*content, _SINCE)),
    )
    template = f"({', '.join(f'%({name})s' for name in names)})"
    execute_values(cursor, statement, rows, template, page_size=1000)


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
