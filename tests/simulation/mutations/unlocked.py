"""An act of the ledger that runs without the stream's lock, for mutations of whoever changes ranges beside a driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

from greenlet import getcurrent, greenlet

from exactlyonce.ledger.port import Lock
from tests.simulation.database import MemoryTransaction


@contextmanager
def unlocked(module: ModuleType, name: str) -> Iterator[None]:
    """Have a function of a module read the stream's row where it would lock it; everybody else locks it as before."""
    lock_stream, change = MemoryTransaction.lock_stream, getattr(module, name)
    changing: set[greenlet] = set()

    def row_of(transaction: MemoryTransaction, stream_id: str, lock: Lock) -> Any:
        if getcurrent() in changing:
            return transaction._get(("stream", stream_id))
        return lock_stream(transaction, stream_id, lock)

    def without_lock(*arguments: Any) -> Any:
        # Not a patch for as long as this takes: two processes would undo theirs in another order, and one would stay.
        changing.add(getcurrent())
        try:
            return change(*arguments)
        finally:
            changing.discard(getcurrent())

    with (
        mock.patch.object(MemoryTransaction, "lock_stream", row_of),
        mock.patch.object(module, name, without_lock),
    ):
        yield
