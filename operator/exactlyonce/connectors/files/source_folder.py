"""The files of a folder on a disk, and their lines; each read proves that the file is the one that was listed."""

from __future__ import annotations

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
            FileUnreadable: if a name is not UTF-8.
        """
        try:
            return tuple(self._below(self._root))
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

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield the lines of a file, and require before and after that it is the one that was listed; see `lines_of`.

        Raises:
            FileVanished, FileChanged: if it is not.
            FileUnreadable: if it is not gzip, or a line is too long.
            SourceRefused, SourceUnreachable: if it cannot be read.
        """
        named = f"{self.location.rstrip('/')}/{file.path}"
        try:
            with (self._root / file.path).open("rb") as opened:
                self._require_same(file, opened)
                yield from lines_of(named, file.name, opened)
                self._require_same(file, opened)
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise vanished(named) from problem
        except PermissionError as problem:
            raise SourceRefused(f"{named} may not be read; let the user of the tasks read it.") from problem
        except OSError as problem:
            raise SourceUnreachable(f"{named} could not be read ({problem.strerror or problem}).") from problem

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

    def _below(self, folder: Path) -> Iterator[SourceFile]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                try:
                    if self._names.recursive and entry.is_dir(follow_symlinks=False):
                        yield from self._below(Path(entry.path))
                        continue
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # it went away after the folder was read
                path = self._relative(entry.path)
                if stat.S_ISREG(found.st_mode) and self._names.fits(path):
                    yield _source_file(path, found)

    def _relative(self, path: str) -> str:
        found = Path(path).relative_to(self._root).as_posix()
        try:
            found.encode()
        except UnicodeEncodeError as problem:
            shown = found.encode(errors="replace").decode()
            raise FileUnreadable(
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
        raise SourceRefused(
            f"{path} has landed and may not be taken away ({problem.filename}); let the user of the driver write to both "
            "folders, or set cleanSource: Off."
        ) from problem
    except OSError as problem:
        raise SourceUnreachable(
            f"{path} has landed and could not be taken away ({problem.strerror or problem}); archivePath has to be on the "
            "volume of path."
        ) from problem
