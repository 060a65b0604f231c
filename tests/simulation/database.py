"""An in-memory database with transactions at READ COMMITTED, row locks, eviction, crashes and restores.

Its transactions carry out the statements of the ledger's port and of the sink's (memory_transaction.py); the rules about them
are the product's own code.
The same behaviour suite runs over it and over Postgres (tests/integration/test_ledger_behaviour.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from exactlyonce.errors import CommitOutcomeUnknown, LedgerUnreachable
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterKey
from exactlyonce.ledger.room import Room
from exactlyonce.ledger.rows import DatabaseIdentity, LedgerView
from tests.simulation.letters import letters_in
from tests.simulation.memory_transaction import MemoryTransaction, landed_in
from tests.simulation.server import Hooks, MemoryDatabase

__all__ = ["Hooks", "MemoryDatabase", "MemoryLedger", "MemoryTransaction"]


def waits_for_disk(database: MemoryDatabase, lasting: bool) -> bool:
    """Whether a commit waits for the disk: as the transaction says, also where the role has synchronous_commit off."""
    return lasting


class MemoryLedger:
    """A `Ledger` for one client of the database."""

    room: ClassVar[Room | None] = None

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database

    def transaction(self, *, evicting: bool = False, lasting: bool = True, dispensable: bool = False) -> _Opened:
        """Open a transaction; see `Ledger.transaction`."""
        return _Opened(self.database, evicting, lasting)

    def view(self, stream_id: str) -> LedgerView | None:
        """Return what is committed of a stream."""
        self.database.hooks.step("view")
        if not self.database.up:
            raise LedgerUnreachable("the database is down")
        rows = self.database.tables.rows
        stream = rows.get(("stream", stream_id))
        if stream is None:
            return None
        first = stream.landed_batch or 0
        batches = [row for key, row in rows.items() if key[0] == "batch" and key[1] == stream_id and row.batch >= first]
        return LedgerView(
            stream,
            landed_in(rows, stream_id),
            tuple(sorted(batches, key=lambda row: row.batch)),
            landed_in(rows, stream_id, "retired"),
            rows.get(("query", stream_id)),
            rows.get(("decided", stream_id)),
        )

    def letters_of(
        self, stream_id: str, keys: Collection[LetterKey], most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """Return the dead letters with these keys; none follows the one that exceeds `most_bytes`."""
        self.database.hooks.step("read dead letters")
        if not self.database.up:
            raise LedgerUnreachable("the database is down")
        chosen, left = [], most_bytes or 0
        for letter in letters_in(self.database.tables.rows, stream_id):
            if letter.row.key in keys and (most_bytes is None or left >= 0):
                left -= letter.value_bytes or 0
                chosen.append(letter)
        return tuple(chosen)

    def database_identity(self) -> DatabaseIdentity:
        """Return which database this is."""
        return self.database.identity

    def identity(self) -> str:
        """Return which ledger this is."""
        return str(self.database.identity)

    def prepare(self) -> None:
        """There is no schema to make."""


class _Opened:
    """A transaction as a block has it. A class, since most of what a run does is in one, and a generator costs more."""

    def __init__(self, database: MemoryDatabase, evicting: bool, lasting: bool) -> None:
        self._database = database
        self._evicting, self._lasting = evicting, lasting

    def __enter__(self) -> MemoryTransaction:
        database = self._database
        database.hooks.step("begin")
        lasting = waits_for_disk(database, self._lasting)
        self._transaction = MemoryTransaction(database, self._evicting, lasting)
        database.begin(self._transaction)
        return self._transaction

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        if kind is None:
            self._commit()
        else:
            self._database.end(self._transaction, apply=False)

    def _commit(self) -> None:
        database, transaction = self._database, self._transaction
        try:
            database.hooks.step("commit")
        except BaseException:
            database.end(transaction, apply=False)
            raise
        fate = database.hooks.commit_fate()
        if transaction.terminated:
            raise CommitOutcomeUnknown("the session was ended during COMMIT")
        if fate == "pending":
            database.pending.append(transaction)
            raise CommitOutcomeUnknown("the connection was lost during COMMIT")
        database.end(transaction, apply=fate != "lost")
        if fate != "answered":
            raise CommitOutcomeUnknown("the connection was lost during COMMIT")
        database.hooks.step("committed")
