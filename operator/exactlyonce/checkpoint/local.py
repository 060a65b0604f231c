"""Checkpoints on a local disk or a mounted volume."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from exactlyonce.checkpoint.store import (
    AlreadyExists,
    Created,
    CreateOutcome,
    Entry,
    FileMissing,
    FileTooLarge,
    require_few,
)
from exactlyonce.errors import StoreForbidden, StoreUnreachable
from exactlyonce.schema.places import plain_path

_CHUNK_BYTES = 1 << 20


class LocalLogStore:
    """A `LogStore` over a folder of the local file system.

    A file is written under a hidden temporary name, flushed to the disk, and linked to its final name: link(2) fails
    when the name is taken, which makes the create conditional, and a reader never sees a part. Spark's own checksum
    files are not made; it reads a log without them (proven in
    tests/integration/test_checkpoint_restarts.py).
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._root = Path(plain_path(location))

    @property
    def location(self) -> str:
        """The folder as the user named it."""
        return self._location

    def folders_above(self) -> tuple[LocalLogStore, ...]:
        """Return the folders that this one really is in, links resolved, without the root."""
        return tuple(LocalLogStore(str(folder)) for folder in self._root.resolve().parents[:-1])

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder; none when it does not exist."""
        return tuple(sorted(self.entries(folder), key=lambda entry: entry.name))

    def entries(self, folder: str, is_enough: Callable[[], bool] = lambda: False) -> Iterator[Entry]:
        """Yield the entries of a folder, which is one question."""
        with self._named("listed", folder):
            try:
                listed = os.scandir(self._root / folder)
            except FileNotFoundError:
                return
            with listed:
                yield from (found for entry in listed if (found := _entry(entry)) is not None)

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Return a file's content, or raise FileMissing."""
        with self._named("read", path):
            try:
                with (self._root / path).open("rb") as file:
                    content = file.read(-1 if most_bytes is None else most_bytes + 1)
            except (FileNotFoundError, IsADirectoryError):
                raise FileMissing(path) from None
        if most_bytes is not None and len(content) > most_bytes:
            raise FileTooLarge(
                f"{self._location}/{path} has more than the {most_bytes} bytes that such a file may have, so no driver wrote "
                "it; remove it, or restore the original from a backup."
            )
        return content

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove a file, or a folder with all that is in it, at once."""
        with self._named("removed", path):
            try:
                (self._root / path).unlink(missing_ok=True)
            except (IsADirectoryError, PermissionError):
                shutil.rmtree(self._root / path)
        return True

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken."""
        final = self._root / path
        with self._named("created", path):
            _make_folder(final.parent)
            with _temporary(final, content) as temporary:
                try:
                    os.link(temporary, final)
                    outcome: CreateOutcome = Created()
                except FileExistsError:
                    outcome = AlreadyExists(final.read_bytes())
            # Also when it existed: whoever created it may have died before it did this, and the caller relies on the file.
            for folder in (final.parent, *final.parent.parents):
                _flush_folder(folder)
                if folder == self._root:
                    break
        return outcome

    def replace(self, path: str, expected: bytes, content: bytes) -> bool:
        """Replace a file that holds `expected`, under a lock that every replacing process takes."""
        final = self._root / path
        with self._named("replaced", path):
            if not final.exists():
                return False
            descriptor = os.open(final.parent, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if final.read_bytes() != expected:
                    return False
                with _temporary(final, content) as temporary:
                    os.replace(temporary, final)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return True

    def tree(self, folder: str) -> Mapping[str, int]:
        """Return every file below a folder with its size."""
        found: dict[str, int] = {}
        for path, size in self.walk(folder):
            found[path] = size
            require_few(len(found), f"{self._location}/{folder}".rstrip("/"))
        return found

    def walk(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield every file below a folder with its size."""
        top = self._root / folder
        with self._named("listed", folder):
            for above, _, names in os.walk(top, onerror=_unless_missing):
                for name in names:
                    path = Path(above) / name
                    try:
                        size = path.stat().st_size
                    except FileNotFoundError:
                        continue  # temporary files come and go
                    yield path.relative_to(top).as_posix(), size

    def names_after(self, folder: str, after: str) -> tuple[str, ...]:
        """Return the names of a folder's visible files that sort after `after`."""
        with self._named("listed", folder):
            try:
                names = os.listdir(self._root / folder)
            except FileNotFoundError:
                return ()
        require_few(len(names), f"{self._location}/{folder}".rstrip("/"))
        return tuple(sorted(name for name in names if name > after and not name.startswith(".")))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; whether their names are off the disk yet is not waited for."""
        for path in paths:
            with self._named("removed", path):
                (self._root / path).unlink(missing_ok=True)

    def copy(self, source: str, target: str) -> None:
        """Copy a file under a temporary name, flush it to the disk and rename it."""
        with self._named("copied", source):
            try:
                self._copy(self._root / source, self._root / target)
            except FileNotFoundError:
                raise FileMissing(source) from None

    @contextmanager
    def fetched(self, path: str) -> Iterator[Path]:
        """Return the file itself."""
        with self._named("read", path):
            if not (self._root / path).is_file():
                raise FileMissing(path)
        yield self._root / path

    def put(self, source: Path, path: str) -> None:
        """Copy a file of this machine to where it belongs, as `copy` does."""
        with self._named("written", path):
            self._copy(source, self._root / path)

    def _copy(self, source: Path, final: Path) -> None:
        _make_folder(final.parent)
        temporary = final.with_name(f".{final.name}.{uuid.uuid4()}.tmp")
        try:
            with source.open("rb") as content, temporary.open("xb") as file:
                shutil.copyfileobj(content, file, _CHUNK_BYTES)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)
        _flush_folder(final.parent)

    @contextmanager
    def _named(self, act: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            reason = problem.strerror or str(problem)
            where = self._root / path
            kind = StoreForbidden if isinstance(problem, PermissionError) else StoreUnreachable
            raise kind(
                f"The location {self._location} could not be {act} ({where}: {reason}); "
                "make it a folder that this user may read and write."
            ) from problem


def _entry(entry: os.DirEntry[str]) -> Entry | None:
    """Return what an entry is; None when it went away after the folder was read, as temporary files do."""
    try:
        return Entry(entry.name, entry.stat().st_size, entry.is_dir())
    except FileNotFoundError:
        return None


def _unless_missing(problem: OSError) -> None:
    """A folder that does not exist, or went away while its parent was walked, has no files; any other trouble is told."""
    if not isinstance(problem, FileNotFoundError):
        raise problem


@contextmanager
def _temporary(final: Path, content: bytes) -> Iterator[Path]:
    """Write content to the disk beside its final name, under one that Spark ignores, and leave nothing there."""
    temporary = final.with_name(f".{final.name}.{uuid.uuid4()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each one's name flushed to the disk."""
    made = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for part in reversed(made):
        _flush_folder(part.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
