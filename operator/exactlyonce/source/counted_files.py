"""A source whose positions count no records, and of which the files that have not landed can be counted from outside.

Nothing here performs I/O; what counts does. A count that is not whole says why: it is never taken for less than it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from exactlyonce.checkpoint.store import ErasableStore
from exactlyonce.positions.ranges import Partition


@dataclass(frozen=True, slots=True)
class FilesNotLanded:
    """How many files have not landed, their bytes as they are stored, and when the oldest was last written to.

    `at_least_because` is None where these are all; else it is why there may be more, as a sentence. Then the oldest may be
    older still. `size_bytes` and `oldest_timestamp` are None where nothing is known of them.
    """

    files: int
    size_bytes: int | None
    oldest_timestamp: float | None
    at_least_because: str | None = None

    @property
    def is_none(self) -> bool:
        """Whether it is known that no file waits."""
        return self.files == 0 and self.at_least_because is None


class FileCounter(Protocol):
    """Counts the files of one stream. Blocking, bounded in time and in how much is looked at."""

    @property
    def place(self) -> str:
        """What is asked, such as a service and a bucket: one question is at it at a time."""
        ...

    def count(self, landed: Mapping[Partition, int]) -> FilesNotLanded:
        """Return what a stream that has landed up to these positions has not.

        Raises:
            ExactlyOnceError: with a sentence that says why nothing is known.
        """
        ...


@runtime_checkable
class CountsFiles(Protocol):
    """A `SourceAddress` of which files are counted."""

    def counter(self, checkpoints: ErasableStore) -> FileCounter:
        """Return what counts its files; `checkpoints` is the store of the stream's checkpoint. Nothing is asked yet."""
        ...
