"""What a person looks at of a ledger in Postgres: failed ranges and dead letters, in one query each and without locks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import psycopg2.errors
import psycopg2.extensions

from exactlyonce.connectors.postgres import bounded_reads
from exactlyonce.connectors.postgres.bounded_reads import (
    BOUNDED_FAILURES,
    FAILURES,
    PARTS,
    SET_BACKS,
    kept_from,
    part_from,
    within,
)
from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.keys import LARGEST_OFFSET, partition_columns
from exactlyonce.connectors.postgres.letters import (
    LETTER_COLUMNS,
    STATE_COLUMNS,
    letter_from,
    set_back_from,
)
from exactlyonce.connectors.postgres.pool import ConnectionPool
from exactlyonce.connectors.postgres.schema import only_row, quoted
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import FailureSummary, LetterPlace, RecordedFailure, RecordedLetter, Span
from exactlyonce.ledger.letters import LetterKey, LetterStatus, SetBack, status_of
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber

_OLDEST = "select min(changed_at) from {schema}.failures where stream_id = %(stream)s and status = any(%(statuses)s)"
_SUMMED = """
select coalesce(sum(
    coalesce(until_position, until_offset) - coalesce(from_position, from_offset)
), 0) from {schema}.failures f
where stream_id = %(stream)s and status = any(%(statuses)s) and changed_at > %(moment)s
"""
_LANDED = """
select coalesce(sum(until_offset - from_offset), 0) from {schema}.failures f
where stream_id = %(stream)s and status = %(status)s and starts_with(replay, %(by)s)
"""
_OF_STREAM = "select * from {schema}.dead_letters where stream_id = %(stream)s"
_IN_PARTITIONS = f"{_OF_STREAM} and topic = any(%(topics)s) and partition = any(%(numbers)s::bigint[])"
_REPLAYED = """
select count(*) from {schema}.dead_letters
where stream_id = %(stream)s and status = %(status)s and starts_with(replay, %(by)s)
"""
_AT_PLACE = f"""
{_IN_PARTITIONS} and record_offset = %(offset)s::bigint and position is null
union all
{_IN_PARTITIONS} and position = %(position)s::numeric
"""
"""Two queries, since each has an index of its own that leads to the letter."""
_OF_KEYS = f"""
{_OF_STREAM} and (topic, topic_id, partition, record_offset) in (
    select * from unnest(%(topics)s::text[], %(topic_ids)s::text[], %(numbers)s::integer[], %(offsets)s::bigint[])
)
"""

_PAGE = """
select {columns}, {content}, {state}, record_timestamp, octet_length(value), created_at, {place}
from (
    select *, sum({bytes}) over (order by topic, topic_id, partition, record_offset
        rows between unbounded preceding and 1 preceding) as bytes_before
    from (
        select * from ({letters}) letters
        where (topic, topic_id, partition, record_offset)
            > (%(topic)s, %(topic_id)s, %(partition)s, %(record_offset)s)
        order by topic, topic_id, partition, record_offset limit %(most)s
    ) page
) measured
where coalesce(bytes_before, 0) <= %(most_bytes)s
order by topic, topic_id, partition, record_offset
"""
"""The length of a value is known without reading it. The first letter of a page is returned however large it is."""

_WHOLE = {
    "columns": LETTER_COLUMNS,
    "place": "place",
    "state": STATE_COLUMNS,
    "content": "error, key, value",
    "bytes": "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + octet_length(error)",
}
_WITHOUT_CONTENT = {
    "columns": (
        "left(topic, 2200), left(topic_id, 300), partition, record_offset, left(partition_name, 2200), "
        "coalesce(position, record_offset), batch"
    ),
    "place": "case when octet_length(place::text) <= 2000 then place end",
    "content": "left(error, 1000), null::bytea, null::bytea",
    "state": "left(status, 300), left(replay, 300), left(life, 300)",
    "bytes": "0",
}
"""A page of these is in the operator's memory, so no text is longer than a driver writes it."""
_LARGEST_NUMBER = 2**31 - 1
"""Of a partition, in its column."""
_BEFORE_ALL: LetterKey = ("", "", -1, -1)


