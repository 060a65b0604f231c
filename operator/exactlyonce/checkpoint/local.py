"""Checkpoints on a local disk or a mounted volume."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exactlyonce.checkpoint.store import AlreadyExists, Created, CreateOutcome, Entry, FileMissing
from exactlyonce.errors import StoreUnreachable


class LocalLogStore:
    """A `LogStore` over a folder of the local file system.

    A file is written under a hidden temporary name, flushed to the disk, and linked to its final name: link(2) fails
    when the name is taken, which makes the create conditional, and a reader never sees a part. Spark's own checksum
    files are not made; it reads a log without them (shared facts, proven in
    tests/integration/test_checkpoint_restarts.py).
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._root = Path(location.removeprefix("file://"))

    @property
    def location(self) -> str:
        """The folder as the user named it."""
        return self._location

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder; none when it does not exist."""
        with self._named("listed", folder):
            try:
                with os.scandir(self._root / folder) as entries:
                    found = [Entry(entry.name, entry.stat().st_size, entry.is_dir()) for entry in entries]
            except FileNotFoundError:
                return ()
        return tuple(sorted(found, key=lambda entry: entry.name))

    def read(self, path: str) -> bytes:
        """Return a file's content, or raise FileMissing."""
        with self._named("read", path):
            try:
                return (self._root / path).read_bytes()
            except (FileNotFoundError, IsADirectoryError):
                raise FileMissing(path) from None

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken."""
        final = self._root / path
        with self._named("created", path):
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._write_temporary(final, content)
            try:
                os.link(temporary, final)
            except FileExistsError:
                return AlreadyExists(final.read_bytes())
            finally:
                temporary.unlink()
            _flush_folder(final.parent)
        return Created()

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
                os.replace(self._write_temporary(final, content), final)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return True

    def _write_temporary(self, final: Path, content: bytes) -> Path:
        temporary = final.with_name(f".{final.name}.{uuid.uuid4()}.tmp")
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    @contextmanager
    def _named(self, act: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            reason = problem.strerror or str(problem)
            where = self._root / path
            raise StoreUnreachable(
                f"The checkpoint location {self._location} could not be {act} ({where}: {reason}); "
                "make it a folder that this user may read and write."
            ) from problem


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
