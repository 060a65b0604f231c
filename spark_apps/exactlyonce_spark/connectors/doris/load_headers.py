"""The headers of a stream load in two phases. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Sequence


def load_headers(
    label: str, columns: Sequence[str], computed: Sequence[tuple[str, str]], seconds: float
) -> dict[str, str]:
    """Return the headers of a load. What does not fit is refused: no row is filtered, and no value silently becomes NULL."""
    return {
        "Expect": "100-continue",
        "label": label,
        "two_phase_commit": "true",
        "format": "json",
        "read_json_by_line": "true",
        "num_as_string": "true",
        "strict_mode": "true",
        "max_filter_ratio": "0",
        "timezone": "+00:00",
        "timeout": str(int(seconds)),
        "columns": ",".join(
            (*(f"`{name}`" for name in columns), *(f"`{name}`={expression}" for name, expression in computed))
        ),
    }
