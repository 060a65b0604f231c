"""A Delta table's log by the library of its own project, deltalake (delta-rs). No pyspark here.

Source: the Delta transaction protocol (actions, `txn`, writer requirements); delta-rs 1.6.6, whose commit creates the next
version's file only where there is none and checks what was committed meanwhile: another commit of the same transaction id,
of a schema, or of removed files, is a conflict, and one that only adds files is not.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow.fs
import pyarrow.parquet
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction

from exactlyonce.checkpoint.store import FileMissing, OutputStore
from exactlyonce.connectors.files.columns import Type, plain
from exactlyonce.connectors.files.manifest import Author, DataFile
from exactlyonce.errors import Unreachable
from exactlyonce_spark.connectors.delta.actions import added, new_field, schema_of
from exactlyonce_spark.connectors.delta.facts_at_once import facts_at_once
from exactlyonce_spark.connectors.delta.history_notes import notes_on_commit
from exactlyonce_spark.connectors.delta.manifest import REGISTERED, TableManifest
from exactlyonce_spark.connectors.delta.properties import unwritable
from exactlyonce_spark.connectors.delta.statistics import facts_of
from exactlyonce_spark.connectors.delta.table import (
    FileFacts,
    Restore,
    SinceOurs,
    TableOfAnother,
    TableSeen,
    TableUnfit,
)

_OURS = "exactlyonce"
"""The key of a commit's information that says which batch of which stream it added."""

_SHOWN = "userMetadata"
"""The only key of a commit's information, of those that are free, that DESCRIBE HISTORY of Spark has a column for."""

_VERSIONS_AT_ONCE, _READERS = 64, 8
"""How many versions are read for our latest one where others have committed since, and by how many threads."""

_DRAWN = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
"""What the library draws between the parts of an error: colours and arrows."""

_RETRIES = 15


class TableUnreachable(Unreachable):
    """The storage of the table does not answer, or the library cannot read the table."""


