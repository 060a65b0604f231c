"""Dead letters in the in-memory database: what their table says, without which statements of the ledger ask for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterKey, LetterRow, SetBack, status_of
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import DeadLetter
from tests.simulation.server import GONE, Key


class MemoryLetters:
    """The part of a `LedgerTransaction` that is about dead letters."""

    writes: dict[Key, Any]

    def read_letters(self, stream_id: str, keys: Collection[LetterKey]) -> tuple[LetterRow, ...]:
        """Return the dead letters with these keys."""
        self._step("read letters")
        found = (self._get(("letter", stream_id, key)) for key in keys)
        return tuple(row for row in found if row is not None)

    def write_letters(self, stream_id: str, rows: tuple[LetterRow, ...]) -> None:
        """Write what became of letters that are there."""
        self._step("write letters")
        for row in rows:
            key = ("letter", stream_id, row.key)
            found = self._get(key)
            if found is not None and found.batch == row.batch:
                self.writes[key] = replace(found, status=row.status, replay=row.replay, error=row.error)

    def read_set_backs(self, stream_id: str) -> tuple[SetBack, ...]:
        """Return from where the stream has read again."""
        self._step("read set-backs")
        return set_backs_in(self._rows(), stream_id)

    def write_set_backs(self, stream_id: str, set_backs: tuple[SetBack, ...]) -> None:
        """Record from where the stream reads again."""
        if set_backs:
            self._step("write set-backs")
        for it in set_backs:
            key = ("set-back", stream_id, it.partition, it.origin_id, it.batch)
            before = self._get(key)
            self.writes[key] = it if before is None else replace(it, position=min(it.position, before.position))

    def keep_letters(
        self, stream_id: str, batch: BatchNumber, letters: Sequence[DeadLetter], origin_ids: Mapping[str, str]
    ) -> None:
        """Keep malformed records, as the sink does; one that is there is replaced."""
        stream = self._get(("stream", stream_id))
        for letter in letters:
            origin_id = origin_ids.get(letter.partition.origin, "")
            key = (letter.partition.origin, origin_id, int(letter.partition.key), letter.offset)
            row = LetterRow(key, letter.partition, letter.offset, origin_id, batch, letter.error, stream.life)
            self.writes[("letter", stream_id, key)] = row
            self.writes[("letter's value", stream_id, key)] = letter.value

    def _step(self, label: str) -> None:
        raise NotImplementedError

    def _get(self, key: Key) -> Any:
        raise NotImplementedError

    def _rows(self) -> Mapping[Key, Any]:
        raise NotImplementedError


def set_backs_in(rows: Mapping[Key, Any], stream_id: str) -> tuple[SetBack, ...]:
    """Return from where a stream has read again, as the tables have it."""
    return tuple(row for key, row in rows.items() if key[:2] == ("set-back", stream_id) and row is not GONE)


def letters_in(rows: Mapping[Key, Any], stream_id: str) -> tuple[RecordedLetter, ...]:
    """Return the dead letters of a stream with what became of them, as the tables have it."""
    set_backs = set_backs_in(rows, stream_id)
    found = [row for key, row in rows.items() if key[:2] == ("letter", stream_id)]
    return tuple(
        RecordedLetter(
            row, status_of(row, set_backs), None, None, value, datetime(2026, 1, 1, tzinfo=UTC), None, len(value)
        )
        for row in sorted(found, key=lambda row: row.key)
        for value in [rows["letter's value", stream_id, row.key]]
    )
