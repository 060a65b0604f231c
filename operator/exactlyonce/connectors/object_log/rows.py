"""Between the rows of a state and JSON. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from exactlyonce.connectors.object_log.state import Changes, Key, Stand, StoredBatch, StoredFailure, Table
from exactlyonce.json_values import (
    count,
    fields,
    items,
    moment,
    optional,
    text,
    truth,
    whole_number,
)
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.known_loads import NO_LOADS, KnownLoads
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    DatabaseIdentity,
    FailureRow,
    FailureStatus,
    Owner,
    QueryMark,
    StreamRow,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Ranges, key_of

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
        ValueError, KeyError: if the JSON is anything else.
    """
    changes: dict[Key, Any] = {}
    for change in items(found):
        table, stream_id, rest, row = items(change, 4)
        codec = _CODECS[Table(text(table))]
        known_by = items(rest, len(codec.known_by))
        told = tuple(read(value) for read, value in zip(codec.known_by, known_by, strict=True))
        changes[Key(Table(table), text(stream_id), told)] = optional(codec.decode, row)
    return changes


class _Codec(NamedTuple):
    """A row to JSON and back, and what tells it from the stream's other rows of the table."""

    encode: Callable[[Any], Json]
    decode: Callable[[Json], Any]
    known_by: tuple[Callable[[Json], Hashable], ...] = ()


def _partition_key(value: Json) -> int | str:
    """A number, or a name that is not a number."""
    if not isinstance(value, str):
        return count(value)
    if key_of(value) != value:
        raise ValueError("the name of a partition is a number")
    return value


def _stream_to_json(row: StreamRow) -> Json:
    return {
        "streamId": row.stream_id,
        "token": row.token,
        "owner": [row.owner.cluster, row.owner.uid],
        "database": [row.database.system_identifier, row.database.database_oid],
        "epoch": row.epoch,
        "ticket": row.ticket,
        "claim": row.claim,
        "writer": row.writer,
        "writerReleased": row.writer_released,
        "landedBatch": row.landed_batch,
        "generation": row.generation,
        "checkpointPath": row.checkpoint_path,
        "stateful": row.stateful,
        **({} if row.loads == NO_LOADS else {"loads": row.loads.to_json()}),
    }


def _stream_from_json(found: Json) -> StreamRow:
    row = fields(found)
    cluster, uid = items(row["owner"], 2)
    system_identifier, database_oid = items(row["database"], 2)
    writer, landed = optional(count, row["writer"]), optional(count, row["landedBatch"])
    return StreamRow(
        stream_id=text(row["streamId"]),
        token=text(row["token"]),
        owner=Owner(text(cluster), text(uid)),
        database=DatabaseIdentity(text(system_identifier), whole_number(database_oid)),
        epoch=Epoch(count(row["epoch"])),
        ticket=text(row["ticket"]),
        claim=optional(text, row["claim"]),
        writer=None if writer is None else Epoch(writer),
        writer_released=truth(row["writerReleased"]),
        landed_batch=None if landed is None else BatchNumber(landed),
        generation=optional(count, row["generation"]),
        checkpoint_path=optional(text, row["checkpointPath"]),
        stateful=truth(row["stateful"]),
        loads=KnownLoads.from_json(optional(text, row.get("loads"))),
    )


def _stand_to_json(stand: Stand) -> Json:
    return {
        "offset": stand.offset,
        "originId": stand.origin_id,
        "fingerprint": _fingerprint_to_json(stand.fingerprint),
    }


def _stand_from_json(found: Json) -> Stand:
    row = fields(found)
    return Stand(count(row["offset"]), text(row["originId"]), optional(_fingerprint_from_json, row["fingerprint"]))


def _fingerprint_to_json(kept: Fingerprint | None) -> Json:
    return None if kept is None else [kept.offset, kept.digest, kept.timestamp_milliseconds, kept.leader_epoch]


def _fingerprint_from_json(found: Json) -> Fingerprint:
    offset, digest, timestamp, leader_epoch = items(found, 4)
    return Fingerprint(
        count(offset), text(digest), optional(whole_number, timestamp), optional(whole_number, leader_epoch)
    )


def _batch_to_json(kept: StoredBatch) -> Json:
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


