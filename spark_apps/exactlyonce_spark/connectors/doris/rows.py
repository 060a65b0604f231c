"""Rows as Doris reads them: a JSON object per line, in UTF-8. No pyspark here.

A batch of texts becomes lines column by column, by Arrow itself; any other one row by row, which is much slower.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PIECE_BYTES = 1 << 20
_ARROW_BYTES = 1 << 28
"""So much of names and values: the lines of a batch have to fit into an Arrow array of texts, of 2 GiB, where a character takes
six bytes at most (a control)."""
_TO_BE_ESCAPED = r'["\\\x00-\x1f]'
_LINE_BREAKS = str.maketrans("\r\n", "  ")
"""Of JSON: those inside of its texts are escaped."""


def lines_of_batches(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], documents: Collection[str]
) -> Iterator[bytes]:
    """Yield the rows of Arrow batches as lines; `columns` are in their order, whatever Spark calls them on their way.

    `documents` are as in `json_lines`.
    """
    name_bytes = len(json.dumps(list(columns), ensure_ascii=False).encode())
    for batch in batches:
        is_small = batch.nbytes + batch.num_rows * name_bytes <= _ARROW_BYTES
        if is_small and all(pa.types.is_string(column.type) for column in batch.columns):
            yield _lines_of_texts(batch, columns, documents)
        else:
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield from json_lines(rows, columns, documents)


def _lines_of_texts(batch: pa.RecordBatch, columns: Sequence[str], documents: Collection[str]) -> bytes:
    parts: list[Any] = []
    between = "{"
    for name, column in zip(columns, batch.columns, strict=True):
        parts += [f"{between}{json.dumps(name, ensure_ascii=False)}:", _values(column, name in documents)]
        between = ","
    lines = _joined(*parts, "}\n")
    # The texts of an array lie one behind the other.
    _, offsets, texts = lines.buffers()
    assert lines.offset == 0, "it was made here"
    end = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets])[-1].as_py()
    return bytes(texts.slice(0, end).to_pybytes())


def _values(column: Any, is_document: bool) -> Any:
    """Return the JSON of each value of a column of texts, as a column."""
    column.validate(full=True)  # Spark's texts may be bytes that are no UTF-8
    if is_document or pc.any(pc.match_substring_regex(column, _TO_BE_ESCAPED)).as_py():
        return pa.array([_value(value, is_document) for value in column.to_pylist()], pa.string())
    return pc.fill_null(_joined('"', column, '"'), "null")


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
