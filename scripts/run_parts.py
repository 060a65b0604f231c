"""Run parts of the tests one after the other, print the minutes of each, and fail if one failed.

python -m scripts.run_parts lint unit simulation integration faults cluster        DURATIONS=100 shows the slowest tests
python -m scripts.run_parts --suite core lint unit simulation integration+faults+cluster
python -m scripts.run_parts --suite kinesis --suite doris

With suites (tests/suites.py), a part runs their tests alone, and one that has none of them is left out. Parts that are joined
share servers and processes. What the cluster is made of takes minutes to build, once for the user: it is built beside the other
parts, at the lowest priority.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.suites import CONNECTORS, CORE, PARTS, SUITES, modules_of

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
JOIN = "+"
ALL_CONNECTORS = "connectors"


@dataclass(frozen=True)
class Ran:
    """A part that has run."""

    part: str
    minutes: float
    passed: bool


def commands_of(part: str, suites: Sequence[str] = ()) -> list[list[str]]:
    """Return the commands of a part, with suites those that run their tests alone: none where the part has no such test."""
    if part == "lint":
        return LINT if not suites or CORE in suites else []
    folders = part.split(JOIN)
    absent = [folder for folder in folders if not (ROOT / "tests" / folder).is_dir()]
    if absent:
        raise SystemExit(f"There is no part {absent[0]!r}: lint, or a folder of tests/.")
    chosen = [path for folder in folders for path in _paths(folder, suites)]
    if not chosen:
        return []
    shown = f"--durations={os.environ.get('DURATIONS', '5')}"
    named = [f"--suite={suite}" for suite in suites]
    # What is joined starts as many servers as one of its parts.
    options = OPTIONS.get(folders[0], [])
    pytest = [sys.executable, "-m", "pytest", *chosen, *named, shown, *options]
    return [pytest, *(BRANCHES if part == "unit" else [])]


def _paths(folder: str, suites: Sequence[str]) -> list[str]:
    """Return what pytest collects of a folder of tests/: with suites only modules that have tests of them."""
    if not suites or folder not in PARTS:
        return [f"tests/{folder}"] if not suites or CORE in suites else []
    return modules_of(suites, folder)


def run(part: str, suites: Sequence[str] = ()) -> Ran:
    """Run all commands of a part; the later ones too when one fails."""
    print(f"\n===== {part} =====", flush=True)
    started = time.monotonic()
    statuses = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands_of(part, suites)]
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


def suites_named(names: Sequence[str]) -> list[str]:
    """Return the suites of these names, of which `connectors` stands for all but `core`."""
    suites = [suite for name in names for suite in (CONNECTORS if name == ALL_CONNECTORS else (name,))]
    unknown = [name for name in suites if name not in SUITES]
    if unknown:
        raise SystemExit(f"There is no suite {unknown[0]!r}. Name one of these: {', '.join(SUITES)}.")
    return suites


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that the command line names, or all folders of tests that are divided into suites."""
    parser = argparse.ArgumentParser(description="Run parts of the tests.")
    parser.add_argument("--suite", action="append", default=[], help="of tests/suites.py; connectors: all but core")
    parser.add_argument("parts", nargs="*", default=list(PARTS), help="lint, or folders of tests/ joined by +")
    asked = parser.parse_args(arguments)
    suites = suites_named(asked.suite)
    parts = [part for part in asked.parts if commands_of(part, suites)]
    if not parts:
        raise SystemExit(f"No test of {', '.join(suites)} is in {', '.join(asked.parts)}: name other parts, or none.")
    of_cluster = [part for part in parts if any("tests/cluster" in word for word in commands_of(part, suites)[0])]
    results = []
    with ExitStack() as started:
        preparation = started.enter_context(Preparation()) if of_cluster else None
        for part in parts:
            if part in of_cluster and preparation is not None:
                preparation.finish()
            results.append(run(part, suites))
    print("\nPart                         minutes")
    for result in results:
        print(f"{result.part:<27}{result.minutes:>9.1f}  {'passed' if result.passed else 'FAILED'}")
    print(f"{'all':<27}{sum(result.minutes for result in results):>9.1f}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
