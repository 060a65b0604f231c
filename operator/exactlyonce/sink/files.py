"""The port to the files that a stream has landed, for readers without Spark and for cleaning up. Nothing here performs I/O.

The operator never opens an output folder: only the driver, with the stream's own login, and a person at the command line,
with theirs, read or remove a stream's files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exactlyonce.errors import Refused
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.positions.spans import PositionSpan


class StreamUnknown(Refused):
    """The ledger has no row of the stream, so it says of no file whether it counts."""


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A file whose rows count. `address` is what a reader opens; `rows` is None where the format does not record it.

    `batch` is None for a file that a replay has landed, until the next batch takes it over, and for one of a query of Spark's
    own, which was there before the stream.
    """

    address: str
    batch: BatchNumber | None
    size_bytes: int
    rows: int | None
    spans: tuple[PositionSpan, ...]


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that does not count and never will, or never again; `path` is relative to the folder."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Files of one folder that can become one; `address` is the folder's, and what they have is counted over all of them."""

    address: str
    files: int
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The position of a partition's last row that readers are shown; `path` is the file, below the folder, that holds it."""

    partition: Partition
    last: int
    path: str


class OutputFolder(Protocol):
    """The folder that a stream writes to."""

    @property
    def location(self) -> str:
        """The folder as a person names it."""
        ...

    def address(self, path: str) -> str:
        """Return what a reader opens for a file at a path below the folder."""
        ...

    def orphans(self, ledger: Ledger, stream_id: str) -> tuple[Orphan, ...]:
        """Return what can be removed, also while drivers are running.

        Raises:
            StreamUnknown: if the ledger does not know the stream.
            Refused: if the folder belongs to somebody else, or shows more than this ledger knows.
        """
        ...

    def former(self) -> tuple[LandedFile, ...]:
        """Return the files of the query of Spark's own whose output the stream continues; none where it continues none."""
        ...

    def rebuilt(self, stream_id: str) -> tuple[Rebuilt, ...]:
        """Return the last row of each partition that readers are shown; the ledger is not asked.

        Raises:
            Refused: if the folder belongs to somebody else, or the files do not tell.
        """
        ...

    def remove(self, orphans: Sequence[Orphan]) -> None:
        """Remove orphans; one that is gone is as good as removed."""
        ...

    def small_files(self, ledger: Ledger, stream_id: str) -> tuple[SmallFiles, ...]:
        """Return which files would be merged now.

        Raises:
            StreamUnknown: if the ledger does not know the stream.
            Refused: if the folder belongs to somebody else, shows more than this ledger knows, or has files of another kind.
        """
        ...

    def compact(self, ledger: Ledger, stream_id: str) -> Iterator[SmallFiles]:
        """Merge small files, also while drivers are running, and yield what has become one; readers count the same all along.

        Raises:
            StreamUnknown: if the ledger does not know the stream.
            Refused: if something does not fit, at the end if it was left out; what was yielded before stays.
            ExactlyOnceError: if another compaction was at work, or a store does not answer; it can be run again.
        """
        ...


class FileSink(Protocol):
    """A kind of sink that writes files."""

    def landed(self, spec: object, ledger: Ledger, stream_id: str) -> tuple[LandedFile, ...]:
        """Return the files that count, by batch; the ledger alone is asked.

        Raises:
            StreamUnknown: if the ledger does not know the stream.
        """
        ...

    def folder(self, spec: object, secret: Mapping[str, str]) -> OutputFolder:
        """Return the folder that a stream with this spec writes to; nothing is connected to yet.

        Raises:
            SecretMissing: if the secret lacks what is needed.
        """
        ...
