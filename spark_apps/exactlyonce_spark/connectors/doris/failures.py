"""Nothing that Spark tells is of Doris; but what our tasks say of rows that do not fit has their number."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures

_REFUSED = re.compile(r"Doris refuses (\d{1,18}) of \d+ rows, so none is loaded: ")
_FILTERED = re.compile(r"Doris took \d+ of \d+ rows \((\d{1,18}) filtered, \d+ not selected\)")


def refused_rows(message: str) -> int | None:
    """Return how many rows Doris has filtered, by the message of `loads.RowsUnfit`; None if it has no number, or 0.

    Performs no I/O.
    """
    found = _REFUSED.match(message) or _FILTERED.match(message)
    return (int(found[1]) or None) if found is not None else None


FAILURES = Failures(refused_rows=refused_rows)
