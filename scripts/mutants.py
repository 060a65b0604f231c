"""`make mutants SAMPLE=200 SEED=…`: mutation testing of the core.

Each mutant of a sample is run against the unit tests that pass its line (a coverage map says which), and what survives
them against the simulation, in the worlds that run the mutated module: 600 seeds (SEEDS=…) divided among them, fewer where one
takes longer. Mutants live in copies of the packages, on an import path of their own; the work tree is never touched. With
--keep FOLDER what was tested is kept, and the same command continues where it was stopped. It prints score and survivors;
docs/reports/mutants.md says why each of those stays.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from queue import Queue

from scripts.coverage_map import CoverageMap, coverage_map
from scripts.mutated_code import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (Path("operator/exactlyonce"), Path("spark_apps/exactlyonce_spark"))
CORE = (
    "operator/exactlyonce/reconcile/*.py",
    "operator/exactlyonce/ledger/*.py",
    "operator/exactlyonce/checkpoint/[!s]*.py",
    "operator/exactlyonce/checkpoint/st*.py",  # not s3.py, whose tests need a server
    "spark_apps/exactlyonce_spark/landing*.py",
    "spark_apps/exactlyonce_spark/batch.py",
    "spark_apps/exactlyonce_spark/tasks.py",
    "spark_apps/exactlyonce_spark/planned.py",
    "spark_apps/exactlyonce_spark/witnesses.py",
    "spark_apps/exactlyonce_spark/source_check.py",
    "spark_apps/exactlyonce_spark/log_watch.py",
    "spark_apps/exactlyonce_spark/growth.py",
    "spark_apps/exactlyonce_spark/manifest_landing.py",
    "spark_apps/exactlyonce_spark/two_phase_*.py",
    "spark_apps/exactlyonce_spark/staged_loads.py",
    "spark_apps/exactlyonce_spark/rows_again.py",
    "spark_apps/exactlyonce_spark/load_labels.py",
)
UNIT_SECONDS, SIMULATION_SECONDS = 180, 1200
"""A mutant that is not through by then runs for ever, which somebody would notice."""

COSTS = {"database": 1, "files": 1, "object log": 5, "kinesis": 8, "two phases": 15, "staged loads": 10}
"""The worlds of the simulation, and how many times as long as one of the first a seed of each takes."""
WORLDS: Mapping[str, tuple[str, ...]] = {
    "*/manifest_landing.py": ("files",),
    "*/landing_elsewhere.py": ("files", "two phases"),
    "*/two_phase_submit.py": ("staged loads",),
    "*/staged_loads.py": ("staged loads",),
    "*/two_phase*.py": ("two phases",),
    "*/decided.py": ("two phases",),
    "*/load_labels.py": ("two phases",),
    "*/rows_again.py": ("two phases",),
    "*/witnesses.py": ("database",),
    "*/growth.py": ("kinesis", "database"),
    "*/log_watch.py": ("database", "kinesis"),
    "*/planned.py": ("database", "kinesis"),
    "*/source_check*.py": ("database", "kinesis"),
    "*/deleted_topics.py": ("database", "kinesis"),
    "*/ledger/*.py": ("database", "object log"),
    "*": ("database",),
}
"""The worlds that run a module's mutants, by the first pattern that its path fits."""

SIMULATION = """
import random, sys
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.log_world import LogWorld
from tests.simulation.oracle import Violation, run_seed
from tests.simulation.scenario import Scenario
from tests.simulation.staged_world import StagedWorld
from tests.simulation.two_phase_world import TwoPhaseWorld
from tests.simulation.world import SimulatedWorld
kinds = {"database": SimulatedWorld, "files": SimulatedWorld,
         "object log": LogWorld, "kinesis": KinesisWorld, "two phases": TwoPhaseWorld,
         "staged loads": StagedWorld}
for asked in sys.argv[1:]:
    name, _, seeds = asked.partition("=")
    for seed in range(int(seeds)):
        scenario = Scenario.draw(random.Random(seed)).with_manifest() if name == "files" else None
        try:
            run_seed(seed, scenario, kinds[name])
        except Violation as problem:
            sys.exit(1)
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: who noticed it, and by what."""

    mutant: Mutant
    fate: str
    words: str = ""


class Kept:
    """The fates of the mutants that were tested, one per line; a file that has changed since has none."""

    def __init__(self, file: Path | None, seeds: int) -> None:
        self._file, self._seeds = file, seeds
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        # The last line of a run that was stopped may be cut short.
        self._fates: dict[str, str] = dict(json.loads(line) for line in lines if line.endswith("]"))
        self._lock = threading.Lock()

    def outcome(self, mutant: Mutant) -> Outcome | None:
        """Return what became of a mutant; None if it was not tested."""
        fate = self._fates.get(self._key(mutant))
        return None if fate is None else Outcome(mutant, fate)

    def add(self, outcome: Outcome) -> None:
        """Write down what became of a mutant."""
        if self._file is None:
            return
        with self._lock, self._file.open("a") as file:
            file.write(f"\n{json.dumps([self._key(outcome.mutant), outcome.fate])}")

    def _key(self, mutant: Mutant) -> str:
        source = hashlib.sha256((ROOT / mutant.file).read_bytes()).hexdigest()[:16]
        return f"{mutant.file}@{source} {mutant.start}-{mutant.end} {mutant.after!r} {self._seeds}"


