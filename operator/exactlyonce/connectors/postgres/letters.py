"""Dead letters, what replays have landed, and from where a stream has read again, inside one Postgres transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from exactlyonce.connectors.postgres import bounded_reads
from exactlyonce.connectors.postgres.keys import partition_columns, partition_from
from exactlyonce.connectors.postgres.occupants import occupant_of
from exactlyonce.connectors.postgres.statements import Statements
from exactlyonce.ledger.backfills import Backfill, Occupant, parts_from_json
from exactlyonce.ledger.history import RecordedBackfill
from exactlyonce.ledger.letters import LetterKey, LetterRow, LetterStatus, SetBack
from exactlyonce.positions.ranges import BatchNumber, Epoch

LETTER_COLUMNS = "topic, topic_id, partition, record_offset, partition_name, coalesce(position, record_offset), batch"
STATE_COLUMNS = "status, replay, life"

_READ = f"""
select {LETTER_COLUMNS}, error, {STATE_COLUMNS} from {{schema}}.dead_letters
where (stream_id, topic, topic_id, partition, record_offset) in (values %s)
"""
_WRITE = """
update {schema}.dead_letters l set status = v.status, replay = v.replay, error = v.error from (values %s)
as v(stream_id, topic, topic_id, partition, record_offset, batch, status, replay, error)
where (l.stream_id, l.topic, l.topic_id, l.partition, l.record_offset, l.batch)
    = (v.stream_id, v.topic, v.topic_id, v.partition, v.record_offset, v.batch) returning 1
"""
BACKFILLS = """
select name, into_sink, definition, parts, created_at, changed_at from {schema}.backfills where stream_id = %s
order by created_at, name
"""
_BACKFILL = """
insert into {schema}.backfills (stream_id, name, into_sink, definition, parts) values (%s, %s, %s, %s, %s)
on conflict (stream_id, name) do update set parts = excluded.parts, changed_at = now()
"""
_SET_BACK = """
insert into {schema}.set_backs as s (stream_id, topic, partition, partition_name, position, origin_id, batch) values %s
on conflict (stream_id, topic, partition, origin_id, batch) do update set position = least(s.position, excluded.position)
returning 1
"""


class LetterStatements(Statements):
    """What is said of malformed records, and for replays."""

    def read_letters(self, stream_id: str, keys: Collection[LetterKey]) -> tuple[LetterRow, ...]:
        """Return the dead letters with these keys."""
        rows = self._values(_READ, [(stream_id, *key) for key in keys], "(%s, %s, %s, %s::integer, %s::bigint)")
        return tuple(letter_from(row) for row in rows)

    def write_letters(self, stream_id: str, rows: tuple[LetterRow, ...]) -> None:
        """Write status, replay and error of dead letters."""
        self._values(
            _WRITE,
            [
                (
                    *(stream_id, *row.key, row.batch),
                    None if row.status is LetterStatus.KEPT else str(row.status),
                    row.replay or None,
                    row.error,
                )
                for row in rows
            ],
            "(%s, %s, %s, %s::integer, %s::bigint, %s::bigint, %s::text, %s::text, %s)",
        )

    def write_sink(self, stream_id: str, epoch: Epoch, sink: str) -> None:
        """Record into what the process of an epoch lands."""
        self._count(
            "update {schema}.streams set sink = %s, sink_epoch = %s where stream_id = %s", sink, epoch, stream_id
        )

    def read_sink(self, stream_id: str) -> str | None:
        """Return what the latest claim has recorded; one of a sink that takes no replays records nothing."""
        rows = self._rows("select sink from {schema}.streams where stream_id = %s and sink_epoch = writer", stream_id)
        return rows[0][0] if rows else None

    def read_backfill(self, stream_id: str, name: str) -> Backfill | None:
        """Return a backfill."""
        found = self._rows(
            "select into_sink, definition, parts from {schema}.backfills where (stream_id, name) = (%s, %s)",
            stream_id,
            name,
        )
        return None if not found else Backfill(name, found[0][0], found[0][1], parts_from_json(found[0][2]))

    def occupant_of(self, place: str, stream_id: str, own: str) -> Occupant | None:
        """Return whose table rows reach that land into `place`."""
        return occupant_of(self, self._ledger.schema, place, stream_id, own)

    def write_backfill(self, stream_id: str, backfill: Backfill) -> None:
        """Insert or replace a backfill."""
        self._count(_BACKFILL, stream_id, backfill.name, backfill.into, backfill.definition, backfill.to_json())

    def write_replayed(self, stream_id: str, name: str, committable: str) -> None:
        """Record what a replay makes visible."""
        self._count(
            "insert into {schema}.replayed (stream_id, name, committable) values (%s, %s, %s) "
            "on conflict (stream_id, name) do update set committable = excluded.committable",
            stream_id,
            name,
            committable,
        )

    def read_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return what no batch has taken over."""
        found = self._rows(
            "select name, committable from {schema}.replayed where stream_id = %s order by name", stream_id
        )
        return dict(found)

    def take_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return the same and forget it."""
        found = self.read_replayed(stream_id)
        if found:
            names = list(found)
            self._count("delete from {schema}.replayed where stream_id = %s and name = any(%s)", stream_id, names)
        return found

    def read_set_backs(self, stream_id: str) -> tuple[SetBack, ...]:
        """Return from where the stream has read again."""
        most_bytes = bounded_reads.MOST_BYTES
        rows = self._rows(bounded_reads.SET_BACKS, stream_id, most_bytes)
        return tuple(set_back_from(row) for row in bounded_reads.within(rows, f"The resets of {stream_id}", most_bytes))

    def write_set_backs(self, stream_id: str, set_backs: tuple[SetBack, ...]) -> None:
        """Record from where the stream reads again."""
        rows = [
            (stream_id, topic, number, name, it.position, it.origin_id, it.batch)
            for it in set_backs
            for topic, number, name in [partition_columns(it.partition)]
        ]
        self._values(_SET_BACK, rows, "(%s, %s, %s, %s::text, %s::numeric, %s, %s)")


def letter_from(row: Sequence[Any]) -> LetterRow:
    """Return the letter of a row with LETTER_COLUMNS, its error, and STATE_COLUMNS."""
    topic, topic_id, number, offset, name, position, batch, error, status, replay, life = row
    return LetterRow(
        (topic, topic_id, number, offset),
        partition_from(topic, number, name),
        int(position),
        topic_id,
        BatchNumber(batch),
        error,
        life,
        LetterStatus.KEPT if status is None else LetterStatus(status),
        replay or "",
    )


def set_back_from(row: Sequence[Any]) -> SetBack:
    """Return the setting back of a row of SET_BACKS."""
    topic, number, name, position, origin_id, batch = row
    return SetBack(partition_from(topic, number, name), int(position), origin_id, BatchNumber(batch))


def recorded_backfill(row: Sequence[Any]) -> RecordedBackfill:
    """Return what a row of BACKFILLS says."""
    name, into, definition, parts, began_at, changed_at = row
    return RecordedBackfill(Backfill(name, into, definition, parts_from_json(parts)), began_at, changed_at)
