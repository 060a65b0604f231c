"""What a mutant is tried with: unit tests and seeds of the simulation, forked from a process that has imported the libraries.

An interpreter that imports pytest, Spark's and Kubernetes' libraries takes two seconds, which most mutants do not live for.
What is mutated, and the tests of it, are imported after the fork, from a copy of the packages.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = (
    "pytest", "pytest_timeout", "pydantic", "yaml", "greenlet", "boto3", "botocore.session", "psycopg2.extras", "pymysql",
    "confluent_kafka.admin", "kopf", "kubernetes.client", "pyspark.sql", "pyarrow.parquet", "pyarrow.dataset", "deltalake",
    "pyiceberg.catalog", "prometheus_client",
)  # fmt: skip
"""Imported once; one that is not installed is left out."""
UNIT_SECONDS, SIMULATION_SECONDS = 180, 1200
"""Of processor time: a mutant that is not through by then runs for ever, which somebody would notice."""
TIMES_AS_LONG = 10
"""A mutant may take so many times that long by the clock: at the lowest priority it waits for others."""
TEST_SECONDS = 120
"""By the clock, for one test: what waits for ever is ended by this."""

COSTS = {
    "database": 1,
    "files": 1,
    "quarantine": 1,
    "bisection": 2,
    "object log": 5,
    "kinesis": 8,
    "two phases": 15,
    "staged loads": 10,
}
"""The worlds of the simulation, and how many times as long as one of the first a seed of each takes."""
WORLDS: Mapping[str, tuple[str, ...]] = {
    "*/manifest_landing.py": ("files",),
    "*/landing_elsewhere.py": ("files", "two phases"),
    "*/two_phase_submit.py": ("staged loads",),
    "*/staged_loads.py": ("staged loads",),
    "*/two_phase*.py": ("two phases",),
    "*/decided.py": ("two phases",),
    "*/load_labels.py": ("two phases",),
    "*/load_outcome.py": ("two phases",),
    "*/rows_again.py": ("two phases",),
    "*/witnesses.py": ("database",),
    "*/quarantine.py": ("quarantine",),
    "*/bisection.py": ("bisection",),
    "*/left_out.py": ("bisection",),
    "*/growth.py": ("kinesis", "database"),
    "*/log_watch.py": ("database", "kinesis"),
    "*/planned.py": ("database", "kinesis"),
    "*/source_check*.py": ("database", "kinesis"),
    "*/deleted_topics.py": ("database", "kinesis"),
    "*/ledger/*.py": ("database", "object log"),
    "*": ("database",),
}
"""The worlds that run a module's mutants, by the first pattern that its path fits."""

_FAILED = "failed.txt"
Asked = TypeVar("Asked")
_PROCESSES = multiprocessing.get_context("forkserver")


def shares(file: Path, seeds: int) -> dict[str, int]:
    """Return the worlds that run a module, each with its seeds: so many that each world takes about the same time."""
    worlds = next(worlds for pattern, worlds in WORLDS.items() if fnmatch(f"/{file}", pattern))
    return {world: max(1, seeds // len(worlds) // COSTS[world]) for world in worlds}


def try_unit_tests(copy: Path, nodes: Sequence[str]) -> str | None:
    """Run unit tests over a copy of the packages, in this order, until one fails.

    Returns None if none did, else what is to be added to the word for how the mutant ended. `failed_in` names the test.
    """
    (copy / _FAILED).unlink(missing_ok=True)
    return _forked(_unit_tests, copy, (nodes, copy / _FAILED), UNIT_SECONDS)


def failed_in(copy: Path) -> str | None:
    """Return the node id of the test that failed in the latest trial of unit tests; None where none is known to have."""
    file = copy / _FAILED
    return file.read_text() if file.exists() else None


def try_simulation(copy: Path, seeds_by_world: Mapping[str, int]) -> str | None:
    """Run seeds of the simulation over a copy of the packages until one goes wrong; returns as `try_unit_tests`."""
    return _forked(_simulation, copy, dict(seeds_by_world), SIMULATION_SECONDS)


def prepare() -> None:
    """Have the libraries imported where the trials are forked from; call it before the first one."""
    _PROCESSES.set_forkserver_preload([*LIBRARIES])


def _forked(trial: Callable[[Asked], int], copy: Path, asked: Asked, seconds: int) -> str | None:
    process = _PROCESSES.Process(target=_run, args=(trial, copy, asked, seconds))
    process.start()
    process.join(seconds * TIMES_AS_LONG)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return " (it ran for ever)"
    if process.exitcode == -signal.SIGXCPU:
        return " (it ran for ever)"
    return None if process.exitcode == 0 else ""


def _run(trial: Callable[[Asked], int], copy: Path, asked: Asked, seconds: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 10))  # at the second one there is no word of why
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(ROOT)
    of_packages = {str(ROOT / "operator"), str(ROOT / "spark_apps"), "operator", "spark_apps"}
    sys.path[:] = [str(copy), str(ROOT), *(path for path in sys.path if path not in of_packages)]
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    status = 1
    try:
        status = trial(asked)
    finally:
        os._exit(status)  # whatever a mutant has left running ends with it


def _unit_tests(asked: tuple[Sequence[str], Path]) -> int:
    import pytest

    nodes, failed = asked

    class Watch:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.write_text(report.nodeid)

    options = ["-q", "-x", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
    return int(pytest.main([*options, *nodes], plugins=[Watch()]))


def _simulation(seeds_by_world: Mapping[str, int]) -> int:
    """Run the seeds; 1 where one goes wrong. Imported here: it imports what is mutated."""
    from tests.simulation.kinesis_world import KinesisWorld
    from tests.simulation.log_world import LogWorld
    from tests.simulation.oracle import Violation, run_seed
    from tests.simulation.scenario import Scenario
    from tests.simulation.staged_world import StagedWorld
    from tests.simulation.two_phase_world import TwoPhaseWorld
    from tests.simulation.world import SimulatedWorld

    kinds = {
        "object log": LogWorld, "kinesis": KinesisWorld, "two phases": TwoPhaseWorld, "staged loads": StagedWorld,
    }  # fmt: skip
    drawn_for: dict[str, Callable[[Scenario], Scenario]] = {
        "files": Scenario.with_manifest, "quarantine": Scenario.with_quarantine, "bisection": Scenario.with_bisection,
    }  # fmt: skip
    for world, seeds in seeds_by_world.items():
        for seed in range(seeds):
            drawn = drawn_for[world](Scenario.draw(random.Random(seed))) if world in drawn_for else None
            try:
                run_seed(seed, drawn, kinds.get(world, SimulatedWorld))
            except Violation:
                return 1
    return 0
