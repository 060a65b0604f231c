"""Lines of files, and rows of columnar ones, as the rows that Spark's readers of a folder yield. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from exactlyonce.api.columns import Column
from exactlyonce.api.format_type import FormatType
from exactlyonce.connectors.files.source_lines import Line
from exactlyonce.connectors.files.source_position import SourceFile, after
from exactlyonce.connectors.files.source_spec import KEY
from exactlyonce.positions.ranges import Partition
from exactlyonce_spark.connectors.files.columnar import rows_of
from exactlyonce_spark.decode.records import MALFORMED, MALFORMED_DDL, VALUE, RecordDecoder, Records, lacking
from exactlyonce_spark.decode.unread import LeftOut

POSITION_DIGITS = 87
"""Of a position as one integer of 288 bits; as texts of one width they are ordered as they are as integers."""

COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "folder": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "file": ("string", pa.string()),
    "line": ("bigint", pa.int64()),
    "modification_time": ("timestamp", pa.timestamp("us", tz="UTC")),
    "position": ("string", pa.string()),
}
"""The columns of a line, with Spark's types and those of Arrow; behind them come `value` and `malformed`, decoded."""

_ROWS, _VALUE_BYTES = 2000, 8 * 1024 * 1024
"""The most of one Arrow batch, which a task holds several times over; a line that is larger is a batch of its own."""


class Lines(Protocol):
    """What yields the lines of a file (`exactlyonce.connectors.files.source_folder.LocalFolder`)."""

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield them."""
        ...


class Opened(Protocol):
    """What opens a file for a reader that seeks in it (`exactlyonce.connectors.files.source_folder.LocalFolder`)."""

    def opened(self, file: SourceFile) -> AbstractContextManager[BinaryIO]:
        """Open it."""
        ...

    def named(self, file: SourceFile) -> str:
        """Return what it is called in sentences."""
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


def schema_text(value: str) -> str:
    """Return the columns of a line as DDL; `value` is Spark's type of the decoded rows."""
    told = [f"{name} {type_}" for name, (type_, _) in COLUMNS.items()]
    return ", ".join((*told, f"{VALUE} {value}", f"{MALFORMED} {MALFORMED_DDL}"))


def arrow_batches(
    folder: Lines, origin: str, files: Iterable[PlacedFile], taken: Taken, decoder: RecordDecoder, left_out: LeftOut
) -> Iterator[pa.RecordBatch]:
    """Return the records of files as rows, decoded.

    Raises:
        FileVanished, FileChanged, FileUnreadable, SourceRefused, SourceUnreachable: as `Lines.lines`.
    """
    for rows in _bounded(_rows(folder, origin, files, taken)):
        values, *columns = zip(*rows, strict=True)
        arrays = [pa.array(column, type_) for column, (_, type_) in zip(columns, COLUMNS.values(), strict=True)]
        modified, positions = columns[4], columns[5]
        read = Records(
            pa.array(values, pa.binary()),
            lambda _place: None,
            modified.__getitem__,
            left_out=left_out.of_positions(Partition(origin, KEY), map(int, positions)),
        )
        yield pa.RecordBatch.from_arrays([*arrays, *decoder.decode(read)], names=[*COLUMNS, VALUE, MALFORMED])


def counts_in(folder: Lines, origin: str, files: Iterable[PlacedFile], taken: Taken) -> Iterator[int]:
    """Yield how many records files have, part by part; raises as `arrow_batches`."""
    return (len(rows) for rows in _bounded(_rows(folder, origin, files, taken)))


def columnar_batches(
    folder: Opened,
    origin: str,
    files: Iterable[PlacedFile],
    kind: FormatType,
    schema: pa.Schema,
    declared: Sequence[Column],
) -> Iterator[pa.RecordBatch]:
    """Return the rows of Parquet or ORC files; `schema` has their columns as the struct `value`, and where each row is.

    A row that lacks the value of a column that is `declared` NOT NULL is malformed.

    Raises:
        FileVanished, FileChanged, FileUnreadable, SourceRefused, SourceUnreachable: as `Opened.opened` and `columnar.rows_of`.
    """
    for each in files:
        file, number = each.file, 1
        with folder.opened(file) as opened:
            for values in rows_of(kind, folder.named(file), opened, schema.field("value").type):
                count = len(values)
                rows = pa.array(range(number, number + count), pa.int64())
                told = [
                    *(origin, KEY, file.path),
                    rows,
                    file.modified_milliseconds * 1000,
                    _positions(each.position, rows),
                ]
                yield pa.RecordBatch.from_arrays(
                    [
                        values,
                        lacking(values, declared, file.modified_milliseconds * 1000),
                        *(_column(it, field.type, count) for it, field in zip(told, list(schema)[2:], strict=True)),
                    ],
                    schema=schema,
                )
                number += count


def _column(told: Any, kind: Any, count: int) -> Any:
    return told if isinstance(told, pa.Array) else pa.repeat(pa.scalar(told, kind), count)


def _positions(start: int, rows: Any) -> Any:
    """Return the positions of rows behind one: only the last digits differ, so Arrow makes them."""
    head, tail = divmod(start, _TAIL)
    if tail + rows[-1].as_py() >= _TAIL:  # it carries, once in many files
        return pa.array([str(start + number).zfill(POSITION_DIGITS) for number in rows.to_pylist()], pa.string())
    tails = pc.utf8_lpad(pc.add(rows, tail).cast(pa.string()), _TAIL_DIGITS, "0")
    return pc.binary_join_element_wise(str(head).zfill(POSITION_DIGITS - _TAIL_DIGITS), tails, "")


_TAIL_DIGITS = 18
_TAIL = 10**_TAIL_DIGITS


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
