"""Values and names that are easy to get wrong on the way from JSON through Arrow and CSV into Postgres."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

TABLE = '"We""ird"."Tä ble"'
ODD_COLUMN = 'it\'s a "co.l`umn", \\ no?'


def quoted(identifier: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + identifier.replace('"', '""') + '"'


TABLE_DDL = f"""
create schema "We""ird";
create table {TABLE} (
    row_id bigint generated always as identity primary key,
    made text not null default 'by default',
    id bigint not null,
    amount numeric,
    doubled numeric generated always as (amount * 2) stored,
    {quoted(ODD_COLUMN)} text,
    moment timestamptz,
    local timestamp,
    day date,
    document jsonb,
    nested jsonb,
    raw bytea,
    flag boolean,
    ratio double precision,
    small real,
    whole bigint,
    words text[],
    code uuid
)
"""

SCHEMA = (
    f"id BIGINT, `{ODD_COLUMN.replace('`', '``')}` STRING, amount DECIMAL(38,10), moment TIMESTAMP, local TIMESTAMP_NTZ, "
    "day DATE, document STRING, nested STRUCT<d: ARRAY<INT>, `a b,c`: STRING>, raw BINARY, flag BOOLEAN, ratio DOUBLE, "
    "small FLOAT, whole BIGINT, words ARRAY<STRING>, code STRING"
)

COLUMNS = (
    ODD_COLUMN, "amount", "moment", "local", "day", "document", "nested", "raw", "flag", "ratio", "small", "whole",
    "words", "code",
)  # fmt: skip


@dataclass(frozen=True)
class OddRow:
    """What a record says in JSON, and what Postgres must give back; what is in neither is null."""

    said: Mapping[str, object]
    stored: Mapping[str, Any]

    def record(self, number: int) -> dict[str, object]:
        """Return the record with an id."""
        return {"id": number, **self.said}


def _same(**values: object) -> OddRow:
    return OddRow(values, values)


def _text(text: str | None) -> OddRow:
    return OddRow({ODD_COLUMN: text}, {ODD_COLUMN: text})


def _bytes(value: bytes) -> OddRow:
    return OddRow({"raw": base64.b64encode(value).decode()}, {"raw": value})


def _moment(text: str, moment: datetime) -> OddRow:
    return OddRow({"moment": text}, {"moment": moment})


_DOCUMENT = {"a": [1, None, 'x,"y"', "é"], "ü\n": {"": "back\\slash"}, "number": 12345678901234567890}
_LONGEST = "1234567890123456789012345678.0123456789"
_WORDS = ["a,b", 'q"uote', "back\\slash", None, "", "NULL", "null", "{x}", "new\nline", " padded ", "\\N"]

ODD_ROWS = [
    *(
        _text(text)
        for text in (
            None, "", " ", "NULL", "null", "\\N", "\\.", "a\n\\.\nb", "comma, semicolon; and\ttab",
            'some "quotes", \'single\' and ""', '"', "line\nfeed\r\ncarriage return\rend\n", "\\", "back\\slash\\n",
            " padded ", "ä 日本 🐘 e\u0301", "\u0001\u001f\u007f\u0085\u2028\ufeff", "x" * 300_000,
        )
    ),
    OddRow({"amount": _LONGEST}, {"amount": Decimal(_LONGEST)}),
    OddRow({"amount": "-0.0000000001"}, {"amount": Decimal("-1E-10")}),
    OddRow({"amount": 0}, {"amount": Decimal("0E-10")}),
    _moment("2026-01-02T03:04:05.678901Z", datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)),
    _moment("2026-06-01T12:00:00+05:30", datetime(2026, 6, 1, 6, 30, tzinfo=UTC)),
    _moment("1969-12-31T23:59:59.999999Z", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    _moment("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    _moment("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    OddRow({"local": "2026-03-29T02:30:00.5"}, {"local": datetime(2026, 3, 29, 2, 30, 0, 500000)}),
    OddRow({"day": "2026-02-01"}, {"day": date(2026, 2, 1)}),
    OddRow({"document": json.dumps(_DOCUMENT)}, {"document": _DOCUMENT}),
    OddRow({"document": _DOCUMENT}, {"document": _DOCUMENT}),
    OddRow({"document": "null"}, {"document": None}),
    _same(nested={"d": [1, 2], "a b,c": 'x,"y"\n'}),
    _bytes(b""),
    _bytes(bytes(range(256))),
    _bytes(b"\0\\x00,\n"),
    _same(flag=True),
    _same(flag=False),
    *(_same(ratio=value) for value in (0.1, -0.0, 5e-324, 1.7976931348623157e308, -1e22, 123456789.12345679)),
    OddRow({"ratio": "NaN"}, {"ratio": float("nan")}),
    OddRow({"ratio": "-Infinity"}, {"ratio": float("-inf")}),
    _same(small=0.1),
    _same(whole=2**63 - 1),
    _same(whole=-(2**63)),
    _same(words=_WORDS),
    _same(words=[]),
    _same(code="7e57d004-2b97-0e7a-b45f-5387367791cd"),
]  # fmt: skip
