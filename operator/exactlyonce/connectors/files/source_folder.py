"""The files of a folder on a disk, and their lines; each read proves that the file is the one that was listed."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from exactlyonce.connectors.files.source_lines import (
    FileUnreadable,
    Line,
    NameFilter,
    NameUnreadable,
    changed,
    is_hidden,
    lines_of,
    vanished,
)
from exactlyonce.connectors.files.source_plan import difference
from exactlyonce.connectors.files.source_position import SourceFile
from exactlyonce.errors import OriginMissing, SourceRefused, SourceUnreachable
from exactlyonce.schema.places import plain_path

log = logging.getLogger("exactlyonce.files")

EVERY_NAME = NameFilter()


class LocalFolder:
    """A folder of files; `location` is as the user names it."""

    def __init__(self, location: str, names: NameFilter = EVERY_NAME) -> None:
        self.location = location
        self._root = Path(plain_path(location))
        self._names = names

    def files(self) -> tuple[SourceFile, ...]:
        """Return the files whose names fit, in any order.

        Links to files are followed, and links to folders are not: they may lead back.

        Raises:
            OriginMissing: if there is no such folder.
            SourceRefused, SourceUnreachable: if it cannot be listed.
            NameUnreadable: if a name is not UTF-8.
        """
        try:
            return tuple(self._below(str(self._root)))
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise OriginMissing(
                f"There is no folder {self.location}; create it, or correct the path of the source."
            ) from problem
        except PermissionError as problem:
            raise SourceRefused(
                f"{problem.filename} may not be listed; let the user of the driver read and enter it."
            ) from problem
        except OSError as problem:
            raise SourceUnreachable(
                f"{self.location} could not be listed ({problem.strerror or problem})."
            ) from problem

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[BinaryIO]:
        """Open a file, and require before and after what is done with it that it is the one that was listed.

        Raises:
            FileVanished, FileChanged: if it is not.
            SourceRefused, SourceUnreachable: if it cannot be read.
        """
        named = self.named(file)
        try:
            with (self._root / file.path).open("rb") as opened:
                self._require_same(file, opened)
                try:
                    yield opened
                except FileUnreadable:
                    self._require_same(file, opened)  # what is half written is no damage
                    raise
                self._require_same(file, opened)
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise vanished(named) from problem
        except PermissionError as problem:
            raise SourceRefused(f"{named} may not be read; let the user of the tasks read it.") from problem
        except OSError as problem:
            raise SourceUnreachable(f"{named} could not be read ({problem.strerror or problem}).") from problem

    def named(self, file: SourceFile) -> str:
        """Return what a file is called in sentences."""
        return f"{self.location.rstrip('/')}/{file.path}"

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield the lines of a file that is still the one that was listed; see `lines_of`.

        Raises:
            FileVanished, FileChanged, SourceRefused, SourceUnreachable: as `opened`.
            FileUnreadable: if it is not gzip, or a line is too long.
        """
        with self.opened(file) as opened:
            yield from lines_of(self.named(file), file.name, opened)

    def remove(self, files: Iterable[SourceFile]) -> None:
        """Remove files that are still as they were listed; one that is not, or is gone, is left.

        Raises:
            SourceRefused, SourceUnreachable: if one cannot be removed.
        """
        for file in files:
            path = self._root / file.path
            with _telling(path):
                if _is_still(file, path):
                    path.unlink(missing_ok=True)

    def archive(self, files: Iterable[SourceFile], into: str) -> None:
        """Move files that are still as they were listed to the same paths below another folder of this volume.

        One that is there already is never replaced: then the file is left where it is.

        Raises:
            SourceRefused, SourceUnreachable: if one cannot be moved.
        """
        for file in files:
            path, target = self._root / file.path, Path(plain_path(into)) / file.path
            with _telling(path):
                if _is_still(file, path):
                    _move(path, target)

    def _below(self, folder: str, above: str = "") -> Iterator[SourceFile]:
        """Yield what is in a folder; `above` is its path from the source's folder on, with a slash at its end.

        Paths are put together as texts: a million objects of `Path` take longer than the file system.
        """
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                try:
                    if self._names.recursive and entry.is_dir(follow_symlinks=False):
                        yield from self._below(entry.path, f"{above}{entry.name}/")
                        continue
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # it went away after the folder was read
                path = self._readable(above + entry.name)
                if stat.S_ISREG(found.st_mode) and self._names.fits(path):
                    yield _source_file(path, found)

    def _readable(self, found: str) -> str:
        try:
            found.encode()
        except UnicodeEncodeError as problem:
            shown = found.encode(errors="replace").decode()
            raise NameUnreadable(
                f"{self.location} has a file whose name is not UTF-8 ({shown}); rename it."
            ) from problem
        return found

    def _require_same(self, file: SourceFile, opened: BinaryIO) -> None:
        found = _source_file(file.path, os.fstat(opened.fileno()))
        if found != file:
            raise changed(f"{difference(file, found)} in {self.location}")


def _source_file(path: str, found: os.stat_result) -> SourceFile:
    return SourceFile(path, found.st_size, found.st_mtime_ns // 1_000_000, str(found.st_mtime_ns))


def _is_still(file: SourceFile, path: Path) -> bool:
    try:
        return _source_file(file.path, path.stat()) == file
    except FileNotFoundError:
        return False


def _move(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)  # unlike a rename, it fails where the name is taken
    except FileExistsError:
        if not target.samefile(path):  # else the process died behind the link
            log.warning("%s has landed and stays where it is: %s exists already.", path, target)
            return
    path.unlink()


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Tell of the source what goes wrong with a file that is to go."""
    try:
        yield
    except PermissionError as problem:
        if problem.errno == errno.EPERM:
            raise SourceRefused(
                f"{path} has landed and could not be taken away ({problem.strerror}): either it belongs to another user and "
                "the system protects hard links (fs.protected_hardlinks) or the folder (its sticky bit), or the file system "
                "has no hard links. Let the user of the driver own the files or write to them, or set cleanSource: Delete or "
                "Off."
            ) from problem
        raise SourceRefused(
            f"{path} has landed and may not be taken away ({problem.filename}); let the user of the driver write to both "
            "folders, or set cleanSource: Off."
        ) from problem
    except OSError as problem:
        if problem.errno == errno.EXDEV:
            raise SourceRefused(
                f"{path} has landed and could not be moved, since archivePath is on another volume; name a folder on the "
                "volume of path."
            ) from problem
        raise SourceUnreachable(
            f"{path} has landed and could not be taken away ({problem.strerror or problem})."
        ) from problem
