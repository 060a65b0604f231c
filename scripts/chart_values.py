"""Make the chart's values.yaml, and the table of values in its README, from its values.schema.json.

    python -m scripts.chart_values [--check]

`--check` only tells whether both are up to date.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.generated import ROOT, write_or_check

CHART = ROOT / "charts" / "exactlyonce-operator"
SCHEMA, VALUES, PAGE = CHART / "values.schema.json", CHART / "values.yaml", CHART / "README.md"
MARK = "<!-- made by scripts/chart_values.py: do not edit below -->\n"
_WIDTH = 120

Schema = dict[str, Any]


def values_text() -> str:
    """Return values.yaml: each value with its default, below what it is."""
    head = f"# Made by scripts/{Path(__file__).name} from values.schema.json, which refuses any other value: do not edit.\n"
    return head + "\n".join(_lines(_schema(), 0)) + "\n"


def page_text(head: str) -> str:
    """Return the README: what a person wrote above the mark, and the values below."""
    rows = ["| Value | Default | What it is |", "|---|---|---|"]
    for path, field in _leaves(_schema(), ""):
        rows.append(f"| `{path}` | `{json.dumps(field['default'])}` | {field['description']} |")
    return head + MARK + "\n".join(["", *rows, ""])


def _schema() -> Schema:
    return dict(json.loads(SCHEMA.read_text()))


def _fields(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the values that have a place in values.yaml; `global` is another chart's."""
    for name, field in schema["properties"].items():
        if "properties" in field or "default" in field:
            yield name, field


def _lines(schema: Schema, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, field in _fields(schema):
        if depth == 0:
            yield ""
        for line in textwrap.wrap(field["description"], _WIDTH - len(indent) - 2):
            yield f"{indent}# {line}"
        if "properties" in field:
            yield f"{indent}{name}:"
            yield from _lines(field, depth + 1)
        else:
            yield f"{indent}{name}: {json.dumps(field['default'])}"


def _leaves(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for name, field in _fields(schema):
        if "properties" in field:
            yield from _leaves(field, f"{path}{name}.")
        else:
            yield f"{path}{name}", field


def main() -> int:
    """Write both files, or check them."""
    made = {VALUES: values_text(), PAGE: page_text(PAGE.read_text().partition(MARK)[0])}
    return write_or_check(made, "values.schema.json says", "chart_values")


if __name__ == "__main__":
    sys.exit(main())
