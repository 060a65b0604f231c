"""Which files have been read, as lists beside the checkpoint that a position proves to be the right ones.

A list says which files follow on one position up to another. It is written before its end is in any log, never edited, and
named by both positions, so whoever writes one writes the same. Lists that never landed are of no account: the ledger's position
says which ones count, and its digest whether they are whole. Every tenth list holds all files from the start on, as Spark's own
log of a file source does (CompactibleFileStreamLog), and those behind the one before it are removed.

A list also names the life of the stream that wrote it (`ledger.life`). A position proves its lists, whoever wrote them; but
lists beyond it are plans of the same life alone: a stream that has started over has planned nothing yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.checkpoint.store import AlreadyExists, CreateOutcome, Entry, FileMissing
from exactlyonce.connectors.files.source_position import (
    DIGEST_BITS,
    NOTHING_READ,
    MalformedPosition,
    SourceFile,
    after,
    count_of,
    from_text,
    read_from,
    to_text,
)
from exactlyonce.errors import Refused

COMPACT_EACH = 10
"""spark.sql.streaming.fileSource.log.compactInterval has the same default."""

_VERSION = "v1"


class ListStore(Protocol):
    """The part of a folder's store that lists are kept in (`checkpoint.store.FolderStore`)."""

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        ...

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        ...

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete these files."""
        ...


class ListUnfit(Refused):
    """Where a list of files that were read belongs is something else: waiting mends nothing, so the stream halts."""


class MalformedList(ValueError):
    """A file is not a list of files that were read, or not the one that its name says."""


class FileList(NamedTuple):
    """The files between two positions, in the order in which they are read."""

    start: int
    end: int
    files: tuple[SourceFile, ...]


class Known(NamedTuple):
    """All files up to a position, and the ends of the lists that say so, a compact one first."""

    files: tuple[SourceFile, ...]
    ends: tuple[int, ...]


def name_of(start: int, end: int, life: str = "") -> str:
    """Return the name of a list, which is ordered by its end; without a life, what all names of such a list begin with."""
    read = read_from(end)
    return f"{read.count:019d}-{read.digest:056x}-{count_of(start):019d}-{life}"


def render(found: FileList) -> bytes:
    """Return the content of a list."""
    head = json.dumps({"after": to_text(found.start), "until": to_text(found.end)})
    lines = [json.dumps([file.path, file.size_bytes, file.modified_milliseconds, file.version]) for file in found.files]
    return "\n".join([_VERSION, head, *lines]).encode() + b"\n"


def parse(content: bytes) -> FileList:
    """Parse what `render` renders.

    Raises:
        MalformedList: if it is anything else, or its files do not lead from its one position to the other.
    """
    try:
        version, head, *lines = content.decode().removesuffix("\n").split("\n")
        if version != _VERSION:
            raise MalformedList(f"its version is {version[:20]!r}, and this release reads {_VERSION}")
        ends = parse_json(head)
        start, end = from_text(ends["after"]), from_text(ends["until"])
        files = tuple(_file(parse_json(line)) for line in lines)
    except (UnicodeDecodeError, JsonRefused, MalformedPosition, LookupError, TypeError, ValueError) as problem:
        raise MalformedList(str(problem)) from problem
    if after(start, files) != end:
        raise MalformedList(f"its {len(files)} files do not lead from {to_text(start)} to {to_text(end)}")
    return FileList(start, end, files)


def folder_of(origin: str, above: str) -> str:
    """Return the folder for the lists of one folder that a stream reads, below one for all: it may come back to it later."""
    return f"{above}/{hashlib.sha256(origin.encode()).hexdigest()[:16]}"


class FileLists:
    """The lists of one folder that a stream reads, in a folder of their own."""

    def __init__(self, store: ListStore, folder: str, life: str) -> None:
        """`life` is the one of whoever writes lists; one who only reads them may leave it empty."""
        self._store = store
        self._folder = folder
        self._life = life

    @property
    def location(self) -> str:
        """The folder, for a sentence."""
        return f"{self._store.location.rstrip('/')}/{self._folder}"

    def known(self, position: int) -> Known | None:
        """Return all files up to a position; None where no lists say which they are.

        Raises:
            StoreUnreachable: if the storage does not answer.
            ListUnfit: if it holds something else where a list belongs.
        """
        names = [entry.name for entry in self._store.list(self._folder)]
        found: list[FileList] = []
        if position != NOTHING_READ and not self._lead(position, names, found):
            return None
        return Known(tuple(file for each in found for file in each.files), tuple(each.end for each in found))

    def beyond(self, position: int) -> Mapping[str, tuple[SourceFile, ...]]:
        """Return the files of each list of this life that goes further than a position, by its place: planned at least.

        Raises:
            StoreUnreachable, ListUnfit: as `known`.
        """
        names = [entry.name for entry in self._store.list(self._folder) if self._is_own(entry.name)]
        further = [name for name in names if name >= name_of(NOTHING_READ, (count_of(position) + 1) << DIGEST_BITS)]
        read = {name: self._read(name) for name in further}
        return {f"{self.location}/{name}": listed.files for name, listed in read.items() if listed is not None}

    def between(self, start: int, end: int) -> tuple[SourceFile, ...] | None:
        """Return the files between two positions, also where only a list that goes further still holds them.

        Raises:
            StoreUnreachable, ListUnfit: as `known`.
        """
        known = self.known(end)
        if known is not None:
            return _part(known.files, start, end)
        for name in sorted((entry.name for entry in self._store.list(self._folder)), reverse=True):
            listed = None if name.startswith(".") else self._read(name)
            further = None if listed is None or count_of(listed.end) < count_of(end) else self.known(listed.end)
            part = None if further is None else _part(further.files, start, end)
            if part is not None:
                return part
        return None

    def restore(self, files: tuple[SourceFile, ...]) -> Known:
        """Write down all files up to a position, of which the lists are gone.

        Raises:
            StoreUnreachable, ListUnfit: as `known`.
        """
        end = after(NOTHING_READ, files)
        self._create(FileList(NOTHING_READ, end, files))
        return Known(files, (end,))

    def record(self, known: Known, start: int, files: Iterable[SourceFile]) -> Known:
        """Write the list of the files that follow on `start`, which is the end of what is known; return what is known then.

        Raises:
            StoreUnreachable, ListUnfit: as `known`.
        """
        added = tuple(files)
        end = after(start, added)
        every = (*known.files, *added)
        is_compact = len(known.ends) + 1 >= COMPACT_EACH
        self._create(FileList(NOTHING_READ, end, every) if is_compact else FileList(start, end, added))
        if not is_compact:
            return Known(every, (*known.ends, end))
        self._remove_before(known.ends[0])
        # What is known still leads over the compact list before: this one has not landed, and may never do so.
        return Known(every, (end,))

    def _lead(self, end: int, names: Sequence[str], found: list[FileList]) -> bool:
        """Put the lists in front that lead to a position; a compact one is tried first, as it sorts first."""
        prefix = name_of(NOTHING_READ, end).rsplit("-", 2)[0]
        for name in sorted(name for name in names if name.startswith(f"{prefix}-")):
            listed = self._read(name)
            if listed is None or listed.end != end or listed.start == end:
                continue  # no driver writes one without files, which would lead to itself
            found.insert(0, listed)
            if listed.start == NOTHING_READ or self._lead(listed.start, names, found):
                return True
            found.remove(listed)
        return False

    def _read(self, name: str) -> FileList | None:
        try:
            return parse(self._store.read(f"{self._folder}/{name}"))
        except FileMissing:
            return None  # another driver has removed it, behind a compact one
        except MalformedList as problem:
            raise ListUnfit(
                f"{self.location}/{name} is not a list of files that were read ({problem}). Restore it from a copy; or remove "
                "it, and the files in the folder themselves have to prove what was read."
            ) from problem

    def _create(self, wanted: FileList) -> None:
        content = render(wanted)
        name = name_of(wanted.start, wanted.end, self._life)
        outcome = self._store.create(f"{self._folder}/{name}", content)
        if isinstance(outcome, AlreadyExists) and outcome.content != content:
            raise ListUnfit(
                f"{self.location}/{name} exists with other content than the files that were planned; it was not touched. "
                "Restore it from a copy, or remove it."
            )

    def _remove_before(self, base: int) -> None:
        """Remove the lists of this life that end before a compact one, which holds what they hold."""
        limit = name_of(NOTHING_READ, base)
        names = [entry.name for entry in self._store.list(self._folder)]
        self._store.delete([f"{self._folder}/{name}" for name in names if name < limit and self._is_own(name)])

    def _is_own(self, name: str) -> bool:
        return not name.startswith(".") and name.endswith(f"-{self._life}")


def rebuilt(position: int, listed: Iterable[SourceFile]) -> tuple[SourceFile, ...] | None:
    """Return the files up to a position by what a folder holds now; None where its oldest files are not these.

    The digest of a position tells whether it is so: nothing is guessed. Performs no I/O.
    """
    return _part(tuple(sorted(listed, key=lambda file: file.order)), NOTHING_READ, position)


def _part(files: Sequence[SourceFile], start: int, end: int) -> tuple[SourceFile, ...] | None:
    """Return the files between two positions, of files from the start on; None where they do not pass both."""
    until = count_of(end)
    if until > len(files) or count_of(start) > until:
        return None
    before, part = files[: count_of(start)], tuple(files[count_of(start) : until])
    return part if after(NOTHING_READ, before) == start and after(start, part) == end else None


def _file(entry: object) -> SourceFile:
    match entry:
        case [str(path), int(size), int(modified), str(version)]:
            return SourceFile(path, size, modified, version)
        case _:
            raise MalformedList(f"{entry!r:.80} is not path, size, time and version of a file")
