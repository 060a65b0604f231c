"""A sink's folder on a disk, without the JVM: what takes it a dozen calls per file is one system call here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from exactlyonce.connectors.files.parquet import footer_of, spans_of
from exactlyonce.connectors.files.spec import FileFormat
from exactlyonce_spark.connectors.files.dictionaries import without_dictionary
from exactlyonce_spark.connectors.files.folders import FileFound, Footer, not_renamed
from exactlyonce_spark.crash_points import reached


class LocalFolder:
    """The files below one location on this machine, or on a volume that is mounted there."""

    def __init__(self, location: str, file_format: FileFormat, *, with_spans: bool) -> None:
        self._root = Path(location)
        self._format = file_format
        self._with_spans = with_spans

    def files_below(self, folder: str) -> Iterator[FileFound]:
        """Yield each file below a folder, by path; checksums of Hadoop's, which are hidden files, are left out."""
        found = [
            Path(above, name)
            for above, _, names in os.walk(self._root / folder, onerror=_raise)
            for name in names
            if not _is_checksum(name)
        ]
        for place in sorted(found):
            yield self._found(place)

    def footer(self, file: FileFound) -> Footer:
        """Return what a file says of itself."""
        place = self._root / file.path
        match self._format:
            case FileFormat.PARQUET:
                found = footer_of(place)
                spans = spans_of(found) if self._with_spans else ()
                return Footer(int(found.num_rows), spans, without_dictionary(found))
            case FileFormat.ORC:
                import pyarrow.orc

                return Footer(int(pyarrow.orc.ORCFile(place).nrows))
            case FileFormat.JSON | FileFormat.CSV:
                return Footer()

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it."""
        (self._root / folder).mkdir(parents=True, exist_ok=True)

    def move(self, source: str, target: str) -> FileFound:
        """Rename a file, and the checksum that Hadoop's readers compare it with, to a name that nobody else uses.

        The checksum goes first: a reader finds no file without it.
        """
        before, after = self._root / source, self._root / target
        if after.exists():
            raise not_renamed(source, target, "there is a file of that name")
        checksum = _checksum(before)
        if checksum.exists():
            os.rename(checksum, _checksum(after))
            reached("files.checksum-moved")
        os.rename(before, after)
        return self._found(after)

    def remove(self, folder: str) -> None:
        """Remove a folder with what is left in it."""
        shutil.rmtree(self._root / folder)

    def _found(self, place: Path) -> FileFound:
        status = place.stat()
        return FileFound(place.relative_to(self._root).as_posix(), status.st_size, status.st_mtime_ns // 1_000_000)


def _checksum(place: Path) -> Path:
    """Return where Hadoop's ChecksumFileSystem keeps the checksum of a file."""
    return place.with_name(f".{place.name}.crc")


def _is_checksum(name: str) -> bool:
    return name.startswith(".") and name.endswith(".crc")


def _raise(problem: OSError) -> None:
    """A folder that cannot be listed holds rows: text formats do not tell how many, so nobody would miss them."""
    raise problem