class Questions:
    """The part of a ledger in Postgres that is asked outside of its transactions."""

    room = None  # a table has no bound
    address: PostgresAddress
    schema: str
    _pool: ConnectionPool

    def named(self, statement: str) -> str:
        """Return a statement with `{schema}` replaced by the quoted schema."""
        return _named(statement, self.schema)

    def kept_failures(
        self,
        stream_id: str,
        statuses: Collection[FailureStatus],
        batches: Collection[BatchNumber] | None,
        most: int,
        most_characters: int | None = None,
    ) -> tuple[RecordedFailure, ...]:
        """Return failed ranges."""
        numbers = None if batches is None else [int(batch) for batch in sorted(batches)]
        values = (stream_id, [str(status) for status in statuses], numbers, numbers, most)
        if most_characters is None:
            return tuple(kept_from(row) for row in self._asked(FAILURES, values))
        most_bytes = bounded_reads.MOST_BYTES
        rows = self._asked(BOUNDED_FAILURES, (most_characters, *values, most_bytes))
        return tuple(kept_from(row) for row in within(rows, f"The failed ranges of {stream_id}", most_bytes))

    def parts_of(
        self, stream_id: str, statuses: Collection[FailureStatus], spans: Sequence[Span], most: int
    ) -> tuple[FailureRow, ...]:
        """Return what begins in some spans, counted by the database where it is not in quarantine."""
        topics, numbers = (
            zip(*(partition_columns(span.partition)[:2] for span in spans), strict=True) if spans else ((), ())
        )
        values = {"stream": stream_id, "statuses": [str(it) for it in statuses], "held": [str(it) for it in HELD]}
        places = {"batches": [int(span.batch) for span in spans], "topics": list(topics), "numbers": list(numbers)}
        ends = {"firsts": [span.from_offset for span in spans], "untils": [span.until_offset for span in spans]}
        return tuple(part_from(row) for row in self._asked(PARTS, {**values, **places, **ends, "most": most}))

    def summed_failures(
        self, stream_id: str, statuses: Collection[FailureStatus], moments: Sequence[datetime]
    ) -> FailureSummary:
        """Return what there is, counted by the database."""
        wanted = {"stream": stream_id, "statuses": [str(status) for status in statuses]}
        found = [self._asked(_SUMMED, {**wanted, "moment": moment}) for moment in moments]
        (oldest,) = self._asked(_OLDEST, wanted) or [(None,)]
        return FailureSummary(oldest[0], tuple(int(rows[0][0]) if rows else 0 for rows in found))

    def kept_letters(
        self, stream_id: str, place: LetterPlace | None, after: LetterKey | None, most: int, most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return dead letters, in the order of the table's primary key."""
        return self._letters(stream_id, letters_query(stream_id, place, after, most, most_bytes))

    def replayed_records(self, stream_id: str, by: str) -> int:
        """Return how many records some replays have landed, counted by the database."""
        rows = self._asked(_LANDED, {"stream": stream_id, "status": str(FailureStatus.REPLAYED), "by": by})
        return int(rows[0][0]) if rows else 0

    def replayed_letters(self, stream_id: str, by: str) -> int:
        """Return how many dead letters were landed by some replays, counted by the database."""
        rows = self._asked(_REPLAYED, {"stream": stream_id, "status": str(LetterStatus.REPLAYED), "by": by})
        return int(rows[0][0]) if rows else 0

    def letters_of(
        self, stream_id: str, keys: Collection[LetterKey], most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return the dead letters with these keys, in the order of the table's primary key."""
        return self._letters(stream_id, letters_of_keys(stream_id, keys, most_bytes))

    def _letters(self, stream_id: str, query: tuple[str, dict[str, object]]) -> tuple[RecordedLetter, ...]:
        statement, values = query
        found = self._asked(statement, values)
        # Asked later than the letters: one that the stream was set back before meanwhile is told as what it is now.
        most_bytes = bounded_reads.MOST_BYTES
        rows = self._asked(SET_BACKS, (stream_id, most_bytes))
        set_backs = [set_back_from(row) for row in within(rows, f"The resets of {stream_id}", most_bytes)]
        return tuple(_kept_letter(row, set_backs) for row in found)

    def _asked(self, statement: str, values: Sequence[object] | Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Return the rows; a database that no stream has been run against has none."""

        def question(cursor: psycopg2.extensions.cursor) -> list[tuple[Any, ...]]:
            try:
                cursor.execute(self.named(statement), values)
            except psycopg2.errors.UndefinedTable:
                return []
            return list(cursor.fetchall())

        return self._pool.query(question)

    def _installed_version(self) -> int:
        def question(cursor: psycopg2.extensions.cursor) -> int:
            try:
                cursor.execute(self.named("select coalesce(max(version), 0) from {schema}.schema_versions"))
            except psycopg2.errors.UndefinedTable:
                return 0
            return int(only_row(cursor)[0])

        return self._pool.query(question)


def letters_query(
    stream_id: str, place: LetterPlace | None, after: LetterKey | None, most: int, most_bytes: int | None
) -> tuple[str, dict[str, object]]:
    """Return the statement of a page of dead letters, with `{schema}` in it, and its values."""
    columns = dict(zip(("topic", "topic_id", "partition", "record_offset"), after or _BEFORE_ALL, strict=True))
    values = {"stream": stream_id, "most": most, "most_bytes": most_bytes or 0, **columns}
    letters = _OF_STREAM
    if place is not None:
        told = [partition_columns(partition) for partition in place.partitions]
        values["topics"] = [topic for topic, _, _ in told]
        values["numbers"] = [number for _, number, _ in told if number <= _LARGEST_NUMBER]
        values["position"] = place.position
        values["offset"] = place.position if place.position <= LARGEST_OFFSET else None
        letters = _AT_PLACE
    return _page(letters, most_bytes), values


def letters_of_keys(
    stream_id: str, keys: Collection[LetterKey], most_bytes: int | None
) -> tuple[str, dict[str, object]]:
    """Return the statement of the dead letters with some keys, with `{schema}` in it, and its values."""
    topics, topic_ids, numbers, offsets = ([key[place] for key in keys] for place in range(4))
    first = dict(zip(("topic", "topic_id", "partition", "record_offset"), _BEFORE_ALL, strict=True))
    values = {"stream": stream_id, "most": len(keys), "most_bytes": most_bytes or 0, **first}
    values |= {"topics": topics, "topic_ids": topic_ids, "numbers": numbers, "offsets": offsets}
    return _page(_OF_KEYS, most_bytes), values


def _page(letters: str, most_bytes: int | None) -> str:
    chosen = _WITHOUT_CONTENT if most_bytes is None else _WHOLE
    return _PAGE.format(schema="{schema}", letters=letters, **chosen)


def _kept_letter(row: Sequence[Any], set_backs: Sequence[SetBack]) -> RecordedLetter:
    """Return the dead letter of a row."""
    *columns, timestamp, size, created_at, place = row
    key, value = columns.pop(8), columns.pop(8)
    letter = letter_from(columns)
    return RecordedLetter(
        letter,
        status_of(letter, set_backs),
        timestamp,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        created_at,
        place,
        size,
    )


@lru_cache(maxsize=256)
def _named(statement: str, schema: str) -> str:
    """A plain string: composing one costs more than the statement. Quoting an identifier needs no connection."""
    return statement.format(schema=quoted(schema))
