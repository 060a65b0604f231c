"""The ledger's failures, and what it no longer keeps, inside one Postgres transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from exactlyonce.connectors.postgres.expiry import DELETE_BATCHES, DELETE_DEAD_LETTERS, DELETE_FAILURES
from exactlyonce.connectors.postgres.keys import is_plain, partition_columns, range_columns
from exactlyonce.connectors.postgres.letters import LetterStatements
from exactlyonce.connectors.postgres.rows import FAILURE_COLUMNS, IN_ORDER, failure_from
from exactlyonce.ledger.rows import (
    BatchStatus,
    Excess,
    FailureRow,
    FailureStatus,
)
from exactlyonce.positions.ranges import BatchNumber

_FAILURE_KEY = ("stream_id", "batch", "topic", "partition", "from_offset")


class Housekeeping(LetterStatements):
    """What is said of records that did not land, and the removal of what is old."""

    def write_failures(self, stream_id: str, failures: tuple[FailureRow, ...]) -> None:
        """Record failed ranges; what is passed over may not overlap what was passed over before (a constraint)."""
        for failure in failures:
            plain = is_plain(failure.partition, failure.from_offset, failure.until_offset)
            topic, number, name = partition_columns(failure.partition)
            from_offset, until_offset = range_columns(failure.from_offset, failure.until_offset)
            columns: dict[str, object] = {
                "stream_id": stream_id,
                "batch": failure.batch,
                "topic": topic,
                "partition": number,
                "from_offset": from_offset,
                "until_offset": until_offset,
                "status": str(failure.status),
                "brokers": failure.address,
                "error": failure.error,
            }
            if not plain:
                columns["partition_name"] = name
                columns |= {"from_position": failure.from_offset, "until_position": failure.until_offset}
            columns |= _origin_columns(failure)
            self._write_failure(columns, failure, plain=plain)

    def _write_failure(self, columns: dict[str, object], failure: FailureRow, *, plain: bool) -> None:
        """Insert or replace one row; what it was given up of is a stretch of one number line, of its partition alone."""
        stretch, size = ("position_id", "1e19") if plain else ("1e50 + position_id", "1e100")
        replaced = [*(column for column in columns if column not in _FAILURE_KEY), "given_up"]
        self._count(
            f"insert into {{schema}}.failures ({', '.join(columns)}, given_up) values ({', '.join(['%s'] * len(columns))}, "
            f"(select numrange({stretch} * {size} + %s, {stretch} * {size} + %s) from {{schema}}.offsets "
            "where %s and stream_id = %s and topic = %s and partition = %s)) "
            f"on conflict ({', '.join(_FAILURE_KEY)}) do update set "
            f"{', '.join(f'{column} = excluded.{column}' for column in replaced)}, changed_at = now()",
            *columns.values(),
            failure.from_offset,
            failure.until_offset,
            failure.passed_over,
            columns["stream_id"],
            columns["topic"],
            columns["partition"],
        )

    def read_failures(self, stream_id: str, status: FailureStatus) -> tuple[FailureRow, ...]:
        """Return the failed ranges with this status."""
        rows = self._rows(
            f"select {FAILURE_COLUMNS} from {{schema}}.failures f where stream_id = %s and status = %s {IN_ORDER}",
            stream_id,
            str(status),
        )
        return tuple(failure_from(row) for row in rows)

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


def _origin_columns(failure: FailureRow) -> dict[str, object]:
    kept = failure.fingerprint
    return {
        "origin_id": failure.origin_id or None,
        "fingerprint": None if kept is None else kept.to_json(),
        "life": failure.life or None,
        "replay": failure.replay or None,
    }
