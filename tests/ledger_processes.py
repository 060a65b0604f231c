"""Processes that use a ledger beside the test's own."""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchRow


@contextmanager
def process(work: Callable[..., None], *arguments: object) -> Iterator[tuple[BaseProcess, Connection]]:
    """Run `work(connection, *arguments)` in a process of its own, killed at the end of the block if it still runs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(theirs, *arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        yield child, ours
    finally:
        child.kill()
        child.join(30)


def prepare_together(connection: Connection, parameters: Mapping[str, str], limits: Limits) -> None:
    """Say that this process is ready, and on the word make the ledger's schema; tell what came of it."""
    ledger = PostgresLedger(PostgresAddress.from_secret("warehouse", parameters), limits=limits)
    connection.send("ready")
    connection.recv()
    try:
        ledger.prepare()
    except Exception as problem:  # whatever it is, the test shows it
        connection.send(repr(problem))
    else:
        connection.send("prepared")


def hold_the_stream(
    connection: Connection, parameters: Mapping[str, str], limits: Limits, permit: Permit, row: BatchRow, copying: bool
) -> None:
    """Hold the stream's row shared as a task does, say so, and on the word continue to land; tell what came of it.

    With `copying` the word is awaited in the middle of a COPY, as a task that freezes there does.
    """
    ledger = PostgresLedger(PostgresAddress.from_secret("warehouse", parameters), limits=limits)

    def land() -> None:
        with ledger.transaction() as transaction:
            fence(transaction, permit, Lock.SHARE)
            with transaction.cursor() as cursor:
                if copying:
                    cursor.copy_expert("copy target from stdin", _Halfway(connection))
                else:
                    connection.send("holding")
                    connection.recv()
                    cursor.execute("insert into target values (1)")
            transaction.write_batch(permit.stream_id, row)

    try:
        land()
    except ExactlyOnceError as problem:
        connection.send(type(problem).__name__)
    else:
        connection.send("landed")


class _Halfway(io.BytesIO):
    """Rows to copy: one, then a pause until the word is given, then another."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._parts = [b"1\n", b"2\n", b""]

    def read(self, _size: int | None = -1, /) -> bytes:
        part = self._parts.pop(0)
        if part == b"2\n":
            self._connection.send("holding")
            self._connection.recv()
        return part
