"""A sink whose rows are committed to a table's log, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta import target as product
from exactlyonce_spark.connectors.delta.manifest import TableManifest
from exactlyonce_spark.connectors.delta.table import TableSeen, unpublished
from exactlyonce_spark.connectors.delta.target import DeltaTarget
from exactlyonce_spark.target import Prepared
from tests.simulation.table import MemoryTableLog


@contextmanager
def committed_before_the_ledger_knows() -> Iterator[None]:
    """Tables: a batch is committed to the table once its files are written, not once the ledger has recorded them."""
    prepare = DeltaTarget.prepare

    def committed_at_once(self: DeltaTarget, batch: BatchNumber, rows: Any) -> Prepared:
        prepared = prepare(self, batch, rows)
        self.publish(batch, prepared.committable)
        return prepared

    with mock.patch.object(DeltaTarget, "prepare", committed_at_once):
        yield


@contextmanager
def committed_without_an_identifier() -> Iterator[None]:
    """Tables: a commit has no transaction of the stream, so the log's conflict check lets another one of the batch pass."""
    with mock.patch.object(MemoryTableLog, "conflicts", staticmethod(lambda other, version: other.removes)):
        yield


@contextmanager
def the_tables_number_is_not_asked_for() -> Iterator[None]:
    """Tables: a driver commits what it has landed, whatever number the table has by then."""
    same_table = DeltaTarget._same_table

    def as_it_was(self: DeltaTarget, manifest: TableManifest) -> TableSeen:
        seen = same_table(self, manifest)
        return TableSeen(seen.id, seen.version, self._number, seen.columns, seen.partition_by)

    with mock.patch.object(DeltaTarget, "_same_table", as_it_was):
        yield


@contextmanager
def what_was_not_committed_stays_so() -> Iterator[None]:
    """Tables: a driver does not commit what its predecessor landed and died before committing."""
    with mock.patch.object(
        product, "unpublished", lambda seen, landed, where, words: (None, unpublished(seen, landed, where, words)[1])
    ):
        yield


@contextmanager
def a_ledger_behind_its_table_continues() -> Iterator[None]:
    """Tables: a ledger that was restored to an earlier state lands again what the table has."""
    with mock.patch.object(product, "unpublished", lambda seen, landed, where, words: (None, seen.number)):
        yield
