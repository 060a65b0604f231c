"""`make test-full`: everything `make test` runs and what takes longer, and a report of it in docs/reports/.

Takes hours: 200,000 schedules of the simulation (SEEDS=…), every value of every field of the resource, 200 kills at random
(KILLS=…), every crash point in every mode (EVERY_MODE=1). The report says how many it were.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "docs" / "reports"
LONG = {
    "SEEDS": os.environ.get("SEEDS", "200000"),
    "AGREEMENT_DRAWS": os.environ.get("AGREEMENT_DRAWS", "0"),
    "KILLS": os.environ.get("KILLS", "200"),
    "EVERY_MODE": "1",
}
PARTS = ("lint", "unit", "simulation", "integration", "faults", "cluster")
STEPS = {
    **{part: [sys.executable, "scripts/run_parts.py", part] for part in PARTS},
    "soak": [sys.executable, "-m", "tests.soak", "--kills", LONG["KILLS"]],
}


@dataclass(frozen=True)
class Step:
    """A step that has run, with the last lines it printed."""

    name: str
    minutes: float
    passed: bool
    closing: str


def run(name: str, command: list[str]) -> Step:
    """Run a step and show what it prints."""
    started, lines = time.monotonic(), []
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **LONG}
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            lines.append(line.rstrip())
    told = [line for line in lines if " passed" in line or " failed" in line or "kills by" in line or " lost" in line]
    return Step(name, (time.monotonic() - started) / 60, process.returncode == 0, "; ".join(told[-4:]).strip("= "))


def main() -> int:
    """Run every step and write the report."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    steps = [run(name, command) for name, command in STEPS.items()]
    rows = [
        f"| {step.name} | {step.minutes:.1f} | {'passed' if step.passed else 'FAILED'} | {step.closing} |"
        for step in steps
    ]
    head = (
        f"# The full test run of {datetime.now(UTC):%Y-%m-%d}\n\nCommit {commit}, Python {platform.python_version()}, "
    )
    settings = ", ".join(f"{name}={value}" for name, value in LONG.items())
    text = (
        f"{head}{os.cpu_count()} cores; {settings}.\n\n| Part | Minutes | Outcome | Last words |\n|---|---|---|---|\n"
        + "\n".join(rows)
    )
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / "latest.md").write_text(text + "\n")
    print(f"\n{text}")
    return 0 if all(step.passed for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
