"""Names and texts as they stand in an SQL expression of Spark. No pyspark here."""

from __future__ import annotations

_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": f"{_TIME_FORMAT}XXX",
    "timestampNTZFormat": _TIME_FORMAT,
    "timeZone": "UTC",
}
"""Microseconds are kept, which Spark's own format of to_json cuts, and a field that is NULL is told as null."""


def quoted(name: str) -> str:
    """Return a column's name, between backticks."""
    return "`" + name.replace("`", "``") + "`"


def escaped(text: str) -> str:
    """Return what stands between the quotes of a text."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def as_json(expression: str) -> str:
    """Return the expression of a struct, an array or a map as JSON, whose values are what they were."""
    options = ", ".join(f"'{key}', '{escaped(value)}'" for key, value in _JSON_OPTIONS.items())
    return f"to_json({expression}, map({options}))"
