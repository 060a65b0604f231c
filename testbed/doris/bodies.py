"""What a backend reads of a load: the bytes of a request's body, and the rows in them."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from io import BufferedIOBase, BytesIO
from typing import Any

from testbed.doris.tables import Table

FORMATS = ("csv", "json")
"""be/src/util/load_util.cpp, parse_format, knows more: PARQUET, ORC, ARROW, WAL, HIVE_TEXT."""
COMPRESSIONS = ("", "gz")
"""The same function knows more."""
_NULL = "\\N"
"""docs/…/stream-load-manual.md: `\\N` is NULL in CSV."""


def received(source: BufferedIOBase, headers: Mapping[str, str], *, half: bool) -> bytes | None:
    """Return the body of a request; None where the sender is gone before its end, or where only `half` of it is read."""
    try:
        if "chunked" in headers.get("transfer-encoding", ""):
            return None if half and source.readline() else _chunks(source)
        length = int(headers.get("content-length") or 0)
        found = source.read(length // 2 if half else length)
    except ConnectionError:
        return None
    return found if len(found) == length and not half else None


def _chunks(source: BufferedIOBase) -> bytes | None:
    found = BytesIO()
    while line := source.readline():
        size = int(line.strip() or b"0", 16)
        found.write(source.read(size))
        source.readline()
        if size == 0:
            return found.getvalue()
    return None


def parsed_rows(body: bytes, headers: Mapping[str, str], table: Table) -> list[dict[str, Any] | None]:
    """Return the rows of a load by the names in its `columns` or its objects; None is one that cannot be read.

    docs/…/stream-load-manual.md: `format`, `read_json_by_line`, `strip_outer_array`, `columns`, `column_separator`,
    `line_delimiter`, `compress_type`.

    Raises:
        ValueError: if the body as a whole cannot be read.
    """
    listed = _entries(headers.get("columns", ""))
    names = [entry.strip("`") for entry in listed if "=" not in entry] or [column.name for column in table.columns]
    computed = [entry.partition("=")[::2] for entry in listed if "=" in entry]
    rows = _plain_rows(body, headers, names)
    return [_computed(row, [(name.strip(" `"), sql) for name, sql in computed]) for row in rows]


def _entries(columns: str) -> list[str]:
    """Return the entries of `columns`; a comma inside of parentheses or of a text is one of an expression."""
    found = re.findall(r"(?:[^,()']|'[^']*'|\((?:[^()]|\([^()]*\))*\))+", columns)
    return [entry.strip() for entry in found if entry.strip()]


def _computed(row: dict[str, Any] | None, expressions: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """docs/…/handling-messy-data.md: strict mode does not judge a NULL that a function makes. SQLite computes it here."""
    if row is None or not expressions:
        return row
    sources = ", ".join(f'? as "{name}"' for name in row)
    wanted = ", ".join(f"({sql})" for _, sql in expressions)
    with closing(sqlite3.connect(":memory:")) as database:
        found = database.execute(f"select {wanted} from (select {sources})", list(row.values())).fetchone()
    return {**row, **dict(zip((name for name, _ in expressions), found, strict=True))}


def _plain_rows(body: bytes, headers: Mapping[str, str], names: Sequence[str]) -> list[dict[str, Any] | None]:
    kind = headers.get("format", "csv").lower()
    plain = _decompressed(body) if headers.get("compress_type", "").lower() == "gz" else body
    text = plain.decode("utf-8", "surrogateescape")
    numbers_as_text = headers.get("num_as_string", "") == "true"
    if kind == "json" and headers.get("strip_outer_array", "") == "true":
        return [_of_object(one, names) for one in _loaded(text, numbers_as_text)]
    lines = [line for line in text.split("\n") if line]
    if kind == "json":
        return [_of_json(line, names, numbers_as_text) for line in lines]
    return [_of_csv(line, names, headers.get("column_separator", "\t")) for line in lines]


def _decompressed(body: bytes) -> bytes:
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error) as problem:
        raise ValueError(f"the body is not gzip: {problem}") from None


def _of_csv(line: str, names: Sequence[str], separator: str) -> dict[str, Any] | None:
    values = [None if value == _NULL else value for value in line.split(_unescaped(separator))]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else None


def _of_json(line: str, names: Sequence[str], numbers_as_text: bool) -> dict[str, Any] | None:
    try:
        return _of_object(_loaded(line, numbers_as_text), names)
    except ValueError:
        return None


def _of_object(found: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """Fields that are not listed are left out in silence, and a column without a field is NULL, as in Doris' simple mode."""
    return {name: found.get(name) for name in names} if isinstance(found, dict) else None


def _loaded(text: str, numbers_as_text: bool) -> Any:
    return json.loads(text, parse_float=str if numbers_as_text else float)


def _unescaped(separator: str) -> str:
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), separator).replace("\\t", "\t")
