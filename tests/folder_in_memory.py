"""A folder in memory, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from exactlyonce.connectors.files.source_folder import Line
from exactlyonce.connectors.files.source_position import SourceFile
from exactlyonce_spark.connectors.files.source_planner import Clock


def source_file(path: str, seconds: int = 1, size_bytes: int = 10) -> SourceFile:
    """Return a file that was last written to so many seconds after 1970."""
    return SourceFile(path, size_bytes, seconds * 1000, str(seconds))


@dataclass
class MemoryFolder:
    """Files by path."""

    held: dict[str, SourceFile] = field(default_factory=dict)
    location: str = "/incoming"
    lines_each: int = 2

    def put(self, *files: SourceFile) -> None:
        """Put files into it, over those of the same paths."""
        self.held |= {file.path: file for file in files}

    def files(self) -> tuple[SourceFile, ...]:
        """Return them, in an order that says nothing."""
        return tuple(self.held[path] for path in sorted(self.held, reverse=True))

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield lines."""
        assert self.held[file.path] == file
        yield from (Line(number + 1, f"{file.path} {number}".encode()) for number in range(self.lines_each))


@dataclass
class SetClock(Clock):
    """A clock that moves only where somebody sleeps."""

    now: float = 1_000_000.0
    slept: list[float] = field(default_factory=list)

    def seconds(self) -> float:
        """Return the time."""
        return self.now

    def elapsed_seconds(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now += seconds
