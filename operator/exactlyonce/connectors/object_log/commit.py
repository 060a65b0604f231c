"""From the changes of a transaction to those of an entry: what there is no room for is refused. Performs no I/O."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from exactlyonce.connectors.object_log.bounds import LONGEST_TEXT, Bounds, cut
from exactlyonce.connectors.object_log.expiry import crowded_batches, crowded_failures
from exactlyonce.connectors.object_log.state import Changes, Key, LedgerState, StoredBatch, StoredFailure, Table
from exactlyonce.ledger.room import TooMuchInQuarantine, why_no_room
from exactlyonce.ledger.rows import BatchRow, FailureRow, StreamRow


def to_commit(state: LedgerState, changes: Changes, bounds: Bounds) -> Changes:
    """Return the changes of a state that are to be an entry.

    What removes nothing is left out, long errors are cut, and rows that are over make room for those that are written.

    Raises:
        TooMuchInQuarantine: if there would be more ranges that are kept than there is room for; what does not add any passes.
    """
    told = {key: _shortened(row) for key, row in changes.items() if row is not None or state.get(key) is not None}
    for stream_id in {key.stream_id for key in told if key.table in (Table.BATCH, Table.FAILURE)}:
        after = state.after(told)
        stream: StreamRow | None = after.get(Key(Table.STREAM, stream_id))
        if stream is None:
            continue
        if any(key.table is Table.FAILURE for key in told):
            _require_room(_failures(state, stream_id), _failures(after, stream_id), stream_id, bounds)
        told |= _crowded(after, stream, bounds)
    return told


def _shortened(row: Any) -> Any:
    match row:
        case StoredFailure(row=FailureRow(error=told)) if len(told) > LONGEST_TEXT:
            return replace(row, row=replace(row.row, error=cut(told)))
        case StoredBatch(row=BatchRow(note=told)) if len(told) > LONGEST_TEXT:
            return replace(row, row=replace(row.row, note=cut(told)))
        case _:
            return row


def _failures(state: LedgerState, stream_id: str) -> list[FailureRow]:
    return [kept.row for kept in state.rows(Table.FAILURE, stream_id).values()]


def _require_room(before: list[FailureRow], after: list[FailureRow], stream_id: str, bounds: Bounds) -> None:
    """Whoever quarantines has asked for more than this; here what a replay divides may use the room between the two bounds."""
    only_kept = replace(bounds.room, held=sys.maxsize, error_bytes=sys.maxsize)
    why = why_no_room(before, after, None, only_kept)
    if why is not None:
        raise TooMuchInQuarantine(f"Nothing was written to the ledger of {stream_id}: {why}.")


def _crowded(state: LedgerState, stream: StreamRow, bounds: Bounds) -> Mapping[Key, Any]:
    """Return the removals of what there is no room for beside later rows."""
    if stream.landed_batch is None:
        return {}
    batches = [kept.row for kept in state.rows(Table.BATCH, stream.stream_id).values()]
    in_order = sorted(batches, key=lambda row: row.batch)
    failures = [
        (Key(Table.FAILURE, stream.stream_id, rest), kept)
        for rest, kept in state.rows(Table.FAILURE, stream.stream_id).items()
    ]
    gone = [
        Key(Table.BATCH, stream.stream_id, (batch,)) for batch in crowded_batches(in_order, stream.landed_batch, bounds)
    ]
    return dict.fromkeys((*gone, *crowded_failures(failures, stream.landed_batch, bounds)))