def _batch_from_json(found: Json) -> StoredBatch:
    told = fields(found)
    row = BatchRow(
        batch=BatchNumber(count(told["batch"])),
        epoch=Epoch(count(told["epoch"])),
        status=BatchStatus(text(told["status"])),
        ranges=Ranges.from_json(json.dumps(told["ranges"])),
        records_read=optional(count, told["recordsRead"]),
        rows_written=optional(count, told["rowsWritten"]),
        dead_letters=optional(count, told["deadLetters"]),
        note=text(told["note"]),
        landed_at=optional(moment, told["landedAt"]),
    )
    return StoredBatch(row, moment(told["createdAt"]))


def _failure_to_json(kept: StoredFailure) -> Json:
    row = kept.row
    return {
        "batch": row.batch,
        "partition": [row.partition.origin, row.partition.key],
        "range": [row.from_offset, row.until_offset],
        "status": str(row.status),
        "address": row.address,
        "error": row.error,
        "originGone": row.origin_gone,
        "originId": row.origin_id,
        "fingerprint": _fingerprint_to_json(row.fingerprint),
        "life": row.life,
        "replay": row.replay,
        "stretch": kept.stretch,
        "changedAt": kept.changed_at.isoformat(),
        "heldSince": None if kept.held_since is None else kept.held_since.isoformat(),
    }


def _failure_from_json(found: Json) -> StoredFailure:
    told = fields(found)
    origin, key = items(told["partition"], 2)
    begin, end = items(told["range"], 2)
    row = FailureRow(
        batch=BatchNumber(count(told["batch"])),
        partition=Partition(text(origin), _partition_key(key)),
        from_offset=count(begin),
        until_offset=count(end),
        status=FailureStatus(text(told["status"])),
        address=text(told["address"]),
        error=text(told["error"]),
        origin_gone=truth(told["originGone"]),
        origin_id=text(told["originId"]),
        fingerprint=optional(_fingerprint_from_json, told["fingerprint"]),
        life=text(told["life"]),
        replay=text(told["replay"]),
    )
    held_since = optional(moment, told["heldSince"])
    return StoredFailure(row, moment(told["changedAt"]), optional(count, told["stretch"]), held_since)


def _query_from_json(found: Json) -> QueryMark:
    mark = QueryMark.from_json(text(found))
    for partition in mark.source.partitions:
        text(partition.origin), _partition_key(partition.key)
    texts = [*mark.source.origins, mark.query, mark.limit, optional(text, mark.source.pattern) or ""]
    for told in texts:
        text(told)
    optional(count, mark.shrunk)
    return mark


def _decided_from_json(found: Json) -> DecidedBatch:
    decided = DecidedBatch.from_json(text(found))
    for committable in decided.committables:
        for partition in committable.ranges:
            text(partition.origin), _partition_key(partition.key)
    for partition, kept in decided.fingerprints.items():
        text(partition.origin), _partition_key(partition.key)
        _fingerprint_from_json([kept.offset, kept.digest, kept.timestamp_milliseconds, kept.leader_epoch])
    for told in (*decided.origin_ids, *decided.origin_ids.values()):
        text(told)
    return decided


def _as_it_is(row: Any) -> Json:
    return row


_PARTITION = (text, _partition_key)

_CODECS: dict[Table, _Codec] = {
    Table.STREAM: _Codec(_stream_to_json, _stream_from_json),
    Table.QUERY: _Codec(QueryMark.to_json, _query_from_json),
    Table.POSITION: _Codec(_stand_to_json, _stand_from_json, _PARTITION),
    Table.RETIRED: _Codec(_stand_to_json, _stand_from_json, _PARTITION),
    Table.STRETCH: _Codec(_as_it_is, count, _PARTITION),
    Table.BATCH: _Codec(_batch_to_json, _batch_from_json, (count,)),
    Table.FAILURE: _Codec(_failure_to_json, _failure_from_json, (count, *_PARTITION, count)),
    Table.COMMITTABLE: _Codec(_as_it_is, text, (count,)),
    Table.REPLAYED: _Codec(_as_it_is, text, (text,)),
    Table.DECIDED: _Codec(DecidedBatch.to_json, _decided_from_json),
    Table.ARCHIVE: _Codec(_as_it_is, count, (count, count)),
}
