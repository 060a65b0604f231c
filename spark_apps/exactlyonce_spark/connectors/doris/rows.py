"""Rows as Doris reads them: a JSON object per line, in UTF-8. No pyspark here."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

PIECE_BYTES = 1 << 20
_LINE_BREAKS = str.maketrans("\r\n", "  ")
"""Of JSON: those inside of its texts are escaped."""


def json_lines(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], documents: Collection[str]
) -> Iterator[bytes]:
    """Yield rows of texts, numbers, truth values and None as lines, in pieces of about `PIECE_BYTES`.

    Each row has each column, so that a NULL is told as one. `documents` are the columns whose text is JSON and goes in as it
    is.
    """
    piece = bytearray()
    for row in rows:
        fields = (f"{json.dumps(name, ensure_ascii=False)}:{_value(row[name], name in documents)}" for name in columns)
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
