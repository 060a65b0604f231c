"""What the ledger keeps, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.simulation import database, server


@contextmanager
def retention_takes_what_a_decision_needs() -> Iterator[None]:
    """Of the ledger's batches those are deleted, too, that the next decision compares Spark's logs with."""

    def delete_all(self: Any, stream_id: str, excess: Any, fewest: int, most: int) -> int:
        rows = self.read_batches_after(stream_id, None)
        self.writes.update({("batch", stream_id, row.batch): server.GONE for row in rows})
        return len(rows)

    with mock.patch.object(database.MemoryTransaction, "delete_batches", delete_all):
        yield
