"""The object log, broken on purpose: searched for over worlds whose ledger is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest import mock

from exactlyonce.checkpoint.store import AlreadyExists, Created, CreateOutcome, ObjectStore
from exactlyonce.connectors.object_log import archives, log
from exactlyonce.connectors.object_log.documents import Entry, Snapshot
from exactlyonce.connectors.object_log.fold import Fold
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.connectors.object_log.names import entry_name, snapshot_name
from exactlyonce.connectors.object_log.state import Key, Table
from exactlyonce.connectors.object_log.transaction import LogTransaction
from exactlyonce.errors import LostRace, StoreUnreachable
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import StreamRow
from tests.simulation.objects import MemoryObjects


@contextmanager
def objects_created_without_a_condition() -> Iterator[None]:
    """The object log: an entry is written whether or not its name is free."""

    put = MemoryObjects._put

    def overwrite(self: MemoryObjects, path: str, content: bytes) -> CreateOutcome:
        if not path.endswith(".entry"):
            return put(self, path, content)
        self.objects[path] = content
        self.hooks.changed()
        return Created()

    with mock.patch.object(MemoryObjects, "_put", overwrite):
        yield


@contextmanager
def names_pruned_before_two_snapshots() -> Iterator[None]:
    """The object log: what a snapshot stands for is deleted before a second one is there, and before it is written itself."""

    def prune_first(self: ObjectLog, fold: Fold) -> None:
        folder = f"{self._folder}/{fold.log_id}"
        names = self._names(fold.log_id, "")
        pruned = [*map(snapshot_name, names.snapshots), *map(entry_name, names.entries)]
        self._store.delete([f"{folder}/{name}" for name in pruned])
        snapshot = Snapshot(fold.number, fold.entry_id, fold.state)
        self._store.create(f"{folder}/{snapshot_name(fold.number)}", snapshot.render())

    with mock.patch.object(ObjectLog, "_keep_short", prune_first):
        yield


@contextmanager
def a_fold_misses_the_tail() -> Iterator[None]:
    """The object log: who begins at a snapshot takes it for the end of the log."""
    fold = ObjectLog.fold

    def only_a_snapshot(self: ObjectLog) -> Fold:
        if self._known is not None:
            return fold(self)
        found = self._latest_snapshot()
        if found.number:
            self._known = found
            return found
        return fold(self)

    with mock.patch.object(ObjectLog, "fold", only_a_snapshot):
        yield


@contextmanager
def unknown_creates_taken_for_failed() -> Iterator[None]:
    """The object log: a create without an answer has failed, so the rules are run again under another id."""

    def once(self: ObjectLog, fold: Fold, entry: Entry, content: bytes) -> None:
        path = f"{self._folder}/{fold.log_id}/{entry_name(entry.number)}"
        try:
            outcome = self._store.create(path, content)
        except StoreUnreachable as problem:
            raise LostRace("taken for failed") from problem
        if isinstance(outcome, AlreadyExists):
            raise LostRace("somebody was first")

    with mock.patch.object(ObjectLog, "_create", once):
        yield


@contextmanager
def archives_taken_for_written() -> Iterator[None]:
    """The object log: a snapshot refers to committables that were sent to the store, whether or not it has them."""
    write = archives.write_archive

    def sent(store: ObjectStore, path: str, content: bytes) -> None:
        with suppress(StoreUnreachable):
            write(store, path, content)

    with mock.patch.object(archives, "write_archive", sent):
        yield


@contextmanager
def absent_entries_taken_for_not_landed() -> Iterator[None]:
    """The object log: who looks under the lock writes no entry, while a create may still be under way."""

    def read_only(self: LogTransaction, stream_id: str, lock: Lock) -> StreamRow | None:
        row: StreamRow | None = self._get(Key(Table.STREAM, stream_id))
        return row

    with mock.patch.object(LogTransaction, "lock_stream", read_only):
        yield


@contextmanager
def entries_in_a_gap_are_believed() -> Iterator[None]:
    """The object log: an entry that could be created is in the log, also where its name was free because it was pruned."""

    def believed(self: ObjectLog, fold: Fold, entry: Entry) -> None:
        return None

    with mock.patch.object(log.ObjectLog, "_require_in_log", believed):
        yield