class Copies:
    """Copies of the packages, one for each worker."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: Queue[Path] = Queue()
        for number in range(count):
            copy = folder / f"copy-{number}"
            for package in PACKAGES:
                shutil.copytree(ROOT / package, copy / package.name, ignore=shutil.ignore_patterns("__pycache__"))
            self._free.put(copy)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[Path]:
        """Give a copy in which one file is the mutant's."""
        copy = self._free.get()
        package = next(package for package in PACKAGES if mutant.file.is_relative_to(package))
        file = copy / package.name / mutant.file.relative_to(package)
        source = file.read_bytes()
        file.write_bytes(mutant.applied_to(source))
        try:
            yield copy
        finally:
            file.write_bytes(source)
            self._free.put(copy)


def main() -> int:
    """Test a sample of mutants, or those of the lines that are named."""
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=int(os.environ.get("SAMPLE", "200")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", random.randrange(1 << 32))))
    parser.add_argument("--simulation-seeds", type=int, default=int(os.environ.get("SEEDS", "600")))
    parser.add_argument("--only", action="append", default=[], help="FILE or FILE:LINE, instead of a sample")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder that keeps what was tested and the coverage map, for more runs on the same code",
    )
    options = parser.parse_args()
    files = sorted({file for pattern in CORE for file in ROOT.glob(pattern)})
    found = [mutant for file in files for mutant in mutants_of(file.relative_to(ROOT), file.read_bytes())]
    if options.only:
        chosen = [mutant for mutant in found if {str(mutant.file), f"{mutant.file}:{mutant.line}"} & set(options.only)]
    else:
        chosen = random.Random(options.seed).sample(found, min(options.sample, len(found)))
    print(f"{len(chosen)} of {len(found)} mutants of {len(files)} files (SEED={options.seed})", flush=True)
    with tempfile.TemporaryDirectory(prefix="exactlyonce-mutants-") as folder:
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
        tests = coverage_map(Path(folder), options.keep and options.keep / "coverage.data")
        copies = Copies(Path(folder), os.cpu_count() or 1)
        kept = Kept(options.keep and options.keep / "outcomes.jsonl", options.simulation_seeds)

        def tested(mutant: Mutant) -> Outcome:
            known = kept.outcome(mutant)
            if known is not None:
                return known
            with copies.mutated(mutant) as copy:
                outcome = _test(mutant, copy, tests, options.simulation_seeds)
            kept.add(outcome)
            return outcome

        outcomes = []
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            for outcome in workers.map(tested, chosen):
                outcomes.append(outcome)
                print(f"{len(outcomes)}/{len(chosen)} {outcome.fate}: {outcome.mutant}", flush=True)
    print(f"\n{_summary(outcomes)}")
    return 0


def shares(file: Path, seeds: int) -> list[str]:
    """Return the worlds that run a module, each with its seeds: so many that each world takes about the same time."""
    worlds = next(worlds for pattern, worlds in WORLDS.items() if fnmatch(f"/{file}", pattern))
    return [f"{world}={max(1, seeds // len(worlds) // COSTS[world])}" for world in worlds]


def _test(mutant: Mutant, copy: Path, tests: CoverageMap, seeds: int) -> Outcome:
    chosen = tests.of(mutant.file, mutant.line)
    if chosen:
        fate = _run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60", *chosen], copy, UNIT_SECONDS)
        if fate is not None:
            return Outcome(mutant, f"killed by unit tests{fate}")
    fate = _run(["-c", SIMULATION, *shares(mutant.file, seeds)], copy, SIMULATION_SECONDS)
    if fate is not None:
        return Outcome(mutant, f"killed by the simulation{fate}")
    return Outcome(mutant, "survived" if chosen else "survived, and no unit test passes it")


def _run(arguments: list[str], copy: Path, seconds: float) -> str | None:
    """Run Python over a copy; None if all went well, else what is to be added to the word for how it did not."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return None if process.wait(seconds) == 0 else ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return " (it ran for ever)"


def _summary(outcomes: list[Outcome]) -> str:
    fates = Counter(outcome.fate for outcome in outcomes)
    survivors = sorted(outcome.mutant for outcome in outcomes if outcome.fate.startswith("survived"))
    killed = len(outcomes) - len(survivors)
    lines = [f"{killed} of {len(outcomes)} mutants were noticed ({100 * killed / max(1, len(outcomes)):.0f} %)."]
    lines += [f"  {count:>4} {fate}" for fate, count in fates.most_common()]
    return "\n".join([*lines, *(f"- {mutant}" for mutant in survivors)])


if __name__ == "__main__":
    sys.exit(main())
