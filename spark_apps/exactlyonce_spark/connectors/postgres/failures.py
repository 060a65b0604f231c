"""What errors that Spark tells say of Postgres. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures

_CLIENT = "psycopg2"


def _told(name: str, said: str, text: str) -> str | None:
    """Return what the database said, with its DETAIL and CONTEXT, which name the row."""
    if not name.startswith(_CLIENT):
        return None
    details = "; ".join(line.strip() for line in re.findall(r"^(?:DETAIL|CONTEXT):\s*(.+)", text, re.MULTILINE))
    where = f" ({details})" if details else ""
    return f"The database refuses the rows: {said.strip()}{where}."


FAILURES = Failures(told=_told)
