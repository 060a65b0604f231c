"""The folder that a batch is written into, as the writer needs it: listed, measured, moved to where readers look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.positions.spans import PositionSpan
from exactlyonce_spark.connectors.files.failures import unwritable

Spans = tuple[PositionSpan, ...]


class RowsMissing(ExactlyOnceError):
    """The files hold another number of rows than the query gave to their writer. Nothing has landed; the batch runs again."""


class FolderUnwritable(Unreachable):
    """The disk takes no more files, or does not let this process write."""


@contextmanager
def told_if_unwritable() -> Iterator[None]:
    """Raise what the disk refuses as FolderUnwritable."""
    try:
        yield
    except OSError as problem:
        raise FolderUnwritable(unwritable(str(problem))) from problem


@dataclass(frozen=True, slots=True)
class FileFound:
    """A file below a sink's folder, by its path from there."""

    path: str
    size_bytes: int
    modified_milliseconds: int
    status: Any = field(default=None, compare=False)
    """What the file system itself says of it."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What a data file says of itself; text formats say nothing."""

    rows: int | None = None
    spans: Spans = ()
    """The source positions that its statistics tell."""
    without_dictionary: frozenset[str] = frozenset()
    """The columns of a Parquet file, by their paths, whose values are in no dictionary."""


class Folder(Protocol):
    """The files below one location. Paths are those from the location on."""

    def files_below(self, folder: str) -> Iterator[FileFound]:
        """Yield each file below a folder, by path; checksums are left out."""
        ...

    def footer(self, file: FileFound) -> Footer:
        """Return what a file says of itself."""
        ...

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it."""
        ...

    def move(self, source: str, target: str) -> FileFound:
        """Rename a file to a name that nobody else uses, and return it as it is there."""
        ...

    def remove(self, folder: str) -> None:
        """Remove a folder with what is left in it."""
        ...


def holds_rows(path: str) -> bool:
    """Whether a file below an attempt's folder is one of rows, by its path from there. Performs no I/O.

    Whatever else is there is a committer's own: S3A's magic committer only logs that it could not remove `__magic…`, and the
    lists of uploads in it are JSON, which readers would count as rows; a job on a disk may leave an attempt of a task in
    `_temporary`. Spark's readers leave out the same names, and `_column=value` is none of them.

    Source: HadoopFSUtils.shouldFilterOutPathName, Spark 4.2.0; MagicS3GuardCommitter.cleanupStagingDirs, Hadoop 3.5.
    """
    return not any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in path.split("/"))


def not_renamed(source: str, target: str, why: str = "") -> RowsMissing:
    """Return what is wrong where a file could not be moved."""
    said = f" ({why})" if why else ""
    return RowsMissing(
        f"{source} could not be renamed to {target}{said}; nothing of its batch has landed and it runs again."
    )
