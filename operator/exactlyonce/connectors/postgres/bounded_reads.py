"""Reads that are bounded in bytes: what is in a tenant's database is as long as the tenant likes. Performs no I/O.

The server adds up how long the rows are, in their order, and returns none behind the one that exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from exactlyonce.connectors.postgres.keys import partition_columns, partition_from
from exactlyonce.connectors.postgres.rows import (
    BOUNDED_FAILURE_COLUMNS,
    FAILURE_COLUMNS,
    IN_ORDER,
    failure_from,
)
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.history import Overlap, RecordedFailure, Stretch
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber

MOST_BYTES = 32 << 20
"""Ten thousand ranges with 1,000 characters of each error have a half of that."""
PARTS = """
select f.batch, f.topic, f.partition, left(f.partition_name, 2200), min(part.first),
    min(part.first) + sum(part.until - part.first), f.status
from unnest(%(batches)s::bigint[], %(topics)s::text[], %(numbers)s::integer[], %(firsts)s::numeric[], %(untils)s::numeric[])
    as span(batch, topic, partition, first, until)
join {schema}.failures f on f.stream_id = %(stream)s and f.batch = span.batch and f.topic = span.topic
    and f.partition = span.partition
cross join lateral (
    select coalesce(f.from_position, f.from_offset) as first,
        coalesce(f.until_position, f.until_offset) as until
) part
where f.status = any(%(statuses)s) and part.first >= span.first and part.first < span.until
group by f.batch, f.topic, f.partition, 4, span.first, f.status, case when f.status = any(%(held)s) then part.first end
order by f.status = any(%(held)s), f.batch, f.topic, f.partition, 5 limit %(most)s
"""

OVERLAPS = """
select span.topic, span.partition, span.first, f.status,
    sum(least(f.until_offset, span.until) - greatest(f.from_offset, span.first))::bigint, min(f.partition_name)
from unnest(%(topics)s::text[], %(numbers)s::integer[], %(firsts)s::bigint[], %(untils)s::bigint[])
    as span(topic, partition, first, until)
join {schema}.failures f on f.stream_id = %(stream)s and f.topic = span.topic and f.partition = span.partition
    and f.from_offset < span.until and f.until_offset > span.first
where f.status = any(%(statuses)s)
    and (f.status <> %(replayed)s or starts_with(coalesce(f.replay, ''), %(by)s))
group by span.topic, span.partition, span.first, f.status
"""


def bounded(question: str, order: str) -> str:
    """Return a question with its rows bounded, of which the limit is the last value; rows have two more columns then."""
    return f"""
select * from (
    select *, sum(bytes) over ({order} rows between unbounded preceding and current row) as bytes_until
    from (select *, octet_length(found::text) as bytes from ({question}) found) measured
) summed where bytes_until - bytes <= %s {order}
"""


def within(rows: Sequence[Sequence[Any]], what: str, most_bytes: int) -> list[Sequence[Any]]:
    """Return the rows of a bounded question without the two columns.

    Raises:
        LedgerRefused: if there would be more; what was left out might be what matters.
    """
    if rows and rows[-1][-1] > most_bytes:
        raise LedgerRefused(
            f"{what} are longer in the ledger than any driver writes them: the first {len(rows)} hold more than "
            f"{most_bytes >> 20} MiB, which are not read. Look at the table"
        )
    return [row[:-2] for row in rows]


FAILURES = f"""
select {FAILURE_COLUMNS} from {{schema}}.failures f
where stream_id = %s and status = any(%s) and (%s::bigint[] is null or batch = any(%s::bigint[])) {IN_ORDER} limit %s
"""
BOUNDED_FAILURES = bounded(FAILURES.replace(FAILURE_COLUMNS, BOUNDED_FAILURE_COLUMNS), IN_ORDER)
"""The first value is how many characters of each error are wanted."""
SET_BACKS = bounded(
    "select left(topic, 2200), partition, left(partition_name, 2200), position, left(origin_id, 300), batch "
    "from {schema}.set_backs where stream_id = %s",
    "order by batch, partition",
)


def kept_from(row: Sequence[Any]) -> RecordedFailure:
    """Return the failed range of a row of FAILURES."""
    return RecordedFailure(failure_from(row), row[-1])


def part_from(row: Sequence[Any]) -> FailureRow:
    """Return what became of a part of what was asked for."""
    batch, topic, number, name, start, end, status = row
    partition = partition_from(topic, number, name)
    return FailureRow(BatchNumber(batch), partition, int(start), int(end), FailureStatus(status), "", "")


def overlap_values(
    stream_id: str, statuses: Collection[FailureStatus], stretches: Sequence[Stretch], by: str
) -> dict[str, object]:
    """Return the values of OVERLAPS."""
    places = [partition_columns(it.partition)[:2] for it in stretches]
    return {
        "stream": stream_id,
        "statuses": [str(it) for it in statuses],
        "replayed": str(FailureStatus.REPLAYED),
        "by": by,
        "topics": [topic for topic, _ in places],
        "numbers": [number for _, number in places],
        "firsts": [it.from_offset for it in stretches],
        "untils": [it.until_offset for it in stretches],
    }


def overlap_from(row: Sequence[Any]) -> Overlap:
    """Return what a row of OVERLAPS says."""
    topic, number, first, status, records, name = row
    return Overlap(partition_from(topic, number, name), first, FailureStatus(status), records)
