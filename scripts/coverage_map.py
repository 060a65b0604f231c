"""Which unit tests pass which line of the core, measured by coverage with a context for each test function."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parent.parent
BEHAVIOUR = tuple(f"tests/integration/test_ledger_{part}.py" for part in ("behaviour", "quarantine", "what_counts"))
"""The suite over every ledger: over the one in memory it needs no server, and is a unit test."""
MOST_TESTS = 150
"""A line that more functions pass is in the middle of everything: so many of them notice what they can notice."""
_CONFIGURATION = """[run]
dynamic_context = test_function
source = exactlyonce,exactlyonce_spark
data_file = {data}
"""


@dataclass(frozen=True)
class CoverageMap:
    """Node ids by line, and by file for lines that are run when the module is imported."""

    by_line: dict[tuple[str, int], list[str]]
    by_file: dict[str, list[str]]

    def of(self, file: Path, line: int) -> list[str]:
        """Return the tests of a line, at most MOST_TESTS."""
        found = self.by_line.get((str(file), line)) or self.by_file.get(str(file), [])
        step = max(1, -(-len(found) // MOST_TESTS))
        return found[::step]


def coverage_map(folder: Path, kept: Path | None = None) -> CoverageMap:
    """Run all unit tests once and return which of them passes where.

    `kept` is a file with the map of an earlier run on the same code, or where to put it for a later one.
    """
    if kept is not None and kept.exists():
        return _read(kept)
    configuration, data = folder / "coverage.ini", folder / "coverage.data"
    configuration.write_text(_CONFIGURATION.format(data=data))
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={configuration}", "-m", "pytest", "-q"]
    command += ["-p", "no:cacheprovider", "tests/unit", *_in_memory()]
    if subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit("The unit tests fail without any mutant: mend them first.")
    if kept is not None:
        shutil.copy(data, kept)
    return _read(data)


def _in_memory() -> list[str]:
    """Return the node ids of the behaviour suite over the ledger in memory."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *BEHAVIOUR]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.startswith(BEHAVIOUR) and "memory" in line]


def _read(data: Path) -> CoverageMap:
    measured = coverage.CoverageData(str(data))
    measured.read()
    in_memory: dict[str, list[str]] = defaultdict(list)
    for node in _in_memory():
        in_memory[node.partition("[")[0]].append(node)
    by_line: dict[tuple[str, int], list[str]] = {}
    by_file: dict[str, list[str]] = {}
    for name in measured.measured_files():
        file = os.path.relpath(name, ROOT)
        passing: set[str] = set()
        for line, contexts in measured.contexts_by_lineno(name).items():
            nodes = {node for context in contexts if context for node in _nodes(context, in_memory)}
            by_line[file, line] = sorted(nodes)
            passing |= nodes
        by_file[file] = sorted(passing)
    return CoverageMap(by_line, by_file)


def _nodes(context: str, in_memory: dict[str, list[str]]) -> list[str]:
    """Return the node ids of a context such as `tests.unit.test_lag.test_it_grows`."""
    module, _, function = context.rpartition(".")
    file = Path(*module.split(".")).with_suffix(".py")
    if not (ROOT / file).exists():
        return []  # a helper whose name begins with "test", or a test in a class
    node = f"{file}::{function}"
    return in_memory.get(node, []) if str(file) in BEHAVIOUR else [node]
