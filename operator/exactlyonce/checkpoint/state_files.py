"""The files of Spark's state stores: their names, and what those that describe others say. Performs no I/O.

Sources, all of Spark 4.2.0: HDFSBackedStateStoreProvider (`N.delta`, `N.snapshot`), RocksDBFileManager (`N.zip`,
`N.changelog`, `SSTs/`, `logs/`; with checkpoint format 2 `N_<unique id>.zip`), OperatorStateMetadataV1, CommitLog. A zip's
`metadata` is RocksDBCheckpointMetadata: a version line, then JSON that names the files which the snapshot shares with others.
"""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from typing import Any

from exactlyonce.bounded_json import parse_json
from exactlyonce.checkpoint.files import FileTorn

DEFAULT_STORE = "default"
_NAME = re.compile(r"(\d+)(?:_([0-9A-Za-z-]+))?\.(zip|changelog|snapshot|delta)")
_WHOLE = ("zip", "snapshot")


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file of a store: all of a version, or what changed from the version before. `unique_id` from format 2 on."""

    version: int
    unique_id: str | None
    is_whole: bool


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that a RocksDB snapshot needs beside itself, by its path below the store's folder."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreShape:
    """One store of an operator: its name and in how many partitions it is kept."""

    name: str
    partitions: int

    def folder(self, partition: int) -> str:
        """Where a partition's files are, below the operator's folder. Source: StateStoreId.storeCheckpointLocation."""
        return str(partition) if self.name == DEFAULT_STORE else f"{partition}/{self.name}"


def parse_name(name: str) -> StateFile | None:
    """Return what a file of a store is, or None where it is not a file of a version."""
    match = _NAME.fullmatch(name)
    return StateFile(int(match[1]), match[2], match[3] in _WHOLE) if match else None


def parse_operator(content: bytes) -> tuple[StoreShape, ...]:
    """Return the stores of an operator, from its `_metadata/metadata`.

    Raises:
        FileTorn: if it is not metadata of version 1.
    """
    found = _versioned(content, "v1")
    try:
        shapes = [StoreShape(str(store["storeName"]), int(store["numPartitions"])) for store in found["stateStoreInfo"]]
    except (KeyError, TypeError, ValueError) as problem:
        raise FileTorn("it does not name its stores") from problem
    if not shapes:
        raise FileTorn("it names no store")
    return tuple(shapes)


def parse_unique_ids(content: bytes) -> dict[tuple[int, int], frozenset[str]] | None:
    """Return the unique ids of the state that a commit made, by operator and partition; None before format 2.

    Raises:
        FileTorn: if they are not what Spark writes.
    """
    _, _, body = content.partition(b"\n")
    try:
        found = parse_json(body).get("stateUniqueIds")
        if not found:
            return None
        return {
            (int(operator), partition): frozenset(str(unique_id) for unique_id in stores)
            for operator, partitions in found.items()
            for partition, stores in enumerate(partitions)
        }
    except (AttributeError, TypeError, ValueError) as problem:
        raise FileTorn("its ids of state are not readable") from problem


def parse_snapshot(content: bytes) -> tuple[SharedFile, ...]:
    """Return the files that a RocksDB snapshot needs beside its zip.

    Raises:
        FileTorn: if it is not a whole zip with its metadata.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.testzip() is not None:
                raise FileTorn("a part of it does not have the checksum it was made with")
            found = _versioned(archive.read("metadata"), "v1")
        tables = [SharedFile(f"SSTs/{entry['dfsSstFileName']}", int(entry["sizeBytes"])) for entry in found["sstFiles"]]
        logs = [
            SharedFile(f"logs/{entry['dfsLogFileName']}", int(entry["sizeBytes"]))
            for entry in found.get("logFiles") or ()
        ]
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, FileTorn):
            raise
        raise FileTorn("it is not a snapshot of RocksDB") from problem
    return (*tables, *logs)


def _versioned(content: bytes, version: str) -> dict[str, Any]:
    head, _, body = content.partition(b"\n")
    if head.decode(errors="replace") != version:
        raise FileTorn(f"its first line is {head[:40]!r}, not {version}")
    try:
        found = parse_json(body)
    except ValueError as problem:
        raise FileTorn("its second line is not JSON") from problem
    if not isinstance(found, dict):
        raise FileTorn("its second line is not a JSON object")
    return found
