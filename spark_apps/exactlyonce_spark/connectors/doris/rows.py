"""Rows as Doris reads them: a JSON object per line, in UTF-8. No pyspark here."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

PIECE_BYTES = 1 << 20
_LINE_BREAKS = str.maketrans("\r\n", "  ")
"""Of JSON: those inside of its texts are escaped."""


def json_lines(rows: Iterable[Sequence[Any]], columns: Sequence[str], documents: Collection[str]) -> Iterator[bytes]:
    """Yield rows, the values of each in the order of the columns, as lines in pieces of about `PIECE_BYTES`.

    Values are texts, numbers, truth values or None, which is told as null. `documents` are the columns whose text is JSON and
    goes in as it is.
    """
    piece = bytearray()
    for row in rows:
        pairs = zip(columns, row, strict=True)
        fields = (f"{json.dumps(name, ensure_ascii=False)}:{_value(value, name in documents)}" for name, value in pairs)
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
        json.loads(
            value
        )  # a text that is no JSON must not become rows of its own; numbers keep the digits that they have
        return str(value).translate(_LINE_BREAKS)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
