"""Run the parts of the test suite one after the other, print the minutes of each, and fail if one failed.

python scripts/run_parts.py lint unit simulation integration faults cluster        DURATIONS=100 shows the slowest tests

What the cluster is made of takes minutes to build, once for the user: it is built beside the other parts, at the lowest
priority.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

GENERATORS = (
    "spark_settings_page",
    "generate_crd",
    "metrics_page",
    "phases_page",
    "dashboard",
    "chart_values",
    "alert_rules",
    "values_page",
)
LINT = [
    [str(BIN / "ruff"), "check", "--quiet", "."],
    [str(BIN / "ruff"), "format", "--quiet", "--check", "."],
    [str(BIN / "mypy")],
    [str(BIN / "lint-imports")],
    *([sys.executable, "-m", f"scripts.{module}", "--check"] for module in GENERATORS),
    [sys.executable, "-m", "scripts.check_words"],
    [sys.executable, "-m", "scripts.check_constructors"],
    [sys.executable, "-m", "scripts.check_modules"],
    [sys.executable, "-m", "scripts.check_connector_names"],
]

# Every branch of the decision is taken by its tables alone.
COVERAGE_FILE = "--rcfile=tests/unit/decide/coverage.ini"
BRANCHES = [
    [sys.executable, "-m", "coverage", "run", COVERAGE_FILE, "-m", "pytest", "--quiet", "tests/unit/decide"],
    [sys.executable, "-m", "coverage", "report", COVERAGE_FILE],
]

# Tests wait for drivers, brokers and time limits most of the time, so more of them at once than there are cores take less time;
# each process has servers of its own, which need 4 GiB. Tests of a module that share a fixture stay on one of them
# (tests/scheduling.py).
MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
THREE_IF_THEY_FIT = 3 if MEMORY_BYTES > 14 * 2**30 else 2
PROCESSES = {"unit": 2, "integration": THREE_IF_THEY_FIT, "faults": 2, "cluster": THREE_IF_THEY_FIT}
WHOLE_MODULES = ["--dist=loadscope", "--no-loadscope-reorder"]
STEALING = ["--dist=worksteal"]  # the cheaper one for ten thousand short tests, whose fixtures are cheap
OPTIONS = {
    part: [f"--numprocesses={count}", *(STEALING if part == "unit" else WHOLE_MODULES)]
    for part, count in PROCESSES.items()
}
CLUSTER = "cluster"


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
    shown = f"--durations={os.environ.get('DURATIONS', '5')}"
    pytest = [sys.executable, "-m", "pytest", f"tests/{part}", shown, *OPTIONS.get(part, [])]
    return [pytest, *(BRANCHES if part == "unit" else [])]


def run(part: str) -> Ran:
    """Run all commands of a part; the later ones too when one fails."""
    print(f"\n===== {part} =====", flush=True)
    started = time.monotonic()
    statuses = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands_of(part)]
    return Ran(part, (time.monotonic() - started) / 60, not any(statuses))


class Preparation:
    """The programs and images of the test cluster, made beside the parts that do without them."""

    def __init__(self) -> None:
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the process has ended
        command = ["nice", "-n", "19", sys.executable, "-m", "testbed.cluster_tools"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=self._told, stderr=self._told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if what it makes is not waited for."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def finish(self) -> None:
        """Wait for it, at full priority from now on, and show what it said."""
        if self._process.poll() is None:
            print("Building what the test cluster is made of", flush=True)
            subprocess.run(["renice", "-n", "0", "-g", str(os.getpgid(0))], check=False, capture_output=True)
        self._process.wait()
        self._told.seek(0)
        print(self._told.read().decode(errors="replace")[-2000:], flush=True)


def main() -> int:
    """Run the parts that the command line names."""
    results = []
    with ExitStack() as started:
        preparation = started.enter_context(Preparation()) if CLUSTER in sys.argv[1:] else None
        for part in sys.argv[1:]:
            if part == CLUSTER and preparation is not None:
                preparation.finish()
            results.append(run(part))
    print("\nPart            minutes")
    for result in results:
        print(f"{result.part:<14}{result.minutes:>9.1f}  {'passed' if result.passed else 'FAILED'}")
    print(f"{'all':<14}{sum(result.minutes for result in results):>9.1f}")
    return 0 if results and all(result.passed for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
