"""The state that a generation still holds of one batch, and a new generation made of it: docs/adr/0014.

Batch N makes version N+1 of every store. A store keeps old versions as long as Spark keeps old batches
(spark.sql.streaming.minBatchesToRetain), so that a query can continue after a batch that is not its last. The generation that
is copied from is read and never changed; what is copied is exactly what a restart after that batch reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

from exactlyonce.checkpoint import files, state_files
from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.checkpoint.state_files import StateFile, StoreShape
from exactlyonce.checkpoint.store import FileMissing, LogStore
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber, Positions

Parsed = TypeVar("Parsed")

_DESCRIBING = ("_metadata", "_stateSchema")
"""Folders of an operator or a store that tell the shape of state, not its content."""


@dataclass(frozen=True, slots=True)
class Retained:
    """A generation holds all that a restart after `batch` reads.

    `start` and `end` are those of the batch. `files` are paths in the generation, in the order in which they are copied.
    """

    generation: Generation
    batch: BatchNumber
    start: Positions | None
    end: Positions
    files: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotRetained:
    """Something that a restart after the batch reads is not there; `oldest` is the earliest batch whose state may be."""

    message: str
    oldest: BatchNumber | None = None


class _Missing(Exception):
    """Carries what is missing out of the search."""


def find_retained(
    store: LogStore, codec: PositionCodec, generation: Generation, batch: BatchNumber
) -> Retained | NotRetained:
    """Look for the logs and the state of one batch in a generation. Reading never changes a file.

    Raises:
        StoreUnreachable: if the storage does not answer; that is not the absence of state.
    """
    search = _Search(store, codec, generation.folder, batch)
    try:
        return search.retained(generation)
    except _Missing as missing:
        return NotRetained(f"{generation.folder}/{missing}", search.oldest())


def copy_retained(
    store: LogStore, codec: PositionCodec, source: Generation, target: Generation, batch: BatchNumber
) -> None:
    """Make `target` of what `source` retains of a batch, and read it back; safe to repeat.

    The offset log comes last, as in every seed: cut short before it, the folder holds no checkpoint that could be published.

    Raises:
        StoreUnreachable: if the storage does not answer, or something went away since it was looked for.
    """
    found = find_retained(store, codec, source, batch)
    if isinstance(found, NotRetained):
        raise StoreUnreachable(
            f"{store.location}: what is left of batch {batch} went away before it was copied: {found.message}."
        )
    for path in found.files:
        try:
            store.copy(f"{source.folder}/{path}", f"{target.folder}/{path}")
        except FileMissing:
            raise StoreUnreachable(
                f"{store.location}/{source.folder}/{path} went away while it was copied; it is looked for again."
            ) from None
    _require_same(store, codec, source, target, found)


def _require_same(
    store: LogStore, codec: PositionCodec, source: Generation, target: Generation, copied: Retained
) -> None:
    made, again = read_generation(store, codec, target.folder), find_retained(store, codec, target, copied.batch)
    before, after = store.tree(source.folder), store.tree(target.folder)
    if (
        not isinstance(made, Readable)
        or (made.planned, made.checkpointed, made.planned_end) != (copied.batch, copied.batch, copied.end)
        or again != replace(copied, generation=target)
        or any(before.get(path) != after.get(path) for path in copied.files)
    ):
        raise StoreUnreachable(
            f"{store.location}/{target.folder} reads back as {made} and {again}, not as what was copied."
        )


class _Search:
    """Lists a generation once, then reads the few files that name others."""

    def __init__(self, store: LogStore, codec: PositionCodec, folder: str, batch: BatchNumber) -> None:
        self._store = store
        self._codec = codec
        self._folder = folder
        self._batch = batch
        self.sizes = store.tree(folder)
        self._by_folder: dict[str, list[str]] = {}
        for path in self.sizes:
            self._by_folder.setdefault(path.rpartition("/")[0], []).append(path)
        self._ids = cache(self._unique_ids)

    def retained(self, generation: Generation) -> Retained:
        start, end = self._logs()
        operators = self._operators()
        state: set[str] = set()
        for operator in operators:
            for shape in self._stores(operator):
                for partition in range(shape.partitions):
                    state |= self._store_files(operator, shape, partition)
        state |= {path for path in self.sizes if path.startswith("state/") and _describes(path)}
        state |= {beside for path in state if (beside := f"{path}.crc") in self.sizes}  # Spark's own, not Hadoop's
        sources = {path for path in self.sizes if path.startswith("sources/") and not _is_hidden(path)}
        return Retained(
            generation,
            self._batch,
            start,
            end,
            (
                *sorted(state),
                *sorted(sources),
                "metadata",
                f"commits/{self._batch}",
                f"offsets/{self._batch - 1}",
                f"offsets/{self._batch}",
            ),
        )

    def oldest(self) -> BatchNumber | None:
        """The earliest batch that every store names a whole version for, with its place in both logs."""
        first: dict[str, int] = {}
        for path in self.sizes:
            folder, _, name = path.rpartition("/")
            found = state_files.parse_name(name)
            if folder.startswith("state/") and found is not None:
                version = found.version if found.is_whole or found.version == 1 else None
                if version is not None:
                    first[folder] = min(version, first.get(folder, version))
        earliest = max(first.values(), default=0) - 1
        logged = (int(path[8:]) for path in self.sizes if path.startswith("commits/") and path[8:].isdigit())
        later = [number for number in logged if number >= max(earliest, self._batch + 1)]
        return BatchNumber(min(later)) if first and later else None

    def _logs(self) -> tuple[Positions | None, Positions]:
        self._parsed("metadata", files.parse_metadata)
        self._parsed(f"commits/{self._batch}", files.parse_commit)
        before = self._parsed(f"offsets/{self._batch - 1}", self._end)
        end = self._parsed(f"offsets/{self._batch}", self._end)
        if end is None:
            raise _Missing(f"offsets/{self._batch} has no position for its source")
        return before, end

    def _end(self, content: bytes) -> Positions | None:
        entry = files.parse_offsets(content).only_end
        return None if entry is None else self._codec.parse_entry(entry)

    def _operators(self) -> list[int]:
        """The operators that keep state: those that have a folder, and those whose state the commit names."""
        folders = {path.split("/")[1] for path in self.sizes if path.startswith("state/") and path.count("/") > 1}
        found = {int(name) for name in folders if name.isdigit()}
        found |= {operator for operator, _ in self._ids(self._batch) or ()}
        if not found:
            raise _Missing("state holds no operator")
        return sorted(found)

    def _stores(self, operator: int) -> tuple[StoreShape, ...]:
        return self._parsed(f"state/{operator}/_metadata/metadata", state_files.parse_operator)

    def _store_files(self, operator: int, shape: StoreShape, partition: int) -> set[str]:
        """The files that a store is read from at the version that the batch made, back to the latest whole one."""
        folder = f"state/{operator}/{shape.folder(partition)}"
        versions = self._versions(folder)
        needed: set[str] = set()
        version = self._batch + 1
        while version > 0:
            path, file = self._choose(folder, versions.get(version, ()), version, operator, partition)
            needed.add(path)
            if file.is_whole:
                return needed | self._shared(folder, path)
            version -= 1
        return needed

    def _choose(
        self, folder: str, candidates: tuple[tuple[str, StateFile], ...], version: int, operator: int, partition: int
    ) -> tuple[str, StateFile]:
        """The file of a version, whole before changed; with unique ids the one that the commit of its batch names.

        Where that commit is not kept any more, as in a generation that was made of another one, there has to be a single file.
        Should it be the wrong one, Spark finds that out: each changelog names all that it builds on.
        """
        batch = BatchNumber(version - 1)
        fitting = candidates
        if any(file.unique_id is not None for _, file in candidates) and self._is_kept(batch):
            ids = (self._ids(batch) or {}).get((operator, partition), frozenset())
            fitting = tuple(found for found in candidates if found[1].unique_id in ids)
        if len({file.unique_id for _, file in fitting}) != 1:
            told = "no version" if not fitting else "several files of version"
            raise _Missing(f"{folder} has {told} {version}, which batch {batch} made")
        return max(fitting, key=lambda found: found[1].is_whole)

    def _is_kept(self, batch: BatchNumber) -> bool:
        return f"commits/{batch}" in self.sizes

    def _shared(self, folder: str, path: str) -> set[str]:
        if not path.endswith(".zip"):
            return set()
        shared = self._parsed(path, state_files.parse_snapshot)
        for file in shared:
            size = self.sizes.get(f"{folder}/{file.path}")
            if size != file.size_bytes:
                found = "is not there" if size is None else f"has {size} bytes"
                raise _Missing(f"{folder}/{file.path} {found}; {path} needs it with {file.size_bytes} bytes")
        return {f"{folder}/{file.path}" for file in shared}

    def _versions(self, folder: str) -> Mapping[int, tuple[tuple[str, StateFile], ...]]:
        found: dict[int, tuple[tuple[str, StateFile], ...]] = {}
        for path in self._by_folder.get(folder, ()):
            file = state_files.parse_name(path.rpartition("/")[2])
            if file is not None:
                found[file.version] = (*found.get(file.version, ()), (path, file))
        return found

    def _unique_ids(self, batch: BatchNumber) -> Mapping[tuple[int, int], frozenset[str]] | None:
        return self._parsed(f"commits/{batch}", state_files.parse_unique_ids)

    def _parsed(self, path: str, parse: Callable[[bytes], Parsed]) -> Parsed:
        try:
            return parse(self._store.read(f"{self._folder}/{path}"))
        except FileMissing:
            raise _Missing(f"{path} is not there") from None
        except (files.FileEmpty, files.FileTorn, files.VersionUnsupported) as problem:
            raise _Missing(f"{path} is not usable: {problem}") from problem


def _describes(path: str) -> bool:
    return not _is_hidden(path) and any(part in _DESCRIBING for part in path.split("/")[:-1])


def _is_hidden(path: str) -> bool:
    return path.rpartition("/")[2].startswith(".")
