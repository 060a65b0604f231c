"""`make test-full`: all of `make test` and `make test-connectors`, what takes longer, and a report of it in docs/reports/.

    python scripts/full_report.py [PART ...]     only these parts; the rows of the others stay as they were

All of it takes hours: 200,000 schedules of the simulation (SEEDS=…), 10,000 over object logs (LOG_SEEDS=…), every value of
every field of the resource, 200 kills at random (KILLS=…), every crash point in every mode. Each row says how many there were,
of which commit and when.
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
REPORT = ROOT / "docs" / "reports" / "latest.md"
LONG = {
    "SEEDS": os.environ.get("SEEDS", "200000"),
    "LOG_SEEDS": os.environ.get("LOG_SEEDS", "10000"),
    "AGREEMENT_DRAWS": os.environ.get("AGREEMENT_DRAWS", "0"),
    "KILLS": os.environ.get("KILLS", "200"),
    "EVERY_MODE": os.environ.get("EVERY_MODE", "1"),
}
ASKED = {
    "simulation": ("SEEDS", "LOG_SEEDS"),
    "integration": ("EVERY_MODE",),
    "faults": ("EVERY_MODE",),
    "cluster": ("AGREEMENT_DRAWS", "EVERY_MODE"),
    "soak": ("KILLS",),
}
PARTS = ("lint", "unit", "simulation", "integration", "faults", "cluster")
STEPS = {
    **{part: [sys.executable, "-m", "scripts.run_parts", part] for part in PARTS},
    "soak": [sys.executable, "-m", "tests.soak", "--kills", LONG["KILLS"]],
}
HEAD = """# The latest full test run

`make test-full` keeps this page; each row is of the last run of its part.

| Part | Commit | Day | Minutes | Outcome | Last message |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Step:
    """A step that has run, with the last lines it printed."""

    name: str
    minutes: float
    passed: bool
    closing: str

    def row(self, commit: str) -> str:
        """Return its row of the report."""
        words = "; ".join([*(f"{asked}={LONG[asked]}" for asked in ASKED.get(self.name, ())), self.closing])
        outcome = "passed" if self.passed else "FAILED"
        return f"| {self.name} | {commit} | {datetime.now(UTC):%Y-%m-%d} | {self.minutes:.1f} | {outcome} | {words} |"


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


def rows() -> dict[str, str]:
    """Return the rows that the report has, by part."""
    lines = REPORT.read_text().splitlines() if REPORT.exists() else []
    found = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    return {part: line for part, line in found.items() if part in STEPS}


def main() -> int:
    """Run the parts that the command line names, or all of them, and write the report."""
    chosen = sys.argv[1:] or list(STEPS)
    unknown = [part for part in chosen if part not in STEPS]
    if unknown:
        raise SystemExit(f"There is no part {unknown[0]!r}: {', '.join(STEPS)}.")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    passed = True
    for part in chosen:
        step = run(part, STEPS[part])
        passed = passed and step.passed
        kept = {**rows(), part: step.row(commit)}
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(HEAD + "\n".join(kept[name] for name in STEPS if name in kept) + f"\n\n{_machine()}\n")
    print(f"\n{REPORT.read_text()}")
    return 0 if passed else 1


def _machine() -> str:
    return f"On {os.cpu_count()} cores, Python {platform.python_version()}."


if __name__ == "__main__":
    sys.exit(main())
