"""The files of a folder on a disk, and their lines; each read proves that the file is the one that was listed."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from exactlyonce.connectors.files.source_plan import FileChanged, difference
from exactlyonce.connectors.files.source_position import SourceFile
from exactlyonce.errors import OriginMissing, Refused, SourceRefused, SourceUnreachable
from exactlyonce.schema.places import plain_path

MOST_LINE_BYTES = 64 * 1024 * 1024
"""No line is longer: a task holds one several times over."""

_GZIP = ".gz"

_PLAN_AGAIN = (
    "Nothing of its batch has landed: put the file back as it was, or change maxFilesPerTrigger of the source, and the batch "
    "is planned again with the files as they are."
)


class FileVanished(Refused):
    """A file that a batch was planned with is gone."""


class FileUnreadable(Refused):
    """A file has a name, a compression or a line that cannot be read."""


class Line(NamedTuple):
    """One line of a file, without its end; lines are numbered from 1 on."""

    number: int
    value: bytes


class LocalFolder:
    """A folder of files; `location` is as the user names it."""

    def __init__(self, location: str, file_names: str = "*", *, recursive: bool = False) -> None:
        self.location = location
        self._root = Path(plain_path(location))
        self._file_names = file_names
        self._recursive = recursive

    def files(self) -> tuple[SourceFile, ...]:
        """Return the files whose names fit, in any order. Hidden ones, `.name` and `_name`, are left out, as Spark does.

        Links to files are followed, and links to folders are not: they may lead back.

        Source: HadoopFSUtils.shouldFilterOutPathName.

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
        """Yield the lines of a file, and require before and after that it is the one that was listed.

        A name that ends with `.gz` means gzip. The last line counts whether or not a line break ends it.

        Raises:
            FileVanished, FileChanged: if it is not.
            FileUnreadable: if it is not gzip, or a line is too long.
            SourceRefused, SourceUnreachable: if it cannot be read.
        """
        path = self._root / file.path
        try:
            with path.open("rb") as opened:
                self._require_same(file, opened)
                with cast("BinaryIO", gzip.open(opened) if path.name.endswith(_GZIP) else opened) as plain:
                    yield from self._lines(file, plain)
                    self._require_same(file, opened)
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise FileVanished(f"{self._named(file)} was planned into a batch and is gone. {_PLAN_AGAIN}") from problem
        except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
            raise FileUnreadable(
                f"{self._named(file)} is not a whole gzip file ({problem}); replace it by a whole one of another name. "
                f"{_PLAN_AGAIN}"
            ) from problem
        except PermissionError as problem:
            raise SourceRefused(f"{self._named(file)} may not be read; let the user of the tasks read it.") from problem
        except OSError as problem:
            raise SourceUnreachable(
                f"{self._named(file)} could not be read ({problem.strerror or problem})."
            ) from problem

    def _below(self, folder: Path) -> Iterator[SourceFile]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")):
                    continue
                try:
                    if self._recursive and entry.is_dir(follow_symlinks=False):
                        yield from self._below(Path(entry.path))
                        continue
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # it went away after the folder was read
                if stat.S_ISREG(found.st_mode) and fnmatchcase(entry.name, self._file_names):
                    yield _source_file(self._relative(entry.path), found)

    def _relative(self, path: str) -> str:
        found = Path(path).relative_to(self._root).as_posix()
        try:
            found.encode()
        except UnicodeEncodeError as problem:
            raise FileUnreadable(
                f"{self.location} has a file whose name is not UTF-8 ({found.encode(errors='replace').decode()}); rename it."
            ) from problem
        return found

    def _require_same(self, file: SourceFile, opened: BinaryIO) -> None:
        found = _source_file(file.path, os.fstat(opened.fileno()))
        if found != file:
            raise FileChanged(
                f"{difference(file, found)} in {self.location} was written to after it had been planned into a batch. "
                f"{_PLAN_AGAIN}"
            )

    def _lines(self, file: SourceFile, plain: BinaryIO) -> Iterator[Line]:
        number = 0
        while line := plain.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(line) > MOST_LINE_BYTES:
                raise FileUnreadable(
                    f"Line {number} of {self._named(file)} has more than {MOST_LINE_BYTES} bytes; it is not a file of lines. "
                    f"Leave it out by fileNames. {_PLAN_AGAIN}"
                )
            yield Line(number, line.removesuffix(b"\n").removesuffix(b"\r"))

    def _named(self, file: SourceFile) -> str:
        return f"{self.location.rstrip('/')}/{file.path}"


def _source_file(path: str, found: os.stat_result) -> SourceFile:
    return SourceFile(path, found.st_size, found.st_mtime_ns // 1_000_000, str(found.st_mtime_ns))
