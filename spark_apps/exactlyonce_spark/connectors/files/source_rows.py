"""Lines of files as the rows that Spark's readers of a folder yield. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from exactlyonce.connectors.files.source_folder import Line
from exactlyonce.connectors.files.source_position import SourceFile, after
from exactlyonce.connectors.files.source_spec import KEY

POSITION_DIGITS = 87
"""Of a position as one integer of 288 bits; as texts of one width they are ordered as they are as integers."""

SCHEMA = (
    "value binary, folder string, partition int, file string, line bigint, modification_time timestamp, position string"
)
_TYPES: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "folder": pa.string(),
    "partition": pa.int32(),
    "file": pa.string(),
    "line": pa.int64(),
    "modification_time": pa.timestamp("us", tz="UTC"),
    "position": pa.string(),
}
_ARROW = pa.schema(_TYPES)
_ROWS, _VALUE_BYTES = 2000, 8 * 1024 * 1024
"""The most of one Arrow batch, which a task holds several times over; a line that is larger is a batch of its own."""


class Lines(Protocol):
    """What yields the lines of a file (`exactlyonce.connectors.files.source_folder.LocalFolder`)."""

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield them."""
        ...


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file, and the position in front of it: that of a line is behind it by the number of the line."""

    file: SourceFile
    position: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Which lines of a file are records."""

    header_lines: int = 0
    blank_lines: bool = False

    def takes(self, line: Line) -> bool:
        """Whether a line is a record."""
        return line.number > self.header_lines and (self.blank_lines or bool(line.value.strip()))


def placed(start: int, files: Iterable[SourceFile]) -> list[PlacedFile]:
    """Return the files that follow on a position, each with the position in front of it. Performs no I/O."""
    found = []
    for file in files:
        found.append(PlacedFile(file, start))
        start = after(start, [file])
    return found


def shared_out(files: Iterable[PlacedFile], tasks: int) -> list[tuple[PlacedFile, ...]]:
    """Return the files of each task: about as many bytes for each, in the order of reading within one. Performs no I/O."""
    of_tasks: list[list[PlacedFile]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for each in sorted(files, key=lambda each: (-each.file.size_bytes, each.position)):
        least = sizes.index(min(sizes))
        of_tasks[least].append(each)
        sizes[least] += each.file.size_bytes + 1
    return [tuple(sorted(those, key=lambda each: each.position)) for those in of_tasks if those]


def arrow_batches(folder: Lines, origin: str, files: Iterable[PlacedFile], taken: Taken) -> Iterator[pa.RecordBatch]:
    """Return the records of files as rows of `SCHEMA`.

    Raises:
        FileVanished, FileChanged, FileUnreadable, SourceRefused, SourceUnreachable: as `Lines.lines`.
    """
    for rows in _bounded(_rows(folder, origin, files, taken)):
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)],
            schema=_ARROW,
        )


def _rows(folder: Lines, origin: str, files: Iterable[PlacedFile], taken: Taken) -> Iterator[tuple[Any, ...]]:
    for each in files:
        file = each.file
        for line in folder.lines(file):
            if taken.takes(line):
                position = str(each.position + line.number).zfill(POSITION_DIGITS)
                modified = file.modified_milliseconds * 1000
                yield line.value, origin, KEY, file.path, line.number, modified, position


def _bounded(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    held: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        if held and (len(held) == _ROWS or size + len(row[0]) > _VALUE_BYTES):
            yield held
            held, size = [], 0
        held.append(row)
        size += len(row[0])
    if held:
        yield held
