"""Make docs/metrics.md from the series in the code; `--check` only tells whether it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from exactlyonce.control import metrics
from exactlyonce.monitor import series
from exactlyonce.monitor.series import Series
from exactlyonce_spark import metrics as driver
from exactlyonce_spark.metrics import DriverSeries

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
MARK = "<!-- made: do not edit below -->\n"

PARTS = (
    (
        "Streams",
        "Exported by the operator that leads, for every stream, whether its driver runs or not.",
        series.OF_FLEET,
    ),
    (
        "Partitions",
        "One for each partition of each stream; `--partition-series=false` leaves them out.",
        series.OF_PARTITIONS,
    ),
    ("The operator", "Exported by every operator process.", metrics.ALL),
    (
        "The driver",
        "Served by each driver's pod at `/metrics` of port 7080; they begin at 0 with each attempt.",
        driver.ALL,
    ),
)


def page() -> str:
    """Return the page as it should be."""
    return PAGE.read_text().split(MARK)[0] + MARK + "".join(_part(*part) for part in PARTS)


def _part(title: str, says: str, listed: Iterable[Series | DriverSeries]) -> str:
    rows = [f"| `{it.name}` | {it.kind} | {_labels(it)} | {it.says} |" for it in listed]
    return "\n".join(
        ["", f"## {title}", "", says, "", "| Name | Type | Labels | What it says |", "|---|---|---|---|", *rows, ""]
    )


def _labels(listed: Series | DriverSeries) -> str:
    return ", ".join(f"`{label}`" for label in listed.labels) or "none"


def main() -> int:
    """Write the page, or check it."""
    made = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != made:
            print(f"{PAGE.name} is not what the code exports; make it anew: python scripts/{Path(__file__).name}")
            return 1
        return 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
