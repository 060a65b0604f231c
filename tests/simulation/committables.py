"""What becomes visible with a transaction, in the in-memory database: files of batches and of replays, and decided loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.positions.ranges import BatchNumber
from tests.simulation.server import GONE, Key, MemoryDatabase


class MemoryCommittables:
    """The part of a `LedgerTransaction` that is about what a sink shows, or commits, because the ledger says so."""

    database: MemoryDatabase
    writes: dict[Key, Any]
    appended: Counter[Hashable]

    def write_committable(self, stream_id: str, batch: BatchNumber, committable: str) -> None:
        """Record what becomes visible by this transaction."""
        self._step("write committable")
        before = self._get(("committable", stream_id, batch))
        self.writes[("committable", stream_id, batch)] = committable
        self.appended.update(self.database.rows_of(committable))
        if before is not None:
            self.appended.subtract(self.database.rows_of(before))

    def read_committables(self, stream_id: str) -> Mapping[BatchNumber, str]:
        """Return what each batch has made visible."""
        self._step("read committables")
        found = {key[2]: text for key, text in self._rows().items() if key[:2] == ("committable", stream_id)}
        return {batch: text for batch, text in sorted(found.items()) if text is not GONE}

    def write_replayed(self, stream_id: str, name: str, committable: str) -> None:
        """Record what a replay makes visible by this transaction."""
        self._step("write replayed")
        self.writes[("replayed", stream_id, name)] = committable
        self.appended.update(self.database.rows_of(committable))

    def read_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return what no batch has taken over; where no replay has landed, that takes no step."""
        found = {key[2]: text for key, text in self._rows().items() if key[:2] == ("replayed", stream_id)}
        if found:
            self._step("read replayed")
        return {name: text for name, text in sorted(found.items()) if text is not GONE}

    def take_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return the same and forget it; its rows count no more, unless a batch takes them over."""
        found = self.read_replayed(stream_id)
        for name, text in found.items():
            self.writes[("replayed", stream_id, name)] = GONE
            self.appended.subtract(self.database.rows_of(text))
        return found

    def write_decided(self, stream_id: str, decided: DecidedBatch | None) -> None:
        """Record what is to be committed of the stream's decided batch."""
        self._step("write decided")
        self.writes[("decided", stream_id)] = GONE if decided is None else decided

    def read_decided(self, stream_id: str) -> DecidedBatch | None:
        """Return the stream's decided batch."""
        self._step("read decided")
        decided: DecidedBatch | None = self._get(("decided", stream_id))
        return decided

    def _step(self, label: str) -> None:
        raise NotImplementedError

    def _get(self, key: Key) -> Any:
        raise NotImplementedError

    def _rows(self) -> Mapping[Key, Any]:
        raise NotImplementedError
