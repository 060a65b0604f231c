"""What replays have made visible, in a log: rows of their own until the next batch takes them over. Performs no I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from exactlyonce.connectors.object_log.state import Key, Rows, Table


class ReplayedRows(ABC):
    """The part of a `LedgerTransaction` that is about what a replay landed and no batch has taken over."""

    _changes: dict[Key, Any]

    @abstractmethod
    def _rows(self, table: Table, stream_id: str) -> Rows:
        """Return the rows of a table as this transaction sees them."""

    def write_replayed(self, stream_id: str, name: str, committable: str) -> None:
        """Record what a replay makes visible with this very entry."""
        self._changes[Key(Table.REPLAYED, stream_id, (name,))] = committable

    def read_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return what no batch has taken over."""
        return {cast("str", rest[0]): text for rest, text in sorted(self._rows(Table.REPLAYED, stream_id).items())}

    def take_replayed(self, stream_id: str) -> Mapping[str, str]:
        """Return the same and forget it."""
        found = self.read_replayed(stream_id)
        self._changes.update(dict.fromkeys(Key(Table.REPLAYED, stream_id, (name,)) for name in found))
        return found
