"""Between the rows of a state and JSON, in groups. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from exactlyonce.connectors.object_log.groups import Codec, Head, Json, Rest, alone, place_of, text_at
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


def changes_to_json(changes: Changes) -> Json:
    """Return changes as JSON, in the order of their keys; equal changes give equal JSON."""
    texts: dict[str, int] = {}
    groups: dict[tuple[Table, str, Head | None], list[Json]] = {}
    for key in sorted(changes, key=lambda key: (key.table, key.stream_id, repr(key.rest))):
        head, item = None, list(key.rest)
        if changes[key] is not None:
            head, item = _CODECS[key.table].encode(key.rest, changes[key], texts)
        groups.setdefault((key.table, key.stream_id, head), []).append(item)
    told = [[*place, None if head is None else list(head), found] for (*place, head), found in groups.items()]
    return {"groups": told, "texts": list(texts)}


def changes_from_json(found: Json) -> dict[Key, Any]:
    """Return the changes that `changes_to_json` rendered.

    Raises:
        ValueError, KeyError: if the JSON is anything else.
    """
    changes: dict[Key, Any] = {}
    document = fields(found)
    texts = [text(one) for one in items(document["texts"])]
    for group in items(document["groups"]):
        table, stream_id, head, rows = items(group, 4)
        codec = _CODECS[Table(text(table))]
        for item in items(rows):
            if head is None:
                rest, row = tuple(read(it) for read, it in zip(codec.known_by, items(item), strict=True)), None
            else:
                rest, row = codec.decode(items(head), items(item), texts)
            changes[Key(Table(table), text(stream_id), rest)] = row
    return changes


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


def _stand_to_item(rest: Rest, stand: Stand, _texts: dict[str, int]) -> tuple[Head, list[Json]]:
    origin, key = rest
    return (origin, stand.origin_id), [key, stand.offset, *_marks(stand.fingerprint)]


def _stand_from_item(head: Sequence[Json], item: Sequence[Json], _texts: Sequence[str]) -> tuple[Rest, Stand]:
    origin, origin_id = items(head, 2)
    key, offset, *marks = item
    return (text(origin), _partition_key(key)), Stand(count(offset), text(origin_id), _fingerprint_of(marks))


def _stretch_to_item(rest: Rest, times: int, _texts: dict[str, int]) -> tuple[Head, list[Json]]:
    return rest[:1], [rest[1], times]


def _stretch_from_item(head: Sequence[Json], item: Sequence[Json], _texts: Sequence[str]) -> tuple[Rest, int]:
    (origin,), (key, times) = items(head, 1), items(item, 2)
    return (text(origin), _partition_key(key)), count(times)


def _marks(kept: Fingerprint | None) -> list[Json]:
    """Return what is behind an item for its fingerprint, if it has one."""
    return [] if kept is None else [kept.offset, kept.digest, kept.timestamp_milliseconds, kept.leader_epoch]


def _fingerprint_of(marks: Sequence[Json]) -> Fingerprint | None:
    if not marks:
        return None
    offset, digest, timestamp, leader_epoch = marks
    return Fingerprint(
        count(offset), text(digest), optional(whole_number, timestamp), optional(whole_number, leader_epoch)
    )


def _batch_to_item(_rest: Rest, kept: StoredBatch, texts: dict[str, int]) -> tuple[Head, list[Json]]:
    row = kept.row
    return (), [
        row.batch,
        row.epoch,
        str(row.status),
        json.loads(row.ranges.to_json()),
        row.records_read,
        row.rows_written,
        row.dead_letters,
        place_of(row.note, texts),
        _shown(row.landed_at),
        _shown(kept.created_at),
    ]


def _batch_from_item(head: Sequence[Json], item: Sequence[Json], texts: Sequence[str]) -> tuple[Rest, StoredBatch]:
    items(head, 0)
    batch, epoch, status, ranges, read, written, letters, note, landed_at, created_at = item
    row = BatchRow(
        batch=BatchNumber(count(batch)),
        epoch=Epoch(count(epoch)),
        status=BatchStatus(text(status)),
        ranges=Ranges.from_json(json.dumps(ranges)),
        records_read=optional(count, read),
        rows_written=optional(count, written),
        dead_letters=optional(count, letters),
        note=text_at(note, texts),
        landed_at=optional(moment, landed_at),
    )
    return (row.batch,), StoredBatch(row, moment(created_at))


def _failure_to_item(_rest: Rest, kept: StoredFailure, texts: dict[str, int]) -> tuple[Head, list[Json]]:
    row = kept.row
    head = (
        row.batch,
        row.partition.origin,
        row.origin_id,
        row.origin_gone,
        str(row.status),
        place_of(row.address, texts),
        row.life,
        row.replay,
        kept.stretch,
        _shown(kept.changed_at),
        _shown(kept.held_since),
    )
    where = [row.partition.key, row.from_offset, row.until_offset]
    return head, [*where, place_of(row.error, texts), *_marks(row.fingerprint)]


def _failure_from_item(head: Sequence[Json], item: Sequence[Json], texts: Sequence[str]) -> tuple[Rest, StoredFailure]:
    batch, origin, origin_id, gone, status, address, life, replay, stretch, changed_at, held_since = head
    key, begin, end, error, *marks = item
    row = FailureRow(
        batch=BatchNumber(count(batch)),
        partition=Partition(text(origin), _partition_key(key)),
        from_offset=count(begin),
        until_offset=count(end),
        status=FailureStatus(text(status)),
        address=text_at(address, texts),
        error=text_at(error, texts),
        origin_gone=truth(gone),
        origin_id=text(origin_id),
        fingerprint=_fingerprint_of(marks),
        life=text(life),
        replay=text(replay),
    )
    rest = (row.batch, row.partition.origin, row.partition.key, row.from_offset)
    return rest, StoredFailure(row, moment(changed_at), optional(count, stretch), optional(moment, held_since))


def _shown(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


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
        _fingerprint_of(_marks(kept))
    for told in (*decided.origin_ids, *decided.origin_ids.values()):
        text(told)
    return decided


def _as_it_is(row: Any) -> Json:
    return row


_PARTITION = (text, _partition_key)
_STANDS = Codec(_stand_to_item, _stand_from_item, _PARTITION)

_CODECS: dict[Table, Codec] = {
    Table.STREAM: alone(_stream_to_json, _stream_from_json),
    Table.QUERY: alone(QueryMark.to_json, _query_from_json),
    Table.POSITION: _STANDS,
    Table.RETIRED: _STANDS,
    Table.STRETCH: Codec(_stretch_to_item, _stretch_from_item, _PARTITION),
    Table.BATCH: Codec(_batch_to_item, _batch_from_item, (count,)),
    Table.FAILURE: Codec(_failure_to_item, _failure_from_item, (count, *_PARTITION, count)),
    Table.COMMITTABLE: alone(_as_it_is, text, count),
    Table.REPLAYED: alone(_as_it_is, text, text),
    Table.DECIDED: alone(DecidedBatch.to_json, _decided_from_json),
    Table.ARCHIVE: alone(_as_it_is, count, count, count),
}
