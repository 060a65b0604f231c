"""Run the parts of the test suite one after the other, print the minutes of each, and fail if one failed.

python scripts/run_parts.py lint unit simulation integration faults
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

LINT = [
    [str(BIN / "ruff"), "check", "--quiet", "."],
    [str(BIN / "ruff"), "format", "--quiet", "--check", "."],
    [str(BIN / "mypy")],
    [str(BIN / "lint-imports")],
    [sys.executable, "scripts/spark_settings_page.py", "--check"],
    [sys.executable, "scripts/generate_crd.py", "--check"],
    [sys.executable, "scripts/metrics_page.py", "--check"],
    [sys.executable, "scripts/dashboard.py", "--check"],
    [sys.executable, "scripts/chart_values.py", "--check"],
]

# Every branch of the decision is taken by its tables alone.
COVERAGE_FILE = "--rcfile=tests/unit/decide/coverage.ini"
BRANCHES = [
    [sys.executable, "-m", "coverage", "run", COVERAGE_FILE, "-m", "pytest", "--quiet", "tests/unit/decide"],
    [sys.executable, "-m", "coverage", "report", COVERAGE_FILE],
]

# A driver that starts leaves a part of two cores idle, so two tests at once take less time; each has servers of its own.
OPTIONS = {"integration": ["--numprocesses=2"], "faults": ["--numprocesses=2"]}


@dataclass(frozen=True)
class Ran:
    """A part that has run."""

    part: str
    minutes: float
    passed: bool


def commands_of(part: str) -> list[list[str]]:
    """Return the commands of a part."""
    if part == "lint":
        return LINT
    if not (ROOT / "tests" / part).is_dir():
        raise SystemExit(f"There is no part {part!r}: lint, or a folder of tests/.")
    pytest = [sys.executable, "-m", "pytest", f"tests/{part}", "--durations=5", *OPTIONS.get(part, [])]
    return [pytest, *(BRANCHES if part == "unit" else [])]


def run(part: str) -> Ran:
    """Run all commands of a part; the later ones too when one fails."""
    print(f"\n===== {part} =====", flush=True)
    started = time.monotonic()
    statuses = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands_of(part)]
    return Ran(part, (time.monotonic() - started) / 60, not any(statuses))


def main() -> int:
    """Run the parts that the command line names."""
    results = [run(part) for part in sys.argv[1:]]
    print("\nPart            minutes")
    for result in results:
        print(f"{result.part:<14}{result.minutes:>9.1f}  {'passed' if result.passed else 'FAILED'}")
    print(f"{'all':<14}{sum(result.minutes for result in results):>9.1f}")
    return 0 if results and all(result.passed for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
