"""One log as the monitor asks it: where its stream has landed, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.checkpoint.store import ObjectStore
from exactlyonce.connectors.object_log.log import LogMissing, ObjectLog
from exactlyonce.connectors.object_log.names import kind_of
from exactlyonce.connectors.object_log.state import Key, LedgerState, Table, landed_of
from exactlyonce.errors import LedgerUnreachable, StoreUnreachable
from exactlyonce.ledger.connector import Landed, TableSize
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus, StreamRow
from exactlyonce.positions.ranges import BatchNumber


class ObjectLogFleet:
    """A `LedgerFleet` of one log. Only entries that are new since the last question are read."""

    def __init__(self, log: ObjectLog, store: ObjectStore, name: str) -> None:
        self._log = log
        self._store = store
        self.name = name

    def landed(self, space: str, since: Mapping[str, BatchNumber | None]) -> dict[str, Landed]:
        """Return what is committed of each stream that has a row; none where there is no log yet.

        Raises:
            LedgerUnreachable, LedgerRefused: if the store does not answer, or the log is damaged.
        """
        try:
            state = self._log.fold().state
        except LogMissing:
            return {}
        except StoreUnreachable as problem:
            raise LedgerUnreachable(f"The ledger at {self._log.location} cannot be reached: {problem}") from problem
        found = {stream_id: landed_in(state, stream_id, before) for stream_id, before in since.items()}
        return {stream_id: landed for stream_id, landed in found.items() if landed is not None}

    def sizes(self, space: str) -> tuple[TableSize, ...]:
        """Return how many bytes there are of each kind of object; a log has no indexes.

        Raises:
            LedgerUnreachable: if the store does not answer.
        """
        try:
            origin = self._log.origin()
            entries = () if origin is None else self._store.list(origin.log_id)
        except StoreUnreachable as problem:
            raise LedgerUnreachable(f"The ledger at {self._log.location} cannot be reached: {problem}") from problem
        found: dict[str, int] = {}
        for entry in entries:
            kind = kind_of(entry.name)
            if kind is not None:
                found[kind] = found.get(kind, 0) + entry.size_bytes
        return tuple(TableSize(kind, size, 0) for kind, size in sorted(found.items()))

    def close(self) -> None:
        """Nothing is kept open."""


def landed_in(state: LedgerState, stream_id: str, since: BatchNumber | None) -> Landed | None:
    """Return where a stream has landed; None where it has no row. Performs no I/O.

    A batch that was taken (AtMostOnce) or decided (a sink of two phases) is counted once its rows are in; the count goes up
    to the one before it meanwhile.
    """
    stream: StreamRow | None = state.get(Key(Table.STREAM, stream_id))
    if stream is None:
        return None
    rows: list[BatchRow] = [kept.row for kept in state.rows(Table.BATCH, stream_id).values()]
    latest = BatchNumber(-1) if stream.landed_batch is None else stream.landed_batch
    at_latest = next((row for row in rows if row.batch == latest), None)
    until = None if at_latest is None else at_latest.batch - at_latest.status.unfinished
    with_records = [
        row for row in rows if row.batch <= latest and row.status.landed and row.status is not BatchStatus.SEEDED
    ]
    last = max(with_records, key=lambda row: row.batch, default=None)
    counted = [
        row for row in rows
        if since is not None and until is not None and since < row.batch <= until and row.status is BatchStatus.LANDED
    ]  # fmt: skip
    kept_failures = state.rows(Table.FAILURE, stream_id).values()
    failures: list[FailureRow] = [kept.row for kept in kept_failures]
    failed = [row for row in failures if row.status is FailureStatus.OPEN]
    held_since = [(it.held_since or it.changed_at).timestamp() for it in kept_failures if it.row.status in HELD]
    lost = [row for row in failures if row.status is FailureStatus.LOST]
    replayed = [row for row in failures if row.status is FailureStatus.REPLAYED]
    quarantined = [row for row in failures if row.status in HELD]
    decided: DecidedBatch | None = state.get(Key(Table.DECIDED, stream_id))
    of_decided = next((row for row in rows if decided is not None and row.batch == decided.batch), None)
    return Landed(
        stream.landed_batch,
        None if last is None or last.landed_at is None else last.landed_at.timestamp(),
        None if until is None else BatchNumber(until),
        landed_of(state.rows(Table.POSITION, stream_id)).positions,
        batches=len(counted),
        records=sum(row.records_read or 0 for row in counted),
        rows=sum(row.rows_written or 0 for row in counted),
        dead_letters=sum(row.dead_letters or 0 for row in counted),
        open_ranges=len(failed),
        lost_ranges=len(lost),
        lost_records=sum(row.offset_count for row in lost),
        quarantined_ranges=len(quarantined),
        quarantined_records=sum(row.offset_count for row in quarantined),
        decided_at=None if of_decided is None or of_decided.landed_at is None else of_decided.landed_at.timestamp(),
        failed_records=sum(row.offset_count for row in failed),
        replayed_ranges=len(replayed),
        replayed_records=sum(row.offset_count for row in replayed),
        replay_decided_ranges=sum(row.is_decided for row in failures),
        quarantined_since=min(held_since, default=None),
        decided_loads=0 if decided is None else len(decided.committables),
    )
