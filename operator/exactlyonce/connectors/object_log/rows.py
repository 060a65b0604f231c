"""Between the rows of a state and JSON. Performs no I/O.

A field that a later release adds is read with a default, and one that this release does not know is left alone: two releases
run over one log while an operator is upgraded before its drivers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from exactlyonce.connectors.object_log.state import Changes, KeptBatch, KeptFailure, Key, Stand, Table
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    DatabaseIdentity,
    FailureRow,
    FailureStatus,
    Owner,
    QueryMark,
    StreamRow,
    Ticket,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Ranges

Json = Any


def changes_to_json(changes: Changes) -> Json:
    """Return changes as JSON, in the order of their keys; equal changes give equal JSON."""
    told = [
        [key.table, key.stream_id, list(key.rest), None if row is None else _CODECS[key.table].encode(row)]
        for key, row in changes.items()
    ]
    return sorted(told, key=lambda change: (change[0], change[1], repr(change[2])))


def changes_from_json(found: Json) -> dict[Key, Any]:
    """Return the changes that `changes_to_json` rendered.

    Raises:
        ValueError, KeyError, TypeError: if the JSON is anything else.
    """
    changes: dict[Key, Any] = {}
    for table, stream_id, rest, row in found:
        key = Key(Table(table), str(stream_id), tuple(rest))
        changes[key] = None if row is None else _CODECS[key.table].decode(row)
    return changes


class _Codec(NamedTuple):
    encode: Callable[[Any], Json]
    decode: Callable[[Json], Any]


def _stream_to_json(row: StreamRow) -> Json:
    return {
        "streamId": row.stream_id,
        "token": row.token,
        "owner": [row.owner.cluster, row.owner.uid],
        "database": [row.database.system_identifier, row.database.database_oid],
        "epoch": row.epoch,
        "claim": row.claim,
        "writer": row.writer,
        "writerReleased": row.writer_released,
        "landedBatch": row.landed_batch,
        "generation": row.generation,
        "checkpointPath": row.checkpoint_path,
        "stateful": row.stateful,
    }


def _stream_from_json(found: Json) -> StreamRow:
    writer, landed = found.get("writer"), found.get("landedBatch")
    return StreamRow(
        stream_id=found["streamId"],
        token=found["token"],
        owner=Owner(*found["owner"]),
        database=DatabaseIdentity(*found["database"]),
        epoch=Epoch(found["epoch"]),
        claim=found.get("claim"),
        writer=None if writer is None else Epoch(writer),
        writer_released=found.get("writerReleased", False),
        landed_batch=None if landed is None else BatchNumber(landed),
        generation=found.get("generation"),
        checkpoint_path=found.get("checkpointPath"),
        stateful=found.get("stateful", False),
    )


def _stand_to_json(stand: Stand) -> Json:
    kept = stand.fingerprint
    told = None if kept is None else [kept.offset, kept.digest, kept.timestamp_milliseconds, kept.leader_epoch]
    return {"offset": stand.offset, "originId": stand.origin_id, "fingerprint": told}


def _stand_from_json(found: Json) -> Stand:
    kept = found.get("fingerprint")
    return Stand(found["offset"], found["originId"], None if kept is None else Fingerprint(*kept))


def _batch_to_json(kept: KeptBatch) -> Json:
    row = kept.row
    return {
        "batch": row.batch,
        "epoch": row.epoch,
        "status": str(row.status),
        "ranges": json.loads(row.ranges.to_json()),
        "recordsRead": row.records_read,
        "rowsWritten": row.rows_written,
        "deadLetters": row.dead_letters,
        "note": row.note,
        "landedAt": None if row.landed_at is None else row.landed_at.isoformat(),
        "createdAt": kept.created_at.isoformat(),
    }


def _batch_from_json(found: Json) -> KeptBatch:
    landed_at = found.get("landedAt")
    row = BatchRow(
        batch=BatchNumber(found["batch"]),
        epoch=Epoch(found["epoch"]),
        status=BatchStatus(found["status"]),
        ranges=Ranges.from_json(json.dumps(found["ranges"])),
        records_read=found.get("recordsRead"),
        rows_written=found.get("rowsWritten"),
        dead_letters=found.get("deadLetters"),
        note=found.get("note", ""),
        landed_at=None if landed_at is None else datetime.fromisoformat(landed_at),
    )
    return KeptBatch(row, datetime.fromisoformat(found["createdAt"]))


def _failure_to_json(kept: KeptFailure) -> Json:
    row = kept.row
    return {
        "batch": row.batch,
        "partition": [row.partition.origin, row.partition.key],
        "range": [row.from_offset, row.until_offset],
        "status": str(row.status),
        "address": row.address,
        "error": row.error,
        "originGone": row.origin_gone,
        "stretch": kept.stretch,
        "changedAt": kept.changed_at.isoformat(),
    }


def _failure_from_json(found: Json) -> KeptFailure:
    begin, end = found["range"]
    row = FailureRow(
        batch=BatchNumber(found["batch"]),
        partition=Partition(*found["partition"]),
        from_offset=begin,
        until_offset=end,
        status=FailureStatus(found["status"]),
        address=found["address"],
        error=found["error"],
        origin_gone=found.get("originGone", False),
    )
    return KeptFailure(row, datetime.fromisoformat(found["changedAt"]), found.get("stretch"))


_STAND = _Codec(_stand_to_json, _stand_from_json)
_AS_IT_IS = _Codec(lambda row: row, lambda row: row)

_CODECS: dict[Table, _Codec] = {
    Table.STREAM: _Codec(_stream_to_json, _stream_from_json),
    Table.QUERY: _Codec(QueryMark.to_json, QueryMark.from_json),
    Table.TICKET: _Codec(lambda row: [row.epoch, row.secret], lambda row: Ticket(Epoch(row[0]), row[1])),
    Table.POSITION: _STAND,
    Table.RETIRED: _STAND,
    Table.STRETCH: _AS_IT_IS,
    Table.BATCH: _Codec(_batch_to_json, _batch_from_json),
    Table.FAILURE: _Codec(_failure_to_json, _failure_from_json),
    Table.COMMITTABLE: _AS_IT_IS,
    Table.ARCHIVE: _AS_IT_IS,
}
