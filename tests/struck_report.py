"""Keeps a page of the runs at full size: a row for each, whatever came of it. STRUCK_REPORT names the file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

VARIABLE = "STRUCK_REPORT"


@contextmanager
def recorded(stream: str, ids: int, kills: str, seed: int) -> Iterator[None]:
    """Add a row for what the block runs, where a report was asked for."""
    report = os.environ.get(VARIABLE)
    began, commit, outcome = time.monotonic(), _commit() if report else "", "failed"
    try:
        yield
        outcome = "each id once"
    finally:
        if report:
            minutes = (time.monotonic() - began) / 60
            day = f"{datetime.now(UTC):%Y-%m-%d}"
            cells = (stream, commit, day, f"{ids:,}", kills, f"{minutes:.0f}", str(seed), outcome)
            with Path(report).open("a") as rows:
                rows.write(f"| {' | '.join(cells)} |\n")


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
