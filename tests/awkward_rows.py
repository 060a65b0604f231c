"""Values that text formats mangle unless they are told better: what a reader of files has to get back as it was."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

TEXTS = (
    ("line\nbreak", "cr\rhere", "crlf\r\n", "\n", "\r", "a,b"),
    ('say "hi"', '"', '""', '"quoted"', 'x","y', '\\"'),
    ('"\\', "back\\slash", "end\\", "\\", "\\n", "trail\\\n"),
    ('a"b,c\\"d\ne', "  blanks  ", " ", "\ttab\t", "", None),
    ("NULL", "null", "#hash", "// c", "ünïcödé 🦆 日本", "\u2028"),
    ("\u0085", "\ufeffbom", "\x01", "\x7f", "\u00a0wide\u3000", "\\N"),
)
"""One line per record; None stands for NULL."""

PER_RECORD = len(TEXTS[0])
MOMENTS = ("2024-01-02 03:04:05.123456", "1969-12-31 23:59:58.000001", "1900-01-01 00:00:00.5", None)
LOCAL_MOMENTS = ("9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.123456", "0001-01-01 00:00:00.000001", None)
DAYS = ("1969-12-31", "0001-01-01", "9999-12-31", None)
PRICES = (
    "12345678901234567890.123456789012345678",
    "-0.100000000000000001",
    "99999999999999999999.000000000000000001",
    None,
)
RATIOS = ("NaN", "-Infinity", "1.0E-300", None)


def awkward(rows: DataFrame) -> DataFrame:
    """Add columns of such values to rows whose ids count from 0; after the last value of a column the first follows."""
    return rows.select(
        "id",
        *(_of(f"text{number}", texts, "string") for number, texts in enumerate(zip(*TEXTS, strict=True))),
        _of("at", MOMENTS, "timestamp"),
        _of("local_at", LOCAL_MOMENTS, "timestamp_ntz"),
        _of("day", DAYS, "date"),
        _of("price", PRICES, "decimal(38,18)"),
        _of("ratio", RATIOS, "double"),
    )


def texts_of(record: int) -> list[str | None]:
    """Return the texts of a record."""
    return [*TEXTS[record % len(TEXTS)]]


def _of(name: str, values: tuple[str | None, ...], type_: str) -> Column:
    picked = f.element_at(f.array(*map(f.lit, values)), (f.col("id") % len(values) + 1).cast("int"))
    return picked.cast(type_).alias(name)
