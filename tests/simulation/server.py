"""The server of the in-memory database: what is committed, who holds which lock, and what a crash takes away."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exactlyonce.errors import LedgerUnreachable
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import DatabaseIdentity
from tests.simulation import keyed
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.memory_transaction import MemoryTransaction

Key = tuple[Any, ...]

GONE = object()

MOST_COMMITS_LOST = 4
"""How many of the latest transactions a failover to an asynchronous standby loses at most."""


@dataclass
class Tables:
    """What is committed. Values are immutable, so a shallow copy is a snapshot.

    A commit replaces what it changes by a copy, so that earlier states may be kept as they are: most commits change a few rows
    and none of the records.

    Each row that is written takes effect twice: `target` counts it, as Append has it, and `by_key` has what Upsert or
    Merge make of it.
    """

    rows: dict[Key, Any] = field(default_factory=dict)
    target: Counter[Hashable] = field(default_factory=Counter)
    by_key: dict[Hashable, Hashable] = field(default_factory=dict)

    def copy(self) -> Tables:
        """Return a snapshot."""
        return Tables(dict(self.rows), self.target.copy(), dict(self.by_key))

    def after(self, writes: dict[Key, Any], appended: Counter[Hashable], how: keyed.HowKeyed) -> Tables:
        """Return the tables after a commit, which share with these what it has not changed."""
        rows, target, by_key = self.rows, self.target, self.by_key
        if writes:
            rows = {**rows, **writes}
            for key, value in writes.items():
                if value is GONE:
                    del rows[key]
        if appended:
            target, by_key = target.copy(), by_key.copy()
            target.update(appended)
            for row in appended.elements():
                keyed.write(by_key, row, how)
        return Tables(rows, target, by_key)


@dataclass
class Hooks:
    """How the database meets the scheduler; the defaults let it be used alone, without waiting for anything."""

    step: Callable[[str], None] = lambda label: None
    wait: Callable[[str, Callable[[], bool]], None] = lambda label, may_go: None
    commit_fate: Callable[[], str] = lambda: "answered"
    running: Callable[[], Process | None] = lambda: None
    evicted: Callable[[AbstractSet[Process | None]], None] = lambda involved: None


class MemoryDatabase:
    """The server: committed tables, locks, open transactions, unlogged staging. `version` counts changes of the tables.

    `synchronous_commit` is what the role has: a commit waits for the disk by itself only where it is on.
    """

    def __init__(self, hooks: Hooks | None = None) -> None:
        self.hooks = hooks or Hooks()
        self.rows_of: Callable[[str], Sequence[Hashable]] = lambda committable: ()
        self.tables = Tables()
        self.version = 0
        self.staging: list[tuple[Any, int, int, Hashable]] = []
        self.identity = DatabaseIdentity("7000000000000000001", 5)
        self.up = True
        self.synchronous_commit = True
        self.how_keyed = keyed.HowKeyed.OVERWRITES
        self._locks: dict[Key, dict[MemoryTransaction, Lock]] = {}
        self._open: list[MemoryTransaction] = []
        self._undo_unflushed: list[Tables] = []
        self.pending: list[MemoryTransaction] = []
        self.on_commit: Callable[[], None] = lambda: None
        self._latest: deque[Tables] = deque(maxlen=MOST_COMMITS_LOST)

    def can_lock(self, resource: Key, lock: Lock, who: MemoryTransaction) -> bool:
        """Whether nobody else holds the resource in a way that excludes this lock."""
        others = [held for holder, held in self._locks.get(resource, {}).items() if holder is not who]
        return not others if lock is Lock.UPDATE else Lock.UPDATE not in others

    def holders(self, resource: Key, who: MemoryTransaction) -> list[MemoryTransaction]:
        """Who else holds the resource."""
        return [holder for holder in self._locks.get(resource, {}) if holder is not who]

    def take_lock(self, resource: Key, lock: Lock, who: MemoryTransaction) -> None:
        """Give the lock; a held UPDATE stays one."""
        held = self._locks.setdefault(resource, {})
        held[who] = Lock.UPDATE if held.get(who) is Lock.UPDATE else lock

    def begin(self, transaction: MemoryTransaction) -> None:
        """Open a transaction."""
        if not self.up:
            raise LedgerUnreachable("the database is down")
        self._open.append(transaction)

    def end(self, transaction: MemoryTransaction, *, apply: bool) -> None:
        """Close a transaction: commit its changes or forget them; its locks are free."""
        if transaction.closed:
            return
        transaction.closed = True
        if apply:
            self._latest.append(self.tables)
            if transaction.lasting:
                self._undo_unflushed.clear()
            else:
                self._undo_unflushed.append(self.tables)
            self.tables = self.tables.after(transaction.writes, transaction.appended, self.how_keyed)
            self.version += 1
            self.on_commit()
        self._open.remove(transaction)
        for held in self._locks.values():
            if transaction in held:
                del held[transaction]

    def terminate(self, transaction: MemoryTransaction) -> None:
        """End a session from the server's side, as pg_terminate_backend does."""
        transaction.terminated = True
        if transaction in self.pending:
            self.pending.remove(transaction)
        self.end(transaction, apply=False)

    def settle_pending(self, transaction: MemoryTransaction, *, apply: bool) -> None:
        """Finish a COMMIT whose client has long lost its connection."""
        self.pending.remove(transaction)
        self.end(transaction, apply=apply)

    def crash(self) -> None:
        """A crash of the server: sessions end, unlogged tables are empty, commits that did not wait for the disk go.

        Nothing that a client can ask tells of it: when a backend dies, the postmaster stays and only re-initialises.
        """
        for transaction in list(self._open):
            self.terminate(transaction)
        self.staging.clear()
        self.version += 1
        if self._undo_unflushed:
            self.tables = self._undo_unflushed[0]
            self._undo_unflushed.clear()

    def restore(self, backup: Tables) -> None:
        """Put back an earlier state of everything."""
        self.crash()
        self.tables = backup
        self._latest.clear()

    def lose_rows(self) -> None:
        """Drop the ledger's rows, on every standby too: no failover brings them back."""
        self.tables = Tables({}, self.tables.target, self.tables.by_key)
        self._latest.clear()

    def fail_over(self, lost: int) -> None:
        """Promote a standby that has not received the latest transactions, so many at most."""
        states = [*self._latest, self.tables]
        self.restore(states[-1 - min(lost, len(states) - 1)])
