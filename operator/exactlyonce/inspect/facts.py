"""What was found in a checkpoint and in an output folder, before anything is made of it. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.positions.ranges import BatchNumber


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something that a person should know: a name for programs, and a sentence."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of a log; `content` is None where it was not read because nothing depends on it."""

    number: BatchNumber
    name: str
    size_bytes: int
    content: bytes | None = None
    checksums: bytes | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A folder of a log: its files by number, and the names of all other files in it, hidden ones too."""

    files: tuple[Listed, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def latest(self) -> BatchNumber | None:
        """The highest number."""
        return self.files[-1].number if self.files else None

    @property
    def numbers(self) -> tuple[BatchNumber, ...]:
        """Every number, in order."""
        return tuple(file.number for file in self.files)

    def file(self, number: int) -> Listed | None:
        """Return the file of a batch, or None."""
        return next((file for file in self.files if file.number == number), None)


@dataclass(frozen=True, slots=True)
class StateStore:
    """The state of one operator: how many partitions and files it has, and the latest version among them."""

    operator: str
    partitions: int
    files: int
    size_bytes: int
    latest_version: int | None


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint as it was found. `sources` has a log for each folder of `sources/`, by the source's number."""

    location: str
    metadata: bytes | None
    offsets: Log
    commits: Log
    sources: Mapping[int, Log] = field(default_factory=dict)
    state: tuple[StateStore, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """An output folder as it was found: the log of Spark's file sink, and every other file with its size in bytes.

    `files` is None where `_spark_metadata` alone was given.
    """

    location: str
    log: Log
    files: Mapping[str, int] | None
