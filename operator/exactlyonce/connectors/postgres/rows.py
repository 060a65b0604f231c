"""Between the columns of the ledger's tables and its typed rows. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from exactlyonce.connectors.postgres.keys import partition_from, position_from
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.known_loads import KnownLoads
from exactlyonce.ledger.rows import (
    BatchRow,
    BatchStatus,
    DatabaseIdentity,
    FailureRow,
    FailureStatus,
    LandedPositions,
    LedgerView,
    Owner,
    QueryMark,
    StreamRow,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions, Ranges

STREAM_COLUMNS = (
    "stream_id, token, owner_cluster, owner_uid, system_identifier, database_oid, epoch, ticket, claim, writer, "
    "writer_released, landed_batch, generation, checkpoint_path, stateful, loads"
)
BATCH_COLUMNS = "batch, epoch, status, ranges::text, records_read, rows_written, dead_letters, note, landed_at"
POSITION_COLUMNS = "topic, partition, next_offset, topic_id, fingerprint, partition_name, position::text"

FAILURE_COLUMNS = """
    batch, topic, partition, partition_name,
    coalesce(from_position, from_offset) as first,
    coalesce(until_position, until_offset), status, brokers, error,
    origin_id, fingerprint, life, replay,
    given_up is null, created_at, changed_at
"""
BOUNDED_FAILURE_COLUMNS = """
    batch, left(topic, 2200) as topic, partition, left(partition_name, 2200),
    coalesce(from_position, from_offset) as first,
    coalesce(until_position, until_offset), status, left(brokers, 300), left(error, %s),
    left(origin_id, 300),
    case when length(fingerprint) <= 1000 then fingerprint end,
    left(life, 300), left(replay, 300), given_up is null, created_at, changed_at
"""
"""The same, each no longer than a driver writes it: what is in a tenant's database is as long as the tenant likes."""
IN_ORDER = "order by batch, topic, partition, first"

LOOK = f"""
select {STREAM_COLUMNS},
    (select coalesce(json_agg(json_build_array({POSITION_COLUMNS})), '[]')
     from {{schema}}.offsets o where o.stream_id = s.stream_id and not o.retired),
    (select coalesce(json_agg(json_build_array(batch, epoch, status, ranges::text, records_read, rows_written,
        dead_letters, note, landed_at) order by batch), '[]')
     from {{schema}}.batches b where b.stream_id = s.stream_id and b.batch >= coalesce(s.landed_batch, 0)),
    (select coalesce(json_agg(json_build_array({POSITION_COLUMNS})), '[]')
     from {{schema}}.offsets o where o.stream_id = s.stream_id and o.retired),
    s.query, s.decided
from {{schema}}.streams s where s.stream_id = %s
"""
"""One query, so one snapshot: a stream's row, its positions, its batches from the landed one on, and what it was made of."""

_STREAM_WIDTH = len(STREAM_COLUMNS.split(","))


def stream_from(row: Sequence[Any]) -> StreamRow:
    """Return the stream of a row with STREAM_COLUMNS."""
    return StreamRow(
        stream_id=row[0],
        token=row[1],
        owner=Owner(row[2], row[3]),
        database=DatabaseIdentity(row[4], row[5]),
        epoch=Epoch(row[6]),
        ticket=row[7],
        claim=row[8],
        writer=None if row[9] is None else Epoch(row[9]),
        writer_released=row[10],
        landed_batch=None if row[11] is None else BatchNumber(row[11]),
        generation=row[12],
        checkpoint_path=row[13],
        stateful=row[14],
        loads=KnownLoads.from_json(row[15]),
    )


def stream_values(row: StreamRow) -> tuple[Any, ...]:
    """Return a stream's values in the order of STREAM_COLUMNS."""
    return (
        row.stream_id,
        row.token,
        row.owner.cluster,
        row.owner.uid,
        row.database.system_identifier,
        row.database.database_oid,
        row.epoch,
        row.ticket,
        row.claim,
        row.writer,
        row.writer_released,
        row.landed_batch,
        row.generation,
        row.checkpoint_path,
        row.stateful,
        row.loads.to_json(),
    )


def batch_from(row: Sequence[Any]) -> BatchRow:
    """Return the batch of a row with BATCH_COLUMNS."""
    return BatchRow(
        batch=BatchNumber(row[0]),
        epoch=Epoch(row[1]),
        status=BatchStatus(row[2]),
        ranges=Ranges.from_json(row[3]),
        records_read=row[4],
        rows_written=row[5],
        dead_letters=row[6],
        note=row[7],
        landed_at=datetime.fromisoformat(row[8]) if isinstance(row[8], str) else row[8],
    )


def failure_from(row: Sequence[Any]) -> FailureRow:
    """Return the failed range of a row with FAILURE_COLUMNS."""
    batch, topic, number, name, start, end, status, address, error, origin_id, fingerprint, life, replay, free = row[
        :14
    ]
    failure = FailureRow(
        BatchNumber(batch),
        partition_from(topic, number, name),
        int(start),
        int(end),
        FailureStatus(status),
        address,
        error,
        origin_id=origin_id or "",
        fingerprint=Fingerprint.from_json(fingerprint),
        life=life or "",
        replay=replay or "",
    )
    # What was passed over keeps its stretch of records to itself, unless they are gone with their origin.
    return replace(failure, origin_gone=failure.passed_over and free)


def decided_from(text: str | None) -> DecidedBatch | None:
    """Return the decided batch of its column."""
    return None if text is None else DecidedBatch.from_json(text)


def positions_from(rows: Sequence[Sequence[Any]]) -> LandedPositions:
    """Return the positions of rows with POSITION_COLUMNS."""
    positions: dict[Partition, int] = {}
    fingerprints: dict[Partition, Fingerprint] = {}
    origin_ids: dict[str, str] = {}
    for topic, number, offset, topic_id, text, name, wide in rows:
        key = partition_from(topic, number, name)
        positions[key], origin_ids[key.origin] = position_from(offset, wide), topic_id
        fingerprint = Fingerprint.from_json(text)
        if fingerprint is not None:
            fingerprints[key] = fingerprint
    return LandedPositions(Positions(positions), origin_ids, fingerprints)


def view_from(row: Sequence[Any]) -> LedgerView:
    """Return the view of a row of LOOK."""
    *found, query, decided = row[_STREAM_WIDTH:]
    positions, batches, retired = (json.loads(value) if isinstance(value, str) else value for value in found)
    return LedgerView(
        stream_from(row),
        positions_from(positions),
        tuple(batch_from(batch) for batch in batches),
        positions_from(retired),
        None if query is None else QueryMark.from_json(query),
        decided_from(decided),
    )
