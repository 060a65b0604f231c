"""Which unit tests pass which line of the core, by coverage with a context for each test function; and how long each takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parent.parent
BEHAVIOUR = tuple(f"tests/integration/test_ledger_{part}.py" for part in ("behaviour", "quarantine", "what_counts"))
"""The suite over every ledger: over the one in memory it needs no server, and is a unit test."""
MOST_TESTS = 150
"""A line that more functions pass is in the middle of everything: so many of them notice most of what all can notice."""
_TOOK = re.compile(r"^ *([0-9.]+)s (?:setup|call|teardown) +([^\s\[]+)", re.MULTILINE)
_CONFIGURATION = """[run]
dynamic_context = test_function
source = exactlyonce,exactlyonce_spark
data_file = {data}
"""


@dataclass(frozen=True)
class CoverageMap:
    """Node ids by line, and by file for lines that are run when the module is imported; `seconds` by node id."""

    by_line: dict[tuple[str, int], list[str]]
    by_file: dict[str, list[str]]
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, file: Path, line: int) -> list[list[str]]:
        """Return the tests of a line in groups of at most MOST_TESTS, each from everywhere and with the fastest first."""
        found = self.by_line.get((str(file), line)) or self.by_file.get(str(file), [])
        groups = -(-len(found) // MOST_TESTS)
        return [sorted(found[start::groups], key=lambda node: self.seconds.get(node, 0.0)) for start in range(groups)]


def coverage_map(folder: Path, kept: Path | None = None) -> CoverageMap:
    """Run all unit tests once and return which of them passes where.

    `kept` is a file with the map of an earlier run on the same code, or where to put it for a later one.
    """
    if kept is not None and kept.exists():
        return _read(kept)
    configuration, data = folder / "coverage.ini", folder / "coverage.data"
    configuration.write_text(_CONFIGURATION.format(data=data))
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={configuration}", "-m", "pytest", "-q"]
    command += ["-p", "no:cacheprovider", "--durations=0", "--durations-min=0.005", "-vv", "tests/unit", *_in_memory()]
    ran = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise SystemExit("The unit tests fail without any mutant: mend them first.")
    _durations(data).write_text(ran.stdout)
    if kept is not None:
        shutil.copy(_durations(data), _durations(kept))
        shutil.copy(data, kept)
    return _read(data)


def _durations(data: Path) -> Path:
    """Return the file beside the data that has what pytest has said of the seconds of each test."""
    return data.with_suffix(".durations.txt")


def seconds_told(words: str) -> dict[str, float]:
    """Return the seconds of each test function, by the slowest tests that pytest shows: those of its parameters together."""
    seconds: dict[str, float] = defaultdict(float)
    for took, node in _TOOK.findall(words):
        seconds[node] += float(took)
    return seconds


def node_ids(tests: Sequence[str]) -> list[str]:
    """Return the node id of each test of files, or of functions, each with its parameters."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"pytest finds no test in {' '.join(tests)}, or cannot import it:\n{ran.stdout}{ran.stderr}")
    return [line for line in ran.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def _in_memory() -> list[str]:
    """Return the node ids of the behaviour suite over the ledger in memory."""
    return [node for node in node_ids(BEHAVIOUR) if "memory" in node]


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
    told = _durations(data)
    return CoverageMap(by_line, by_file, seconds_told(told.read_text()) if told.exists() else {})


def _nodes(context: str, in_memory: dict[str, list[str]]) -> list[str]:
    """Return the node ids of a context such as `tests.unit.test_lag.test_it_grows`."""
    module, _, function = context.rpartition(".")
    file = Path(*module.split(".")).with_suffix(".py")
    if not (ROOT / file).exists():
        return []  # a helper whose name begins with "test", or a test in a class
    node = f"{file}::{function}"
    return in_memory.get(node, []) if str(file) in BEHAVIOUR else [node]
