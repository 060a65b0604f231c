"""Render docs/values.md from the table that the decoder's tests run (tests/decode_table.py), and from its options."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from exactlyonce.api.format_options import DECODER_OPTIONS, INSTEAD
from exactlyonce_spark.decode.rules import Rules
from scripts.generated import ROOT, write_or_check
from tests.decode_table import LINES, RECORDS, TABLE

PAGE = ROOT / "docs" / "values.md"

HEAD = """\
# What a column takes

A value lands as it says, or its record is malformed: by `format.onMalformed` it ends its batch or becomes a dead letter,
with a reason that names column and value. No value is rounded, cut, shifted or guessed
([ADR 64](adr/0064-one-strict-decoder.md)). Rendered by `python -m scripts.values_page` from the examples that the tests
run, `tests/decode_table.py`.

## Columns

| Column | Takes | Malformed |
|---|---|---|
"""
FORMATS = """\

## Avro, Protobuf, JSON Schema, Raw

Fields are found by the names of the columns. A field that no column has is passed over; a column that no field has is
NULL, and refused before the stream starts if it is NOT NULL.

| Column | Avro | Protobuf |
|---|---|---|
| TINYINT to BIGINT | int, long, in range | every whole number, in range |
| DECIMAL(p,s) | decimal in bytes or fixed, int, long, exactly | every whole number, exactly |
| FLOAT, DOUBLE | float, double | float, double |
| STRING, VARCHAR(n) | string, enum | string, the name of an enum's value |
| BOOLEAN | boolean | bool |
| TIMESTAMP | timestamp-millis, -micros, -nanos; by `timestampUnit` int, long | Timestamp; by `timestampUnit` whole numbers |
| TIMESTAMP_NTZ | local-timestamp-millis, -micros, -nanos | |
| DATE | date | |
| BINARY | bytes, fixed | bytes |
| STRUCT, ARRAY, MAP | record, array, map | message, repeated, map |

**Avro**: a union is a value of one of its types, null for NULL; one of two records cannot be a column. Malformed are bytes
after the value, a branch or symbol that does not exist, and moments that are no whole number of microseconds.

**Protobuf**: a field that can be absent (`optional`, messages, Google's wrappers, all of proto2) and is absent is NULL; one
that cannot be has its default value. Two messages in one value are one message by the format, whose later fields count: no
reader can tell. A map's keys ascend. A number that an enum does not have is malformed in a STRING column.

**JSON Schema**: each record is checked against the schema, and read as JSON; the check compares numbers as DOUBLE. A schema
that refers to an address is refused.

**Raw**: the value itself; STRING has to be UTF-8, and keeps a byte order mark.
"""


def rendered() -> str:
    """Return the page."""
    return HEAD + "\n".join([*_columns(), "", *_examples(), *_records(), *_lines(), FORMATS, *_options(), ""])


def _columns() -> Iterator[str]:
    for row in TABLE:
        yield f"| **{row.name}** | {row.takes} | {row.malformed} |"
    yield "| **the record** | exactly one value; a byte order mark at its start is dropped | anything after the value |"


def _examples() -> Iterator[str]:
    yield "A key that no column has may occur twice. The whole number -0 is 0; -0.0 stays -0.0 in FLOAT and DOUBLE."
    yield ""
    yield "| Column | In the record (JSON) | In the column, or the reason |"
    yield "|---|---|---|"
    for row in TABLE:
        of = _code(row.type) if row.rules == Rules() else row.name
        for literal, value in row.taken.items():
            yield f"| {of} | {_code(literal)} | {_code(_shown(value))} |"
        for literal, reason in row.refused.items():
            yield f"| {of} | {_code(literal)} | malformed: {reason} |"


def _records() -> Iterator[str]:
    yield from ("", "## Records of JSON", "", "| Record | For example | |", "|---|---|---|")
    for record in RECORDS:
        told = f"malformed: {record.reason}" if record.row is None else _code(_shown(record.row))
        yield f"| {record.what} | {_code(_bytes(record.value))} | {told} |"


def _lines() -> Iterator[str]:
    yield from ("", "## Lines of CSV", "")
    yield "RFC 4180: fields with a separator, a quote or a line end in them are quoted, and quotes within are doubled. NULL is"
    yield 'nothing between two separators, an empty text is `""`. This is what `sink.files` writes. A line end at the end of'
    yield "the record is dropped. Columns of STRUCT, ARRAY and MAP are refused."
    yield from ("", "| Line of `id INT, v STRING` | |", "|---|---|")
    for line in LINES:
        told = f"malformed: {line.reason}" if line.row is None else _code(", ".join(_shown(it) for it in line.row))
        yield f"| {_code(_bytes(line.value))} | {told} |"


def _options() -> Iterator[str]:
    yield from ("## Options", "", "| Format | `format.options` | |", "|---|---|---|")
    for kind, options in DECODER_OPTIONS.items():
        for name, text in options.items():
            yield f"| {kind} | {name} | {text} |"
    yield from (
        "",
        "Options of Spark's parsers that are refused:",
        "",
        "| Format | Option | Write instead |",
        "|---|---|---|",
    )
    for kind, options in INSTEAD.items():
        for name, text in options.items():
            yield f"| {kind} | {name} | {text} |"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _bytes(value: bytes) -> str:
    """Return bytes as a person types them."""
    return repr(value)[2:-1].replace("\\'", "'") if value else " "


def _shown(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case dict():
            return ", ".join(f"{name}: {_shown(it)}" for name, it in value.items())
        case list():
            return f"[{', '.join(_shown(it) for it in value)}]"
        case tuple():
            return ": ".join(_shown(it) for it in value)
        case str() if not value or not value.isprintable() or value != value.strip():
            return repr(value)
        case _:
            return repr(value) if isinstance(value, bytes) else str(value)


def main() -> int:
    """Write the page, or check it."""
    return write_or_check({PAGE: rendered()}, "the decoder's tests say", "values_page")


if __name__ == "__main__":
    sys.exit(main())
