"""Rows as Doris reads them: a JSON object per line, in UTF-8. No pyspark here.

A batch of texts becomes lines column by column, by Arrow itself; any other one row by row, which is much slower.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exactlyonce_spark.connectors.doris.exchange import Piece

PIECE_BYTES = 1 << 20
_ARROW_BYTES = 1 << 28
"""So much of names and values: the lines of a batch have to fit into an Arrow array of texts, of 2 GiB, where a character takes
six bytes at most (a control)."""
_FIRST_PLAIN = 0x20
"""JSON escapes what comes before it, and quotes and backslashes."""
_LINE_BREAKS = str.maketrans("\r\n", "  ")
"""Of JSON: those inside of its texts are escaped."""


def lines_of_batches(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], documents: Collection[str], plain: Collection[str] = ()
) -> Iterator[Piece]:
    """Yield the rows of Arrow batches as lines; `columns` are in their order, whatever Spark calls them on their way.

    `documents` are as in `json_lines`. `plain` are the columns whose texts Spark made of numbers, times or truth values: they
    are in ASCII without a character that JSON escapes, and nobody looks for one.

    Raises:
        ValueError: if a document is no JSON, or a text no UTF-8.
    """
    name_bytes = len(json.dumps(list(columns), ensure_ascii=False).encode())
    for batch in batches:
        is_small = batch.nbytes + batch.num_rows * name_bytes <= _ARROW_BYTES
        if is_small and all(pa.types.is_string(column.type) for column in batch.columns):
            yield from _lines_of_texts(batch, columns, documents, plain)
        else:
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield from json_lines(rows, columns, documents)


def _lines_of_texts(
    batch: pa.RecordBatch, columns: Sequence[str], documents: Collection[str], plain: Collection[str]
) -> Iterator[Piece]:
    """Yield the lines of a batch. What opens a line ends the one before it: each text that is joined takes time per row."""
    parts: list[Any] = []
    between = "{"
    for name, column in zip(columns, batch.columns, strict=True):
        key = f"{between}{json.dumps(name, ensure_ascii=False)}:"
        if name not in plain and (name in documents or _has_to_be_escaped(column)):
            values = pa.array([_value(value, name in documents) for value in column.to_pylist()], pa.string())
        elif column.null_count:
            values = pc.fill_null(_joined('"', column, '"'), "null")
        else:  # its quotes are put beside its name and beside what follows, which makes each text once
            parts += [f'{key}"', column]
            between = '",'
            continue
        parts += [key, values]
        between = ","
    opening, *rest = parts
    lines = _joined(*rest, f"{between[:-1]}}}\n{opening}")
    # The texts of an array lie one behind the other.
    _, offsets, texts = lines.buffers()
    assert lines.offset == 0, "it was made here"
    end = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets])[-1].as_py()
    if end:
        yield opening.encode()
        yield memoryview(texts)[: end - len(opening.encode())]


def _has_to_be_escaped(column: Any) -> bool:
    """Whether a text has a character that JSON escapes. It is looked for in the bytes of all texts, one behind the other.

    Raises:
        ValueError: if a text is no UTF-8: Spark's may be any bytes.
    """
    column.validate(full=True)
    _, offsets, texts = column.buffers()
    if texts is None or not len(column):
        return False
    at = pa.Array.from_buffers(pa.int32(), column.offset + len(column) + 1, [None, offsets])
    first, end = at[column.offset].as_py(), at[-1].as_py()
    if first == end:
        return False
    content = texts.slice(first, end - first)
    least = pc.min(pa.Array.from_buffers(pa.uint8(), end - first, [None, content])).as_py()
    if least < _FIRST_PLAIN:
        return True
    found = memoryview(content).tobytes()
    return b'"' in found or b"\\" in found


def _joined(*parts: Any) -> Any:
    """Return one text per row, of columns and texts that are the same in each row; None where one of them is None."""
    between: Any = ""
    return pc.binary_join_element_wise(*parts, between)


def json_lines(rows: Iterable[Sequence[Any]], columns: Sequence[str], documents: Collection[str]) -> Iterator[bytes]:
    """Yield rows, the values of each in the order of the columns, as lines in pieces of about `PIECE_BYTES`.

    Values are texts, numbers, truth values or None, which is told as null. `documents` are the columns whose text is JSON and
    goes in as it is.
    """
    names = [(json.dumps(name, ensure_ascii=False), name in documents) for name in columns]
    piece = bytearray()
    for row in rows:
        fields = (f"{name}:{_value(value, is_document)}" for (name, is_document), value in zip(names, row, strict=True))
        piece += ("{" + ",".join(fields) + "}\n").encode()
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _value(value: Any, is_document: bool) -> str:
    if value is None:
        return "null"
    if is_document:
        # A text that is no JSON must not become rows of its own; what was parsed is not used, so numbers keep their digits.
        json.loads(value)
        return str(value).translate(_LINE_BREAKS)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
