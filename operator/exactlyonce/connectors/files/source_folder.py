"""The files of a folder on a disk, and their lines; each read proves that the file is the one that was listed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
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
