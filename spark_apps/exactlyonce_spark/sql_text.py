"""Names and texts as they stand in an SQL expression of Spark. No pyspark here."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a column's name, between backticks."""
    return "`" + name.replace("`", "``") + "`"


def escaped(text: str) -> str:
    """Return what stands between the quotes of a text."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
