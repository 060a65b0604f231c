"""The files of a folder on S3, and their lines; each read is of exactly the object that was listed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from exactlyonce.checkpoint.s3_archive import Copied, copies
from exactlyonce.checkpoint.s3_versions import ObjectVersion, OtherVersion, S3Versions
from exactlyonce.checkpoint.store import FileMissing
from exactlyonce.connectors.files.source_lines import Line, NameFilter, changed, lines_of, vanished
from exactlyonce.connectors.files.source_position import SourceFile
from exactlyonce.errors import SourceRefused, SourceUnreachable, StoreForbidden, StoreUnreachable

log = logging.getLogger("exactlyonce.files")

_STAYS = {
    Copied.TAKEN: "%s has landed and stays where it is: there is another object of its name in %s.",
    Copied.TOO_LARGE: "%s has landed and stays where it is: it is too large for one copy into %s.",
}


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

    def named(self, file: SourceFile) -> str:
        """Return what an object is called in sentences."""
        return f"{self.location}/{file.path}"

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[BinaryIO]:
        """Open an object in which a reader may seek; each part that is read is of the one that was listed.

        Raises:
            FileVanished, FileChanged: if it is another one by now.
            SourceRefused, SourceUnreachable: if it cannot be read.
        """
        with self._telling(file):
            yield self._store.seekable(file.path, file.version, file.size_bytes)

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield the lines of an object that is still the one that was listed; see `source_lines.lines_of`.

        Raises:
            FileVanished, FileChanged, SourceRefused, SourceUnreachable: as `opened`.
            FileUnreadable: if it is not gzip, or a line is too long.
        """
        with self._telling(file), self._store.reading(file.path, file.version) as opened:
            yield from lines_of(self.named(file), file.name, opened)

    @contextmanager
    def _telling(self, file: SourceFile) -> Iterator[None]:
        """Tell of the source what goes wrong with an object that is read."""
        named = self.named(file)
        try:
            yield
        except FileMissing as problem:
            raise vanished(named) from problem
        except OtherVersion as problem:
            raise changed(f"{named} (its ETag is no longer {file.version})") from problem
        except StoreForbidden as problem:
            raise SourceRefused(str(problem)) from problem
        except StoreUnreachable as problem:
            raise SourceUnreachable(str(problem)) from problem

    def remove(self, files: Iterable[SourceFile]) -> None:
        """Remove objects that are still as they were listed, 1,000 with each request; a service may ignore that condition.

        Raises:
            SourceRefused, SourceUnreachable: if they cannot be removed.
        """
        with _taking_away():
            self._store.delete_listed([(file.path, file.version) for file in files])

    def archive(self, files: Iterable[SourceFile], into: str) -> None:
        """Copy objects that are still as they were listed to the same paths below another folder, and then remove them.

        One that is there already is never replaced: then the object is left where it is, as is one that S3 does not copy.

        Raises:
            SourceRefused, SourceUnreachable: if one cannot be copied or removed.
        """
        listed = {file.path: file for file in files}
        with _taking_away():
            target = self._store.beside(into)
            found = copies(self._store, target, [(it.path, it.version, it.size_bytes) for it in listed.values()])
            for path, outcome in found:
                if outcome in _STAYS:
                    log.warning(_STAYS[outcome], self.named(listed[path]), into)
            there = [listed[path] for path, outcome in found if outcome is Copied.THERE]
            self._store.delete_listed([(file.path, file.version) for file in there])


@contextmanager
def _taking_away() -> Iterator[None]:
    """Tell of the source what goes wrong with objects that are to go."""
    try:
        yield
    except StoreForbidden as problem:
        raise SourceRefused(f"{problem} Allow it, or set cleanSource: Off.") from problem
    except StoreUnreachable as problem:
        raise SourceUnreachable(str(problem)) from problem


def _source_file(found: ObjectVersion) -> SourceFile:
    return SourceFile(found.path, found.size_bytes, found.modified_milliseconds, found.tag)
