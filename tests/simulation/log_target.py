"""A sink of files that the ledger's entry makes visible: tasks write them, and nobody reads what no entry names."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence

from exactlyonce.connectors.object_log.transaction import LogTransaction
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import DeadLetter, Moved, Staged
from tests.simulation.log_database import LogDatabase
from tests.simulation.resource import STREAM_ID


class LogTarget:
    """A `Target` of the kind Manifest."""

    def __init__(self, database: LogDatabase, epoch: int) -> None:
        self._database = database
        self._epoch = epoch
        self._named: dict[BatchNumber, str] = {}

    def stage(self, batch: BatchNumber, tag: int, rows: Sequence[Hashable]) -> int:
        """Write a file; it is there once this returns."""
        self._database.hooks.step("write file")
        self._database.files[self._name(batch, tag)] = tuple(rows)
        self._database.hooks.step("file written")
        return len(rows)

    def move_staged(self, transaction: LogTransaction, batch: BatchNumber, staged: Sequence[Staged]) -> Moved:
        """Have this very entry name the files that successful tasks wrote."""
        names = [self._name(batch, part.tag) for part in staged]
        there = [name for name in names if name in self._database.files]
        self._named[batch] = json.dumps(there)
        transaction.write_committable(STREAM_ID, batch, self._named[batch])
        count = sum(len(self._database.files[name]) for name in there)
        return Moved(count, count)

    def write(self, transaction: LogTransaction, rows: Sequence[Hashable]) -> int:
        """Land a batch without records; the driver writes no files here."""
        assert not rows
        return 0

    def require_lasting(self, transaction: LogTransaction) -> None:
        """A file that was written stays."""

    def write_dead_letters(
        self,
        transaction: LogTransaction,
        batch: BatchNumber,
        letters: Sequence[DeadLetter],
        topic_ids: Mapping[str, str],
    ) -> int:
        """The simulation's records are all well-formed."""
        assert not letters
        return 0

    def clear_staging(self, batch: BatchNumber) -> None:
        """The batch has landed: tell the readers its files. What failed tasks have written stays, and nobody sees it."""
        self._database.hooks.step("publish files")
        self._database.publish(batch, self._named[batch])

    def _name(self, batch: BatchNumber, tag: int) -> str:
        return f"{self._epoch}-{batch}-{tag}"
