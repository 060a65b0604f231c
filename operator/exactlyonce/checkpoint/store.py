"""The port to wherever checkpoints are kept: a folder with a conditional create.

One behaviour suite runs over every implementation (tests/log_store_contract.py). Paths are relative to the store's
location, with `/` between the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from exactlyonce.errors import RefusedOutside, StoreUnreachable

MOST_FILES = 1_000_000
"""More files than any generation has: a location with more is not walked through."""


MOST_BYTES = 32 * 1024 * 1024
"""No file of a checkpoint or a ledger is larger. A tenant names the location, and whoever reads it has to have the memory."""


class FileTooLarge(RefusedOutside):
    """A file is larger than any that belongs there; not more of it than the limit was read."""


class FileMissing(KeyError):
    """There is no file at that path."""


def require_few(found: int, where: str) -> None:
    """Require that a folder that is read whole has at most MOST_FILES files.

    Raises:
        StoreUnreachable: saying what to do.
    """
    if found > MOST_FILES:
        raise StoreUnreachable(
            f"{where} has more than {MOST_FILES:,} files, which no checkpoint and no ledger has, so it is not read; name a "
            "folder of this stream alone, or remove what does not belong there."
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder."""

    name: str
    size_bytes: int
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Created:
    """The file did not exist and now holds exactly what was given."""


@dataclass(frozen=True, slots=True)
class AlreadyExists:
    """The file existed and was not touched; `content` is what it holds."""

    content: bytes


CreateOutcome = Created | AlreadyExists


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is: objects, and the bytes in them."""

    objects: int = 0
    size_bytes: int = 0

    def __add__(self, other: Size) -> Size:
        """Return both together."""
        return Size(self.objects + other.objects, self.size_bytes + other.size_bytes)


class LogStore(Protocol):
    """A folder of small files. Every method raises StoreUnreachable when the storage does not answer.

    Where a store was opened with a limit, a larger file raises FileTooLarge from whatever reads it, `create` included.
    """

    @property
    def location(self) -> str:
        """The folder as the user names it and as Spark is given it."""
        ...

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder by name, hidden ones too; a folder that does not exist has none."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileMissing: if there is no such file.
        """
        ...

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file with its whole content, or leave the one that is there.

        An implementer owes: of two callers at once exactly one gets `Created`; no reader ever sees a part of the
        content; once this returns, a crash of the machine does not lose the file.
        """
        ...

    def replace(self, path: str, expected: bytes, content: bytes) -> bool:
        """Replace a file whose content is `expected`; False when it holds something else or is gone."""
        ...

    def tree(self, folder: str) -> Mapping[str, int]:
        """Return the size in bytes of every file below a folder at any depth, hidden ones too, by its path from there.

        A folder that does not exist has none. Raises StoreUnreachable also where there are more than MOST_FILES.
        """
        ...

    def copy(self, source: str, target: str) -> None:
        """Make `target` a copy of a file, whatever it held.

        An implementer owes: no reader ever sees a part of it; once this returns, a crash of the machine does not lose it;
        the two share nothing, so that whatever becomes of one leaves the other alone.

        Raises:
            FileMissing: if there is no such file; nothing was written.
        """
        ...


class ErasableStore(LogStore, Protocol):
    """A store whose content can be taken away, for a stream that is deleted with all it has. No repair ever does."""

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove a file, or a folder with all that is in it; what is not there is as good as removed.

        `is_enough` is asked now and then; once it says so, what is left is left, and False is returned.
        """
        ...


class ObjectStore(Protocol):
    """The part of a store that the object log is kept in: its own folder is small, so it is listed often and in order.

    Every method raises StoreUnreachable when the storage does not answer.
    """

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        ...

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Return a file's content, if it has no more than so many bytes; see `LogStore.read`.

        Raises:
            FileTooLarge: if it has more.
        """
        ...

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken; see `LogStore.create`."""
        ...

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder; see `LogStore.list`."""
        ...

    def names_after(self, folder: str, after: str) -> tuple[str, ...]:
        """Return the names of a folder's visible files that sort after `after`, in order; `after` may be no file's name.

        An implementer owes: every file that was created before the call and not deleted is among them. Files that come or go
        meanwhile may each be there or not. Raises StoreUnreachable also where there are more than MOST_FILES.
        """
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete these files; one that is not there is as good as deleted."""
        ...


class OutputStore(Protocol):
    """The part of a store that a sink of files uses: its folder has any number of files, so it is read piece by piece.

    Every method raises StoreUnreachable when the storage does not answer.
    """

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file's content; see `LogStore.read`."""
        ...

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken; see `LogStore.create`."""
        ...

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder; see `LogStore.list`."""
        ...

    def entries(self, folder: str, is_enough: Callable[[], bool] = lambda: False) -> Iterator[Entry]:
        """Yield the entries of a folder in any order, hidden ones too, asking the storage for more only as they are taken.

        `is_enough` is asked before each further question to the storage, since an answer may hold none; once it says so, the
        rest is left out.
        """
        ...

    def walk(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield path and size in bytes of every file below a folder, as `LogStore.tree` does, however many there are."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete these files; one that is not there is as good as deleted."""
        ...

    def folders_above(self) -> tuple[OutputStore, ...]:
        """Return the folders that this one is in, the nearest first; whether they may be read is not known."""
        ...


class BulkStore(Protocol):
    """A store whose files may be larger than the memory of whoever reads them."""

    def fetched(self, path: str) -> AbstractContextManager[Path]:
        """Return where this machine has a file for as long as the block takes; it is not to be changed.

        Raises:
            FileMissing: if there is no such file.
            ScratchFull: if this machine has no room for it.
        """
        ...

    def put(self, source: Path, path: str) -> None:
        """Make `path`, which nobody else writes, a copy of a file of this machine.

        An implementer owes: a file at `path` is whole; once this returns, a crash of the machine does not lose it.
        """
        ...


class FolderStore(ObjectStore, ErasableStore, OutputStore, BulkStore, Protocol):
    """A folder on a disk or on S3, with all that a checkpoint, an object log or a sink asks of it."""


@runtime_checkable
class SizedStore(Protocol):
    """A store that tells cheaply how much it holds."""

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        ...

    def sizes(self) -> Iterator[Size]:
        """Return how much is below the location at any depth, in parts: each is one question to the store.

        Raises StoreUnreachable, at any part, when the storage does not answer.
        """
        ...
