"""Look once at a checkpoint or an output folder and return the facts. Nothing is changed, and nothing is judged.

Only what something depends on is read: of a log that grows for years, the latest batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from exactlyonce.checkpoint.checksums import name_of_checksums
from exactlyonce.checkpoint.generation import parse_generation
from exactlyonce.checkpoint.log_numbers import number_of
from exactlyonce.checkpoint.state_files import parse_name
from exactlyonce.checkpoint.store import Entry, FileMissing
from exactlyonce.errors import Refused
from exactlyonce.inspect.facts import CheckpointFacts, Listed, Log, OutputFacts, StateStore
from exactlyonce.inspect.file_log import interval_of, needed_files, number_of_name
from exactlyonce.inspect.output import FOLDER
from exactlyonce.positions.ranges import BatchNumber


class NothingOfSpark(Refused):
    """A folder is neither a checkpoint nor an output of Spark's file sink, or is not there."""


class ReadStore(Protocol):
    """The part of a store that is used here: it only reads."""

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        ...

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder; one that does not exist has none."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file's content, or raise FileMissing."""
        ...

    def tree(self, folder: str) -> Mapping[str, int]:
        """Return every file below a folder with its size in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """What a folder was found to be: a checkpoint, an output folder, or both in one."""

    checkpoint: CheckpointFacts | None
    output: OutputFacts | None


def facts_of(store: ReadStore, batches: int, also: frozenset[int] = frozenset()) -> Look:
    """Return the facts of whatever a folder is, with the content of the latest `batches` of each log and of `also`.

    Raises:
        NothingOfSpark: if it is not there, or is neither.
        StoreUnreachable: if the storage does not answer, or may not be read.
    """
    root = store.list("")
    names = {entry.name for entry in root}
    location = store.location.rstrip("/")
    if location.rpartition("/")[2] == FOLDER:
        return Look(None, OutputFacts(location.rpartition("/")[0], _file_log(store, "", batches, also), None))
    checkpoint = output = None
    if {"offsets", "commits", "state"} & names or ("metadata" in names and FOLDER not in names):
        checkpoint = _checkpoint(store, root, batches)
    if FOLDER in names:
        files = {path: size for path, size in store.tree("").items() if not path.startswith(f"{FOLDER}/")}
        output = OutputFacts(location, _file_log(store, FOLDER, batches, also), files)
    if checkpoint is None and output is None:
        raise NothingOfSpark(_why_nothing(location, root))
    return Look(checkpoint, output)


def _why_nothing(location: str, root: tuple[Entry, ...]) -> str:
    if not root:
        return f"There is no folder {location}, or it is empty; name a checkpoint, or an output folder of Spark's file sink."
    generations = sorted(filter(None, (parse_generation(entry.name) for entry in root)))
    if generations:
        return (
            f"{location} is the checkpoint location of a stream, which has a folder for each generation; "
            "name one of them, the latest "
            f"is {generations[-1].path(location)}."
        )
    return (
        f"{location} is neither a checkpoint (it has no offsets, commits or metadata) nor an output folder "
        "of Spark's file sink (it "
        f"has no {FOLDER}); name one of these."
    )


def _checkpoint(store: ReadStore, root: tuple[Entry, ...], batches: int) -> CheckpointFacts:
    names = {entry.name for entry in root}
    sources = {}
    if "sources" in names:
        for entry in store.list("sources"):
            if entry.is_folder and entry.name.isascii() and entry.name.isdigit():
                sources[int(entry.name)] = _file_log(store, f"sources/{entry.name}", batches)
    return CheckpointFacts(
        location=store.location,
        metadata=_content(store, "metadata") if "metadata" in names else None,
        offsets=_log(store, "offsets", number_of, _latest(batches + 1)) if "offsets" in names else Log(),
        commits=_log(store, "commits", number_of, _latest(batches + 1)) if "commits" in names else Log(),
        sources=sources,
        state=_state(store.tree("state")) if "state" in names else (),
    )


Chosen = Callable[[Log], frozenset[int]]


def _latest(count: int) -> Chosen:
    return lambda log: frozenset(log.numbers[-count:])


def _file_log(store: ReadStore, folder: str, batches: int, also: frozenset[int] = frozenset()) -> Log:
    """Return a log of files with the content of what Spark reads of it, and of what tells of the latest batches."""

    def chosen(log: Log) -> frozenset[int]:
        needed = needed_files(log.latest, interval_of(log))
        return frozenset({*also, *needed, *log.numbers[-batches - 1 :]}) | {0}

    def number(entry: Entry) -> BatchNumber | None:
        return None if entry.is_folder else number_of_name(entry.name)

    return _log(store, folder, number, chosen)


def _log(store: ReadStore, folder: str, number: Callable[[Entry], BatchNumber | None], chosen: Chosen) -> Log:
    entries = store.list(folder)
    files = sorted(
        (Listed(found, entry.name, entry.size_bytes) for entry in entries if (found := number(entry)) is not None),
        key=lambda file: (file.number, file.name),
    )
    others = tuple(entry.name for entry in entries if not entry.is_folder and number(entry) is None)
    listed = Log(tuple(files), others)
    read = chosen(listed)
    return Log(tuple(_read(store, folder, file, others) if file.number in read else file for file in files), others)


def _read(store: ReadStore, folder: str, file: Listed, others: tuple[str, ...]) -> Listed:
    above = f"{folder}/" if folder else ""
    checksums = name_of_checksums(file.name)
    return Listed(
        file.number,
        file.name,
        file.size_bytes,
        _content(store, f"{above}{file.name}"),
        _content(store, f"{above}{checksums}") if checksums in others else None,
    )


def _content(store: ReadStore, path: str) -> bytes | None:
    try:
        return store.read(path)
    except FileMissing:
        return None  # Spark removes old files while they are looked at


def _state(tree: Mapping[str, int]) -> tuple[StateStore, ...]:
    operators: dict[str, list[tuple[list[str], int]]] = {}
    for path, size in tree.items():
        operator, *rest = path.split("/")
        operators.setdefault(operator, []).append((rest, size))
    found = []
    for operator, files in sorted(operators.items()):
        versions = [file.version for rest, _ in files if rest and (file := parse_name(rest[-1])) is not None]
        partitions = {rest[0] for rest, _ in files if len(rest) > 1 and rest[0].isdigit()}
        size = sum(size for _, size in files)
        found.append(StateStore(operator, len(partitions), len(files), size, max(versions, default=None)))
    return tuple(found)