@dataclass
class DeltaLog:
    """The log of one table, for one stream."""

    location: str
    """As a person names it."""
    uri: str
    options: Mapping[str, str]
    """What the library is told of S3, with the login."""
    folder: OutputStore
    stream: str
    author: Author
    _table: DeltaTable | None = field(default=None, repr=False)
    _latest: bytes | None = field(default=None, repr=False)
    """What the log has of the version that `_table` is at."""

    def app_id(self, life: str) -> str:
        """Return the identifier of the stream's transactions in a life of it. It is public."""
        return f"exactlyonce/{self.stream}/{life}"

    def view(self, life: str) -> TableSeen | None:
        """Return the table as it is now, and the number that it has of a life of the stream; None if there is no table.

        What was read before is continued, which is an eighth of the work for a table of many files, but only behind a version
        that still is the one that was read: a recreated table has versions of the same numbers. A version whose own file is
        gone tells nothing of that.
        """
        with self._named("read"):
            before = None if self._table is None else self._table.version()
            is_known = before is not None and self._latest is not None and self._content_of(before) == self._latest
            if self._table is not None and is_known:
                with suppress(DeltaError):
                    self._table.update_incremental()
                    return self._as_seen(self._table, life, before)
            try:
                self._table = DeltaTable(self.uri, storage_options=dict(self.options))
            except TableNotFoundError:
                self._table = None
                return None
            return self._as_seen(self._table, life)

    def _as_seen(self, table: DeltaTable, life: str, before: int | None = None) -> TableSeen:
        """`before` is the version of which `_latest` is known to be what the log has, if one is."""
        if table.version() != before:
            self._latest = self._content_of(table.version())
        metadata, protocol = table.metadata(), table.protocol()
        fields = json.loads(table.schema().to_json())["fields"]
        return TableSeen(
            str(metadata.id),
            table.version(),
            table.transaction_version(self.app_id(life)),
            {column["name"]: plain(column["type"]) for column in fields},
            tuple(metadata.partition_columns),
            unwritable(protocol.min_writer_version, protocol.writer_features or (), metadata.configuration, fields),
        )

    def _content_of(self, version: int) -> bytes | None:
        """Return what the log has of a version, None where it was cleaned up or never was."""
        try:
            return self.folder.read(f"_delta_log/{version:020}.json")
        except FileMissing:
            return None

    def since_ours(self, life: str) -> SinceOurs:
        """Return what has happened to the table, as `view` saw it last, since the latest batch of a life of this stream.

        The versions are read from the storage itself: the library would keep all other threads of the driver waiting.
        """
        restores: list[Restore] = []
        last, size = self._seen.version(), 1  # which usually is ours
        with ThreadPoolExecutor(_READERS) as pool:
            while last >= 0:
                versions = range(last, max(-1, last - size), -1)
                for version, commit in zip(versions, pool.map(self._commit_of, versions), strict=True):
                    if commit is None:
                        return SinceOurs(None, tuple(restores))
                    if self._is_of(life, commit):
                        return SinceOurs(version, tuple(restores))
                    if commit.get("operation") == "RESTORE":
                        restores.append(Restore(version, _restored_to(commit)))
                last, size = last - size, _VERSIONS_AT_ONCE
        return SinceOurs(None, tuple(restores))

    def _commit_of(self, version: int) -> Mapping[str, Any] | None:
        """Return what a version says of its commit; None where it was cleaned up."""
        content = self._latest if version == self._seen.version() else self._content_of(version)
        if content is None:
            return None
        with self._named("read"):
            actions = (json.loads(line) for line in content.splitlines() if line.strip())
            return next((dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {})

    def create(self, columns: Mapping[str, Type], partition_by: Sequence[str]) -> None:
        """Create the table, registered; where one appears meanwhile, it stays as it is."""
        names = sorted(
            entry.name for entry in self.folder.entries("") if not entry.name.startswith((".", "_delta_log"))
        )
        if names:
            raise TableOfAnother(
                f"The folder {self.location} holds {', '.join(names[:3])}{', …' if len(names) > 3 else ''} and is not a Delta "
                "table. Use an empty folder, or the one of a table."
            )
        with self._named("created"):
            try:
                DeltaTable.create(
                    self.uri,
                    schema_of(columns),
                    mode="error",
                    partition_by=list(partition_by),
                    storage_options=dict(self.options),
                    commit_properties=self._properties(None),
                )
            except DeltaError:
                if self.view(self.author.life) is None:
                    raise

    def facts(self, files: Sequence[DataFile]) -> Mapping[str, FileFacts]:
        """Return what each file says of itself, by path; those that are gone or have another size are left out."""
        handler = DeltaStorageHandler.from_table(self._seen._table, dict(self.options))
        storage = pyarrow.fs.PyFileSystem(cast("pyarrow.fs.FileSystemHandler", handler))

        def facts(file: DataFile) -> FileFacts | None:
            with storage.open_input_file(file.path) as opened:
                is_same = opened.size() == file.size_bytes
                return facts_of(pyarrow.parquet.read_metadata(opened)) if is_same else None

        with self._named("read"):
            return facts_at_once(files, facts)

    def commit(self, manifest: TableManifest | None, facts: Mapping[str, FileFacts]) -> bool:
        """Add the files of a batch in one commit with its number; without any, register this life."""
        table = self._seen
        files = () if manifest is None else manifest.manifest.files
        actions: list[AddAction | RemoveAction] = [added(file, facts[file.path]) for file in files]
        with self._named("written"):
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    table.metadata().partition_columns,
                    commit_properties=self._properties(manifest),
                )
            except CommitFailedError as problem:
                _require_supported(problem, self.location)
                return False
        return True

    def add_columns(self, columns: Mapping[str, Type]) -> bool:
        """Add columns to the table as `view` saw it."""
        with self._named("written"):
            try:
                self._seen.alter.add_columns([new_field(name, type_) for name, type_ in columns.items()])
            except (CommitFailedError, SchemaMismatchError) as problem:
                _require_supported(problem, self.location)
                return False
        return True

    @property
    def _seen(self) -> DeltaTable:
        assert self._table is not None, "view comes first"
        return self._table

    def _properties(self, manifest: TableManifest | None) -> CommitProperties:
        number = REGISTERED if manifest is None else manifest.number
        life = self.author.life if manifest is None else manifest.life
        said: dict[str, Any] = {"stream": self.stream, "life": life, "epoch": self.author.epoch}
        if manifest is not None:
            said = dict(notes_on_commit(self.stream, self.author, manifest))
        now = int(time.time() * 1000)
        return CommitProperties(
            custom_metadata={_OURS: said, _SHOWN: json.dumps(said, separators=(",", ":"), ensure_ascii=False)},
            app_transactions=[Transaction(self.app_id(life), number, now)],
            max_commit_retries=_RETRIES,
        )

    def _is_of(self, life: str, commit: Mapping[str, Any]) -> bool:
        """Whether a commit has added a batch: a stream of the same name in another cluster has a life of its own."""
        match commit.get(_OURS):
            case {"stream": self.stream, "life": str(found), "batch": int()}:
                return found == life
            case _:
                return False

    @contextmanager
    def _named(self, done: str) -> Iterator[None]:
        """Raise what the library or the storage says as TableUnreachable: what was asked for may have happened."""
        try:
            yield
        except (DeltaError, OSError, ValueError, pyarrow.ArrowException) as problem:
            said = " ".join(_DRAWN.sub("", str(problem)).split()).rstrip(".")[:300]
            raise TableUnreachable(
                f"The table at {self.location} cannot be {done} ({said}); nothing was lost by this. Check the storage, the "
                "login and the table's log."
            ) from problem


def _require_supported(problem: DeltaError, location: str) -> None:
    if "Unsupported table features" in str(problem):
        raise TableUnfit(
            f"The table at {location} has features that deltalake does not write ({str(problem).rpartition(':')[2].strip()}); "
            "drop them from the table, or use another one."
        ) from problem


def _restored_to(commit: Mapping[str, Any]) -> int | None:
    """Source: the parameters of RESTORE are texts, of delta-rs and of delta-spark; one restored by time names no version."""
    version = str((commit.get("operationParameters") or {}).get("version", ""))
    return int(version) if version.isdigit() else None
