"""The ledger's failures, and what it no longer keeps, inside one Postgres transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from exactlyonce.connectors.postgres.expiry import DELETE_BATCHES, DELETE_DEAD_LETTERS, DELETE_FAILURES
from exactlyonce.connectors.postgres.keys import is_plain, partition_columns, partition_from, range_columns
from exactlyonce.connectors.postgres.statements import Statements
from exactlyonce.ledger.rows import (
    BatchStatus,
    Excess,
    FailureRow,
    FailureStatus,
)
from exactlyonce.positions.ranges import BatchNumber


class Housekeeping(Statements):
    """What is said of records that did not land, and the removal of what is old."""

    def write_failures(self, stream_id: str, failures: tuple[FailureRow, ...]) -> None:
        """Record failed ranges; what is passed over may not overlap what was passed over before (a constraint)."""
        for failure in failures:
            plain = is_plain(failure.partition, failure.from_offset, failure.until_offset)
            wide = self._has_wide_columns([plain])
            topic, number, name = partition_columns(failure.partition)
            from_offset, until_offset = range_columns(failure.from_offset, failure.until_offset)
            stretch, size = ("position_id", "1e19") if plain else ("1e50 + position_id", "1e100")
            also = (
                ("", "") if plain or not wide else (", partition_name, from_position, until_position", ", %s, %s, %s")
            )
            self._count(
                "insert into {schema}.failures (stream_id, batch, topic, partition, from_offset, until_offset, status, "
                f"brokers, error, given_up{also[0]}) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, "
                f"(select numrange({stretch} * {size} + %s, {stretch} * {size} + %s) from {{schema}}.offsets "
                f"where %s and stream_id = %s and topic = %s and partition = %s){also[1]}) "
                "on conflict (stream_id, batch, topic, partition, from_offset) do update set "
                "status = excluded.status, error = excluded.error, given_up = excluded.given_up, changed_at = now()",
                stream_id,
                failure.batch,
                topic,
                number,
                from_offset,
                until_offset,
                str(failure.status),
                failure.address,
                failure.error,
                failure.from_offset,
                failure.until_offset,
                failure.passed_over,
                stream_id,
                topic,
                number,
                *(() if plain else (name, failure.from_offset, failure.until_offset)),
            )

    def read_failures(self, stream_id: str, status: FailureStatus) -> tuple[FailureRow, ...]:
        """Return the failed ranges with this status; a schema of an earlier release has no names and no large positions."""
        rows = self._rows(
            "select batch, topic, partition, to_jsonb(f) ->> 'partition_name', "
            "coalesce((to_jsonb(f) ->> 'from_position')::numeric, from_offset), "
            "coalesce((to_jsonb(f) ->> 'until_position')::numeric, until_offset), brokers, error "
            "from {schema}.failures f where stream_id = %s and status = %s order by batch, topic, partition, 5",
            stream_id,
            str(status),
        )
        return tuple(
            FailureRow(
                BatchNumber(batch), partition_from(topic, number, name), int(start), int(end), status, address, error
            )
            for batch, topic, number, name, start, end, address, error in rows
        )

    def settle_failures(self, stream_id: str, batch: BatchNumber, status: FailureStatus) -> None:
        """Give every open failure of the batch this status."""
        self._count(
            "update {schema}.failures set status = %s, changed_at = now() "
            "where stream_id = %s and batch = %s and status = %s",
            str(status),
            stream_id,
            batch,
            str(FailureStatus.OPEN),
        )

    def delete_batches(self, stream_id: str, excess: Excess, fewest: int, most: int) -> int:
        """Delete batches that are not kept."""
        values = {
            "stream": stream_id,
            "statuses": [str(status) for status in excess.statuses],
            "landed": str(BatchStatus.LANDED),
            "before": excess.before,
            "age": excess.age,
            "fewest": fewest,
            "most": most,
        }
        return self._deleted(DELETE_BATCHES, values)

    def delete_failures(self, stream_id: str, status: FailureStatus, age: timedelta, most: int) -> int:
        """Delete failures that have had this status for long."""
        return self._deleted(DELETE_FAILURES, {"stream": stream_id, "status": str(status), "age": age, "most": most})

    def delete_dead_letters(self, stream_id: str, age: timedelta, most: int) -> int:
        """Delete dead letters that landed long ago."""
        return self._deleted(DELETE_DEAD_LETTERS, {"stream": stream_id, "age": age, "most": most})

    def _deleted(self, statement: str, values: dict[str, Any]) -> int:
        with self._ledger.own_errors(), self.cursor() as cursor:
            cursor.execute(self._ledger.named(statement), values)
            return int(cursor.rowcount)
