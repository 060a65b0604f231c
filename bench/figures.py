"""What a benchmark has measured: a table for people and a JSON file for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

OUT = Path(__file__).parent / "out"


@dataclass(frozen=True)
class Figure:
    """One measured value; `ratio` is the value divided by that of the figure named by `against`."""

    name: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None


def compared(name: str, value: float, unit: str, against: Figure) -> Figure:
    """Return a figure with its ratio to another one."""
    return Figure(name, value, unit, against.name, value / against.value)


def table(figures: list[Figure]) -> str:
    """Return the figures as lines of a table."""
    width = max(len(figure.name) for figure in figures)
    lines = [f"{'':<{width}}  {'value':>12} {'unit':<8} {'ratio':>6}  against"]
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        value = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:,.{2 if figure.value >= 1 else 4}f}"
        lines.append(
            f"{figure.name:<{width}}  {value:>12} {figure.unit:<8} {ratio:>6}  {figure.against or ''}".rstrip()
        )
    return "\n".join(lines)


def write(figures: list[Figure], name: str) -> Path:
    """Write bench/out/<name>.json and return it."""
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / f"{name}.json"
    file.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")
    return file
