"""Make docs/metrics.md from the series in the code; `--check` only tells whether it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from exactlyonce.control import metrics
from exactlyonce.monitor import labelled_series, series
from exactlyonce.monitor.metric import Series
from exactlyonce_spark import metrics as driver
from exactlyonce_spark.metrics import DriverSeries
from scripts.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "metrics.md"
MARK = "<!-- made: do not edit below -->\n"

PARTS = (
    (
        "Streams",
        "Exported by the operator that leads, for every stream, whether its driver runs or not.",
        series.OF_FLEET,
    ),
    (
        "Partitions",
        "One for each partition of each stream, where `metrics.partitionSeries` of the chart (`--partition-series`) is true.",
        labelled_series.OF_PARTITIONS,
    ),
    ("The operator", "Exported by every operator process.", metrics.ALL),
    (
        "The driver",
        "Served by each driver's pod at `/metrics` of port 7080; counters begin at 0 with each attempt.",
        (*driver.ALL, *driver.OF_FOLDERS),
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
    return write_or_check({PAGE: page()}, "the code exports", "metrics_page")


if __name__ == "__main__":
    sys.exit(main())
