"""The sink's table in the in-memory database: rows are ids, counted as often as they were written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import DeadLetter, Moved, Staged
from tests.simulation.database import MemoryDatabase, MemoryTransaction
from tests.simulation.resource import STREAM_ID


class MemoryTarget:
    """A `Target`: rows are hashable ids, counted as often as they were written."""

    def __init__(self, database: MemoryDatabase, epoch: int, copied: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._epoch = epoch
        self._copied = copied

    def stage(self, batch: BatchNumber, tag: int, rows: Sequence[Hashable]) -> int:
        """Stage rows; they are there once this returns."""
        self._database.hooks.step("stage rows")
        staged = [(self._epoch, batch, tag, row) for row in rows]
        self._database.staging.extend(staged)
        self._database.hooks.step("rows staged")
        return len(staged)

    def move_staged(self, transaction: MemoryTransaction, batch: BatchNumber, staged: Sequence[Staged]) -> Moved:
        """Move what successful tasks staged."""
        tags = {part.tag for part in staged}
        found = [
            row for epoch, number, tag, row in self._database.staging
            if epoch == self._epoch and number == batch and tag in tags
        ]  # fmt: skip
        count = transaction.append(found)
        return Moved(count, count)

    def write(self, transaction: MemoryTransaction, rows: Sequence[Hashable]) -> int:
        """Write rows."""
        count = transaction.append(list(rows))
        self._copied()
        return count

    def require_lasting(self, transaction: MemoryTransaction) -> None:
        """The model's table is a permanent one."""

    def write_dead_letters(
        self,
        transaction: MemoryTransaction,
        batch: BatchNumber,
        letters: Sequence[DeadLetter],
        origin_ids: Mapping[str, str],
    ) -> int:
        """Keep malformed records in the ledger's table of them."""
        transaction.keep_letters(STREAM_ID, batch, letters, origin_ids)
        return len(letters)

    def clear_staging(self, batch: BatchNumber) -> None:
        """Forget what was staged for a batch."""
        self._database.hooks.step("clear staging")
        kept = [row for row in self._database.staging if row[0] != self._epoch or row[1] != batch]
        self._database.staging[:] = kept
