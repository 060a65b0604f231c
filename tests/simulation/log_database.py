"""What the oracle reads of a world whose ledger is an object log: the rows and the records that a reader of the log sees.

It folds the objects with code of its own, after each of them came or went. Where the product thinks that a log stands is
no part of it; the rows alone are read with the product's codec, which has tests of its own.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from exactlyonce.connectors.object_log.rows import changes_from_json
from exactlyonce.connectors.object_log.state import Key, Table
from exactlyonce.positions.ranges import Partition
from tests.simulation import keyed
from tests.simulation.objects import MemoryObjects, ObjectHooks
from tests.simulation.server import Hooks, MemoryDatabase
from tests.simulation.server import Key as RowKey

FOLDER = "ledger"


class LogDatabase(MemoryDatabase):
    """The objects of a log and the files of its sink. `tables` shows what they add up to, and is never written.

    `files` are what tasks have written, by name. Nobody sees one before an entry of the log names it, or a driver that believes
    so has told the readers. `number` is that of the latest entry.
    """

    def __init__(self, hooks: Hooks, objects: ObjectHooks) -> None:
        super().__init__(hooks)
        objects.changed = self._mirror
        self.objects = MemoryObjects(objects)
        self.pending = self.objects.under_way  # type: ignore[assignment] # requests, where a database has transactions
        self.files: dict[str, tuple[Hashable, ...]] = {}
        self.number = 0
        self._published: set[tuple[tuple[Hashable, ...], str]] = set()
        self._named: set[tuple[tuple[Hashable, ...], str]] = set()
        self._parsed: dict[bytes, dict[str, Any]] = {}

    def settle_pending(self, transaction: Any, *, apply: bool) -> None:
        """Let a request arrive whose sender has given it up, or never."""
        if apply:
            self.objects.settle(transaction)
        else:
            self.objects.under_way.remove(transaction)

    def _mirror(self) -> None:
        found = self._folded()
        rows = dict(row for key, value in found.items() for row in _row_of(key, value))
        for key, value in self.tables.rows.items():
            if key[0] == "batch" and key not in rows:
                rows["expired batch", *key[1:]] = value
            elif key[0] == "expired batch" and ("batch", *key[1:]) not in rows:
                rows[key] = value
        self.tables.rows = rows
        self._count(found)
        self.version += 1
        self.on_commit()

    def _count(self, found: dict[Key, Any]) -> None:
        """Count what readers see."""
        named = self._committables(found)
        for batch, text in named:
            self._publish(batch, text)
        if any(key.table is Table.STREAM for key in found):
            self._lose(self._named - named)
        self._named = named

    def publish(self, batch: int, text: str) -> None:
        """A driver tells the readers which files a batch has landed with, as it does once the ledger says so."""
        self._publish((batch,), text)
        self.version += 1
        self.on_commit()

    def _publish(self, batch: tuple[Hashable, ...], text: str) -> None:
        """A reader reads what an entry makes visible once; another text for the same batch is something else."""
        if (batch, text) in self._published:
            return
        self._published.add((batch, text))
        for name in json.loads(text):
            self.tables.target.update(self.files[name])
            for row in self.files[name]:
                keyed.write(self.tables.by_key, row, self.how_keyed)

    def _committables(self, found: dict[Key, Any]) -> set[tuple[tuple[Hashable, ...], str]]:
        """What the log names now: by the rows of its state, and by the objects that these refer to."""
        named: set[tuple[tuple[Hashable, ...], str]] = {
            (key.rest, text) for key, text in found.items() if key.table is Table.COMMITTABLE
        }
        for key in found:
            if key.table is Table.ARCHIVE:
                named |= {((batch,), text) for batch, text in self._archived(key)}
        return named

    def _archived(self, reference: Key) -> list[tuple[int, str]]:
        """The committables of the object that a row refers to."""
        number, part = reference.rest
        content = self.objects.objects.get(f"{self._folder()}{number:012}-{part:04}.committables")
        texts: list[tuple[int, str]] = [] if content is None else self._content(content)["texts"]
        return texts

    def _lose(self, gone: set[tuple[tuple[Hashable, ...], str]]) -> None:
        """A driver that starts reads from the log alone what counts: what it names no more is lost to readers."""
        for _, text in gone:
            for name in json.loads(text):
                self.tables.target.subtract(self.files[name])

    def _folder(self) -> str:
        origin = self.objects.objects.get(f"{FOLDER}/log.json")
        return "" if origin is None else f"{FOLDER}/{self._content(origin)['id']}/"

    def values(self) -> int:
        """How many values the newest snapshot and the entries after it have: brackets and commas, also those of texts."""
        folder = self._folder()
        paths = sorted(path for path in self.objects.objects if folder and path.startswith(folder))
        newest = max((path for path in paths if path.endswith(".snapshot")), default="")
        read = [path for path in paths if path == newest or (path.endswith(".entry") and path > newest)]
        return sum(self.objects.objects[path].count(mark) for path in read for mark in (b"[", b"{", b","))

    def _folded(self) -> dict[Key, Any]:
        """The newest snapshot, and the entries after it until one is missing."""
        objects, folder = self.objects.objects, self._folder()
        if not folder:
            return {}
        names = [path.removeprefix(folder) for path in objects if path.startswith(folder)]
        newest = max((name for name in names if name.endswith(".snapshot")), default=None)
        rows: dict[Key, Any] = {}
        number = 0
        if newest is not None:
            number = int(newest.split(".")[0])
            rows |= self._rows(objects[folder + newest], "rows")
        while (content := objects.get(f"{folder}{number + 1:012}.entry")) is not None:
            number += 1
            rows |= self._rows(content, "changes")
        self.number = number
        return {key: value for key, value in rows.items() if value is not None}

    def _rows(self, content: bytes, name: str) -> dict[Key, Any]:
        found = self._content(content)
        if "read" not in found:
            found["read"] = changes_from_json(found[name])
        rows: dict[Key, Any] = found["read"]
        return rows

    def _content(self, content: bytes) -> dict[str, Any]:
        """Parse an object once; there are few, and they are read after every change."""
        if content not in self._parsed:
            self._parsed[content] = json.loads(content)["content"]
        return self._parsed[content]


def _row_of(key: Key, value: Any) -> list[tuple[RowKey, Any]]:
    """Return a row as the in-memory ledger of the other simulation has it."""
    table, stream_id, rest = key
    match table:
        case Table.STREAM | Table.QUERY | Table.DECIDED:
            return [((str(table), stream_id), value)]
        case Table.POSITION | Table.RETIRED:
            row = (value.offset, value.origin_id, value.fingerprint)
            return [((str(table), stream_id, Partition(*rest)), row)]  # type: ignore[arg-type] # as it was rendered
        case Table.REPLAYED:
            return [((str(table), stream_id, *rest), value)]
        case Table.BATCH | Table.FAILURE:
            return [((str(table), stream_id, *rest), value.row)]
        case Table.STRETCH | Table.COMMITTABLE | Table.ARCHIVE:
            return []
