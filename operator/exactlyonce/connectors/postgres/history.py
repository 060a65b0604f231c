"""What a person looks at of a ledger in Postgres: failed ranges and dead letters, in one query each and without locks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import psycopg2.errors
import psycopg2.extensions

from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.keys import LARGEST_OFFSET, partition_columns, partition_from
from exactlyonce.connectors.postgres.migrating import only_row, quoted
from exactlyonce.connectors.postgres.pool import ConnectionPool
from exactlyonce.connectors.postgres.rows import FAILURE_COLUMNS, IN_ORDER, failure_from
from exactlyonce.connectors.postgres.tables import NAMED_LETTERS_SINCE
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.history import LetterKey, LetterPlace, RecordedFailure, RecordedLetter
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import BatchNumber

_FAILURES = f"""
select {FAILURE_COLUMNS} from {{schema}}.failures f
where stream_id = %s and status = any(%s) and (%s::bigint is null or batch = %s) {IN_ORDER} limit %s
"""
_OF_STREAM = "select * from {schema}.dead_letters where stream_id = %(stream)s"
_IN_PARTITIONS = f"{_OF_STREAM} and topic = any(%(topics)s) and partition = any(%(numbers)s::bigint[])"
_AT_PLACE = f"""
{_IN_PARTITIONS} and record_offset = %(offset)s::bigint and position is null
union all
{_IN_PARTITIONS} and position = %(position)s::numeric
"""
"""Two queries, since each has an index of its own that leads to the letter."""

_PAGE = """
select topic, topic_id, partition, record_offset, partition_name, coalesce(position, record_offset), batch, record_timestamp,
    {content}, octet_length(value), created_at, place
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
    "content": "key, value, error",
    "bytes": "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + octet_length(error)",
}
_WITHOUT_CONTENT = {"content": "null::bytea, null::bytea, left(error, 1000)", "bytes": "0"}
_LARGEST_NUMBER = 2**31 - 1
"""Of a partition, in its column."""
_BEFORE_ALL: LetterKey = ("", "", -1, -1)


class Questions:
    """The part of a ledger in Postgres that is asked outside of its transactions."""

    address: PostgresAddress
    schema: str
    _pool: ConnectionPool

    def named(self, statement: str) -> str:
        """Return a statement with `{schema}` replaced by the quoted schema."""
        return _named(statement, self.schema)

    def require_version(self, version: int, what: str) -> None:
        """Require that the schema was migrated to a version, for `what`; a driver may be newer than its operator.

        Raises:
            LedgerRefused: saying that the operator has to be upgraded first.
        """
        installed = self._installed_version()
        if installed < version:
            raise LedgerRefused(
                f"The ledger's schema {self.schema} at {self.address} has version {installed}, and {what} needs {version}: "
                "upgrade the operator first, which migrates the schema before its next attempt."
            )

    def kept_failures(
        self, stream_id: str, statuses: Collection[FailureStatus], batch: BatchNumber | None, most: int
    ) -> tuple[RecordedFailure, ...]:
        """Return failed ranges."""
        rows = self._asked(_FAILURES, (stream_id, [str(status) for status in statuses], batch, batch, most))
        return tuple(_kept_failure(row) for row in rows)

    def kept_letters(
        self, stream_id: str, place: LetterPlace | None, after: LetterKey | None, most: int, most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return dead letters, in the order of the table's primary key."""
        if self._installed_version() == 0:
            return ()  # no stream has ever been run against this database
        self.require_version(NAMED_LETTERS_SINCE, "a list of dead letters")
        statement, values = letters_query(stream_id, place, after, most, most_bytes)
        rows = self._asked(statement, values)
        return tuple(_kept_letter(row) for row in rows)

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
    chosen = _WITHOUT_CONTENT if most_bytes is None else _WHOLE
    return _PAGE.format(schema="{schema}", letters=letters, **chosen), values


def _kept_failure(row: Sequence[Any]) -> RecordedFailure:
    """Return the failed range of a row."""
    return RecordedFailure(failure_from(row), row[-1])


def _kept_letter(row: Sequence[Any]) -> RecordedLetter:
    """Return the dead letter of a row."""
    topic, topic_id, number, offset, name, position, batch, timestamp, key, value, error, size, created_at, place = row
    return RecordedLetter(
        partition_from(topic, number, name),
        int(position),
        topic_id,
        BatchNumber(batch),
        timestamp,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        error,
        created_at,
        place,
        (topic, topic_id, number, offset),
        size,
    )


@lru_cache(maxsize=256)
def _named(statement: str, schema: str) -> str:
    """A plain string: composing one costs more than the statement. Quoting an identifier needs no connection."""
    return statement.format(schema=quoted(schema))
