"""The table of what each column takes, as examples: docs/values.md is rendered from it, and each example is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from exactlyonce_spark.decode.rules import Rules, TimestampUnit


@dataclass(frozen=True)
class Row:
    """A kind of column: a sentence of what it takes, and one of what is malformed, with examples as JSON.

    Of each value that is taken, what it becomes; of each that is malformed, the reason.
    """

    name: str
    takes: str
    malformed: str
    type: str
    taken: Mapping[str, Any]
    refused: Mapping[str, str]
    rules: Rules = field(default_factory=Rules)


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


TABLE = (
    Row(
        "TINYINT, SMALLINT, INT, BIGINT",
        "a whole number in range, or the same in a text",
        "a fraction or an exponent, overflow, grouping, leading zeros, a plus sign",
        "TINYINT",
        {"5": 5, "-128": -128, '"127"': 127},
        {
            "200": "column v: 200 is outside of TINYINT (-128 to 127)",
            "7.0": "column v: 7.0 is not a whole number",
            '"1,000"': "column v: 1,000 is not a whole number",
            '"007"': "column v: 007 is not a whole number",
            "true": "column v: true is true or false, not a value of TINYINT",
        },
    ),
    Row(
        "DECIMAL(p,s)",
        "a decimal number, as a number or as a text, that fits exactly; zeros at its end do not count, and "
        "an exponent is resolved (Java writes 0E-7)",
        "more digits than the scale or the precision holds, grouping, a comma",
        "DECIMAL(12,2)",
        {"1.5": Decimal("1.50"), '"1.500"': Decimal("1.50"), "1E-2": Decimal("0.01"), '"0E-7"': Decimal("0.00")},
        {
            "1.005": "column v: 1.005 has more digits than DECIMAL(12,2)",
            "12345678901": "column v: 12345678901 is too large for DECIMAL(12,2)",
            '"1,50"': "column v: 1,50 is not a plain decimal number like -1234.50",
        },
    ),
    Row(
        "FLOAT, DOUBLE",
        "a number, or the same in a text: the nearest value that the column holds, rounded once",
        "overflow to infinity; NaN and infinities, unless the option allowNonNumericNumbers lets their texts in",
        "DOUBLE",
        {"0.1": 0.1, "9007199254740993": 9007199254740992.0, '"1.5e-3"': 0.0015, "1e-400": 0.0},
        {
            "1e400": "column v: 1e400 is too large for DOUBLE",
            '"NaN"': "column v: NaN is not a number; the option allowNonNumericNumbers lets it in",
            '"0x10"': "column v: 0x10 is not a number like -1234.5 or 1.5e-3",
        },
    ),
    Row(
        "STRING",
        "a text; any other value as its text, exactly as in the record",
        "half of a surrogate pair, invalid UTF-8, anywhere in the record",
        "STRING",
        {
            '"a\\u0000b"': "a\0b",
            "1.10": "1.10",
            '{"amount": 12345678901234567.89}': '{"amount": 12345678901234567.89}',
            "true": "true",
        },
        {'"\\ud83d"': "the text at character 5 has half of a surrogate pair, which is no character"},
    ),
    Row(
        "VARCHAR(n)",
        "as STRING, with at most n characters",
        "more characters",
        "VARCHAR(3)",
        {'"abc"': "abc", "1.5": "1.5"},
        {'"abcd"': "column v: abcd has 4 characters, more than VARCHAR(3)"},
    ),
    Row(
        "BOOLEAN",
        "true, false",
        "everything else",
        "BOOLEAN",
        {"true": True, "false": False},
        {'"true"': "column v: true is not true or false", "1": "column v: 1 is not true or false"},
    ),
    Row(
        "TIMESTAMP",
        "ISO 8601 with an offset, or without one in the session's zone (`timeZone`); seconds may be missing, "
        "and have up to six decimals",
        "other texts, a day without a time, more than microseconds, years outside 1 to 9999, a time that "
        "happens twice or never in the zone, a "
        "number without `format.timestampUnit`",
        "TIMESTAMP",
        {
            '"2026-01-02T03:04:05.678901Z"': at(2026, 1, 2, 3, 4, 5, 678901),
            '"2026-01-02 03:04+01:00"': at(2026, 1, 2, 2, 4),
            '"2026-01-02T03:04:05"': at(2026, 1, 2, 3, 4, 5),
        },
        {
            '"12:30"': "column v: 12:30 is not a time like 2026-01-02T03:04:05.678Z",
            '"2026-01-02"': "column v: 2026-01-02 is not a time like 2026-01-02T03:04:05.678Z",
            '"2026-01-02T03:04:05.1234567Z"': "column v: 2026-01-02T03:04:05.1234567Z is more exact than a microsecond",
            "500000000000": "column v: 500000000000 is a number, and nothing says what it counts; set format.timestampUnit",
        },
    ),
    Row(
        "TIMESTAMP with `timestampUnit: Milliseconds`",
        "also a number, or the same in a text, that counts so many since 1970",
        "what does not come to whole microseconds",
        "TIMESTAMP",
        {"500000000000": at(1985, 11, 5, 0, 53, 20), '"1.5"': at(1970, 1, 1, 0, 0, 0, 1500)},
        {
            "1764523417915916238": "column v: 1764523417915916238 is outside of the years 1 to 9999",
            "0.0001": "column v: 0.0001 milliseconds are more exact than a microsecond, or outside of the years 1 to 9999",
        },
        Rules(timestamp_unit=TimestampUnit.MILLISECONDS),
    ),
    Row(
        "TIMESTAMP in `timeZone: Europe/Berlin`",
        "times without an offset are those of the zone",
        "a time that the zone has twice, or skips",
        "TIMESTAMP",
        {'"2026-07-01T12:00:00"': at(2026, 7, 1, 10)},
        {
            '"2026-10-25T02:30:00"': "column v: 2026-10-25T02:30:00 happens twice or never in Europe/Berlin; "
            "a time with an offset is unambiguous"
        },
        Rules(zone="Europe/Berlin"),
    ),
    Row(
        "TIMESTAMP_NTZ",
        "ISO 8601 without an offset",
        "a time with an offset, a number",
        "TIMESTAMP_NTZ",
        {'"2026-01-02T03:04:05.5"': datetime(2026, 1, 2, 3, 4, 5, 500000)},
        {
            '"2026-01-02T03:04:05Z"': "column v: 2026-01-02T03:04:05Z has an offset, and TIMESTAMP_NTZ is a time without a zone"
        },
    ),
    Row(
        "DATE",
        "YYYY-MM-DD",
        "everything else",
        "DATE",
        {'"2024-02-29"': date(2024, 2, 29)},
        {
            '"19723"': "column v: 19723 is not a day like 2026-01-02",
            '"2023-02-29"': "column v: 2023-02-29 is not a day: day is out of range for month",
        },
    ),
    Row(
        "BINARY",
        "base64, padded (RFC 4648)",
        "everything else",
        "BINARY",
        {'"aGk="': b"hi", '""': b""},
        {'"aGk"': "column v: aGk is not base64", '"aGl="': "column v: aGl= is not base64"},
    ),
    Row(
        "STRUCT, ARRAY, MAP",
        "the same inside, NOT NULL too; a key that no field has is passed over",
        "a missing value that is NOT NULL, a key of a field or of a map that occurs twice",
        "STRUCT<x: INT NOT NULL, l: ARRAY<DATE>, m: MAP<STRING, INT>>",
        {
            '{"x":1,"y":[]}': {"x": 1, "l": None, "m": None},
            '{"x":1,"l":["2026-01-02",null],"m":{"k":5}}': {"x": 1, "l": [date(2026, 1, 2), None], "m": [("k", 5)]},
        },
        {
            "{}": "column v.x: no value, and the column is NOT NULL",
            '{"x":1,"x":2}': "column v.x: its key occurs twice in the record",
            '{"x":1,"l":["12:30"]}': "column v.l[]: 12:30 is not a day like 2026-01-02",
            '{"x":1,"m":{"k":5,"k":5}}': "column v.m: the key k occurs twice",
        },
    ),
)


@dataclass(frozen=True)
class Record:
    """A whole record: what it is, how it is read, and the reason if it is malformed."""

    what: str
    value: bytes
    row: Mapping[str, Any] | None = None
    reason: str | None = None


RECORDS = (
    Record("one object", b' {"v": 1} \n', {"v": 1}),
    Record("a byte order mark at its start", b'\xef\xbb\xbf{"v": 1}', {"v": 1}),
    Record("a column that it lacks, or that is null, is NULL", b'{"w": 1}', {"v": None}),
    Record("a second object", b'{"v": 1}}{"v": 2}', reason="the record has more after its value, from character 8 on"),
    Record(
        "a second object on the next line",
        b'{"v": 1}\n{"v": 2}',
        reason="the record has more after its value, from character 9 on",
    ),
    Record("cut short", b'{"v": 1', reason="the record is not JSON: it ends where a comma or } has to follow"),
    Record("an array", b'[{"v": 1}]', reason="the record is an array, not an object with columns"),
    Record("null", b"null", reason="the record is null, not an object with columns"),
    Record("nothing", b"", reason="the record is not JSON: it ends where a value has to follow"),
    Record("other bytes than UTF-8", b'{"w": "\xff", "v": 1}', reason="the record is not UTF-8: byte 7 is 0xff"),
    Record("a key that occurs twice", b'{"v": 1, "v": 1}', reason="column v: its key occurs twice in the record"),
)
"""Of the schema `v INT`."""


@dataclass(frozen=True)
class Line:
    """A line of CSV of the schema `id INT, v STRING`, and what it holds, or why it is malformed."""

    value: bytes
    row: tuple[int | None, str | None] | None = None
    reason: str | None = None


LINES = (
    Line(b'1,"say ""hi"""', (1, 'say "hi"')),
    Line(b'2,""', (2, "")),
    Line(b"3,", (3, None)),
    Line(b"4,b\r\n", (4, "b")),
    Line(b'"5","a, b\nc"', (5, "a, b\nc")),
    Line(b"6, x ", (6, " x ")),
    Line(b"7", reason="the record has 1 fields, and the schema has 2 columns"),
    Line(b'8,a"b', reason="the field before character 3 has a quote in it and none around it"),
    Line(b'9,"a"b', reason="the record has more after the quote that closes before character 5"),
    Line(b'10,"a', reason="the quote at character 3 is not closed"),
    Line(b"11,a\n12,b", reason="the record has a line end at character 4, outside of quotes"),
    Line(b"x,a", reason="column id: x is not a whole number"),
)
