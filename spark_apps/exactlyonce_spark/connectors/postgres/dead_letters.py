"""Malformed records in the ledger's table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg2
import psycopg2.extensions
from psycopg2 import sql
from psycopg2.extras import execute_values

from exactlyonce.connectors.postgres.keys import is_plain, partition_columns
from exactlyonce.connectors.postgres.letter_tables import NAMED_LETTERS_INDEX
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.letter_generations import life_in_generation
from exactlyonce.ledger.life import life_of
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import DeadLetter

_PARTITION = ("stream_id", "topic", "topic_id", "partition")
_SINCE = "created_at"  # the moment of the insert by default, from which its age counts
_CONTENT = ("batch", "record_timestamp", "key", "value", "error")
_STATE = ("status", "replay", "life", "state_batch")
"""What became of a letter: one that lands again is kept as a new one, whatever a replay has done with it before."""


def is_plain_letter(letter: DeadLetter) -> bool:
    """Whether the columns of the first release tell the record from every other one: its partition has a number."""
    return is_plain(letter.partition, letter.offset)


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
    has no ids: there the latest record of an offset is kept, since it is the one that landed in this batch. Letters that are
    not plain need the ledger's version `NAMED_LETTERS_SINCE`.

    Raises:
        LedgerRefused: if letters that are not plain lack their index, with the statement that makes it.
    """
    table = sql.Identifier(schema, "dead_letters")
    says_state = _has_column(cursor, schema, "state_batch")
    content = (*_CONTENT, *_STATE) if says_state else _CONTENT
    life = _life(cursor, schema, stream_id) if says_state else ""
    rows = [(is_plain_letter(letter), _row(letter, stream_id, batch, origin_ids, life)) for letter in letters]
    plain = [row for is_plain_one, row in rows if is_plain_one]
    if plain:
        known = tuple(name for name in _PARTITION if name != "topic_id" or _has_column(cursor, schema, "topic_id"))
        _upsert(cursor, table, (*known, "record_offset"), content, plain)
    named = [row for is_plain_one, row in rows if not is_plain_one]
    if named:
        try:
            _upsert(cursor, table, (*_PARTITION, "position"), ("partition_name", "place", *content), named)
        except psycopg2.errors.InvalidColumnReference as problem:
            create = NAMED_LETTERS_INDEX.format(table=table.as_string(cursor))
            index = sql.Identifier(schema, "dead_letters_position").as_string(cursor)
            raise LedgerRefused(
                "The table of dead letters has no valid index for records of partitions with names: it was too large to make "
                f"one while streams land. If making it was interrupted, drop what it left (drop index concurrently {index};). "
                f"Let its owner run, beside the drivers: {create}"
            ) from problem


def _life(cursor: psycopg2.extensions.cursor, schema: str, stream_id: str) -> str:
    """Return the life of the stream, whose row this very transaction holds."""
    cursor.execute(
        sql.SQL("select token, generation from {} where stream_id = %s").format(sql.Identifier(schema, "streams")),
        (stream_id,),
    )
    row = cursor.fetchone()
    assert row is not None, "the stream's row was locked before its rows are written"
    return life_in_generation(life_of(row[0]), row[1])


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
        "state_batch": batch,
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


def _has_column(cursor: psycopg2.extensions.cursor, schema: str, name: str) -> bool:
    """Whether the ledger was migrated to keep a column of dead letters; a driver may be newer than its operator."""
    cursor.execute(
        "select exists (select from pg_attribute a join pg_class c on c.oid = a.attrelid "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = 'dead_letters' and a.attname = %s and not a.attisdropped)",
        (schema, name),
    )
    row = cursor.fetchone()
    assert row is not None, "select exists returns one row"
    return bool(row[0])


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
