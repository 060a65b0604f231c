"""Read where many streams of one database have landed: one connection, one question for all of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg2
import psycopg2.extensions
from psycopg2 import sql

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress, connect, named_errors
from exactlyonce.connectors.postgres.keys import partition_from, position_from
from exactlyonce.connectors.postgres.waits import answering_within
from exactlyonce.ledger.connector import MOST_LETTERS_COUNTED, Landed, TableSize
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.letters import LetterStatus
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber

_UNFINISHED = [str(status) for status in BatchStatus if status.unfinished]
_WITHOUT_SEEDS = [str(status) for status in BatchStatus if status.landed and status is not BatchStatus.SEEDED]

_LANDED = """
select s.stream_id, s.landed_batch, last.landed_at, upto.batch, positions.found,
    counted.batches, counted.records_read, counted.rows_written, counted.dead_letters,
    coalesce(decided.loads, 0), decided.landed_at, failed.found, letters.held
from unnest(%(streams)s::text[], %(since)s::bigint[]) as asked(stream_id, since)
join {schema}.streams s on s.stream_id = asked.stream_id
left join lateral (
    select extract(epoch from b.landed_at)::float8 as landed_at from {schema}.batches b
    where b.stream_id = s.stream_id and b.batch <= s.landed_batch and b.status = any(%(landed)s)
    order by b.batch desc limit 1
) last on true
left join lateral (
    select coalesce(json_agg(json_build_array(o.topic, o.partition, o.next_offset,
        o.partition_name, o.position::text)), '[]') as found
    from {schema}.offsets o where o.stream_id = s.stream_id and not o.retired
) positions on true
left join lateral (
    select case when b.status = any(%(unfinished)s) then b.batch - 1 else b.batch end as batch from {schema}.batches b
    where b.stream_id = s.stream_id and b.batch = s.landed_batch
) upto on true
left join lateral (
    select count(*) as batches, coalesce(sum(b.records_read), 0)::bigint as records_read,
        coalesce(sum(b.rows_written), 0)::bigint as rows_written, coalesce(sum(b.dead_letters), 0)::bigint as dead_letters
    from {schema}.batches b
    where b.stream_id = s.stream_id and b.batch > asked.since and b.batch <= upto.batch and b.status = %(counted)s
) counted on true
left join lateral (
    select coalesce(json_agg(json_build_array(by.status, by.ranges, by.records, by.since, by.decided)), '[]') as found
    from (
        select f.status, count(*) as ranges, sum(f.until_offset - f.from_offset)::bigint as records,
            extract(epoch from min(f.created_at))::float8 as since,
            count(*) filter (where f.status = %(replaying)s and f.replay like %(decided)s) as decided
        from {schema}.failures f where f.stream_id = s.stream_id group by f.status
    ) by
) failed on true
cross join lateral (
    select count(*) as held from (
        select * from {schema}.dead_letters d where d.stream_id = s.stream_id
        order by d.topic, d.topic_id, d.partition, d.record_offset limit %(most_letters)s
    ) d
    where (d.status is null or d.status <> %(replayed)s) and not exists (
        select from {schema}.set_backs b
        where b.stream_id = d.stream_id and b.topic = d.topic and b.partition = d.partition and b.batch >= d.batch
            and b.position <= coalesce(d.position, d.record_offset)
            and (b.origin_id = d.topic_id or b.origin_id = '' or d.topic_id = '')
    )
) letters
left join lateral (
    select extract(epoch from b.landed_at)::float8 as landed_at, json_array_length(kept.found -> 'committables') as loads
    from (select s.decided::json as found) kept
    join {schema}.batches b on b.stream_id = s.stream_id and b.batch = (kept.found ->> 'batch')::bigint
) decided on true
"""
_SIZES = """
select found.table_name, sum(found.table_bytes)::bigint, sum(found.index_bytes)::bigint from (
    select case when c.relname = any(%(tables)s) then c.relname else 'staging' end as table_name,
        coalesce(pg_table_size(c.oid), 0) as table_bytes, coalesce(pg_indexes_size(c.oid), 0) as index_bytes
    from pg_class c where c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) and c.relkind = 'r'
        and (c.relname = any(%(tables)s) or c.relname ~ '^staging_[0-9a-f]{{16}}_[0-9]+$')
) found group by found.table_name
"""
_TABLES = (
    "streams",
    "offsets",
    "batches",
    "failures",
    "dead_letters",
    "witnesses",
    "committables",
    "set_backs",
    "backfills",
    "replayed",
    "schema_versions",
)

# A batch that was taken (AtMostOnce) is counted when its rows are in, so the count goes up to the one before it meanwhile.


_NONE = (0, 0, None, 0)


class PostgresFleet:
    """One database as the monitor asks it, with one connection; for one thread at a time.

    A server that keeps a connection open and does not answer is left after `timeout_seconds`, whatever it is doing.
    """

    def __init__(self, address: PostgresAddress, timeout_seconds: int = 10) -> None:
        self._address = address
        self._timeout = timeout_seconds
        self._connection: psycopg2.extensions.connection | None = None

    @property
    def name(self) -> str:
        """The database without the login."""
        parameters = self._address.parameters
        return f"{parameters['host']}:{parameters.get('port', '5432')}/{parameters['dbname']}"

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def landed(self, schema: str, since: Mapping[str, BatchNumber | None]) -> dict[str, Landed]:
        """Return what is committed of each stream that has a row; counted from the batch given, or from now on for None.

        Raises:
            LedgerUnreachable, LedgerRefused: if the database does not answer or refuses.
        """
        values = {
            "streams": list(since),
            "since": list(since.values()),
            "landed": _WITHOUT_SEEDS,
            "unfinished": _UNFINISHED,
            "counted": str(BatchStatus.LANDED),
            "replayed": str(LetterStatus.REPLAYED),
            "replaying": str(FailureStatus.REPLAYING),
            "decided": f"%{FailureRow.DECIDED}",
            "most_letters": MOST_LETTERS_COUNTED,
        }
        return {row[0]: _landed_from(row[1:]) for row in self._answer(_LANDED, schema, values)}

    def sizes(self, schema: str) -> tuple[TableSize, ...]:
        """Return how large each table of the schema's ledger is; none where there is no such schema.

        Raises:
            LedgerUnreachable, LedgerRefused: if the database does not answer or refuses.
        """
        rows = self._answer(_SIZES, schema, {"schema": schema, "tables": list(_TABLES)})
        return tuple(TableSize(*row) for row in sorted(rows))

    def _answer(self, question: str, schema: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        for is_last in (False, True):
            was_open = self._connection is not None
            try:
                return self._asked(question, schema, values)
            except psycopg2.errors.UndefinedTable:
                return []  # no stream has ever been run against this schema
            except psycopg2.Error as problem:
                self.close()
                # A connection that was idle may have died since; a fresh one tells what is so.
                if is_last or not was_open or not isinstance(problem, psycopg2.OperationalError):
                    with named_errors(str(self._address)):
                        raise
        raise AssertionError("the last try returns or raises")

    def _asked(self, question: str, schema: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            limits = Limits(connect_seconds=self._timeout, network_seconds=self._timeout)
            self._connection = connect(self._address, limits, "exactlyonce-monitor")
        statement = sql.SQL(question).format(schema=sql.Identifier(schema))
        with answering_within(self._connection, self._timeout + 1), self._connection.cursor() as cursor:
            # Settings of one transaction only: a transaction pooler may stand between.
            cursor.execute(f"begin read only; set local statement_timeout = '{self._timeout}s'")
            try:
                cursor.execute(statement, values)
                return list(cursor.fetchall())
            finally:
                with suppress(psycopg2.Error):
                    cursor.execute("rollback")


def _landed_from(row: tuple[Any, ...]) -> Landed:
    landed_batch, last_landed_at, counted_until, positions, *counts, loads, decided_at, failed, letters = row
    batches, records, rows, dead_letters = (count or 0 for count in counts)
    # A status that somebody has made up is not to leave the streams beside it unmeasured.
    found: dict[str, list[Any]] = {status: it for status, *it in failed}
    open_ranges, failed_records, *_ = found.get(FailureStatus.OPEN, _NONE)
    lost_ranges, lost_records, *_ = found.get(FailureStatus.LOST, _NONE)
    replayed_ranges, replayed_records, *_ = found.get(FailureStatus.REPLAYED, _NONE)
    held = [found[status] for status in HELD if status in found]
    return Landed(
        None if landed_batch is None else BatchNumber(landed_batch),
        last_landed_at,
        None if counted_until is None else BatchNumber(counted_until),
        {
            partition_from(topic, number, name): position_from(offset, wide)
            for topic, number, offset, name, wide in positions
        },
        batches,
        records,
        rows,
        dead_letters,
        open_ranges=open_ranges,
        lost_ranges=lost_ranges,
        lost_records=lost_records,
        quarantined_ranges=sum(ranges for ranges, *_ in held),
        quarantined_records=sum(records for _, records, *_ in held),
        decided_at=decided_at,
        decided_loads=loads,
        failed_records=failed_records,
        replayed_ranges=replayed_ranges,
        replayed_records=replayed_records,
        replay_decided_ranges=found.get(FailureStatus.REPLAYING, _NONE)[3],
        quarantined_since=min((since for _, _, since, _ in held), default=None),
        letters_held=letters,
    )
