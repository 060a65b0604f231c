"""The files of a folder on S3, and their lines; each read is of exactly the object that was listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from exactlyonce.checkpoint.s3_versions import ObjectVersion, OtherVersion, S3Versions
from exactlyonce.checkpoint.store import FileMissing
from exactlyonce.connectors.files.source_lines import Line, NameFilter, changed, lines_of, vanished
from exactlyonce.connectors.files.source_position import SourceFile
from exactlyonce.errors import SourceRefused, SourceUnreachable, StoreForbidden, StoreUnreachable


class S3Folder:
    """A folder of objects. To S3 a folder is nothing but its objects, so one that is not there is empty."""

    def __init__(self, store: S3Versions, names: NameFilter) -> None:
        self._store = store
        self._names = names

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        return self._store.location

    def files(self) -> tuple[SourceFile, ...]:
        """Return the objects whose names fit, in any order.

        Raises:
            SourceRefused, SourceUnreachable: if it cannot be listed.
        """
        try:
            found = self._store.versions(recursive=self._names.recursive)
            return tuple(_source_file(each) for each in found if self._names.fits(each.path))
        except StoreForbidden as problem:
            raise SourceRefused(str(problem)) from problem
        except StoreUnreachable as problem:
            raise SourceUnreachable(str(problem)) from problem

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield the lines of an object that is still the one that was listed; see `source_lines.lines_of`.

        Raises:
            FileVanished, FileChanged: if it is not.
            FileUnreadable: if it is not gzip, or a line is too long.
            SourceRefused, SourceUnreachable: if it cannot be read.
        """
        named = f"{self.location}/{file.path}"
        try:
            with self._store.reading(file.path, file.version) as opened:
                yield from lines_of(named, file.name, opened)
        except FileMissing as problem:
            raise vanished(named) from problem
        except OtherVersion as problem:
            raise changed(f"{named} (its ETag is no longer {file.version})") from problem
        except StoreForbidden as problem:
            raise SourceRefused(str(problem)) from problem
        except StoreUnreachable as problem:
            raise SourceUnreachable(str(problem)) from problem

    def remove(self, files: Iterable[SourceFile]) -> None:
        """Remove objects, 1,000 with each request.

        Raises:
            SourceRefused, SourceUnreachable: if they cannot be removed.
        """
        try:
            self._store.delete([file.path for file in files])
        except StoreForbidden as problem:
            raise SourceRefused(f"{problem} Allow it, or set cleanSource: Off.") from problem
        except StoreUnreachable as problem:
            raise SourceUnreachable(str(problem)) from problem

    def archive(self, files: Iterable[SourceFile], into: str) -> None:
        """Do nothing: a rule of the resource refuses it."""
        raise AssertionError("a folder on S3 has no archive")


def _source_file(found: ObjectVersion) -> SourceFile:
    return SourceFile(found.path, found.size_bytes, found.modified_milliseconds, found.tag)
