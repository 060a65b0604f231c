"""`make mutants SAMPLE=200 SEED=…`: mutation testing of the core.

Each mutant of a sample is run against the unit tests that pass its line (a coverage map says which), and what survives
them against 600 seeds of the simulation (SEEDS=…). Mutants live in copies of the packages, on an import path of their own;
the work tree is never touched. It prints the score and the survivors; docs/reports/mutants.md says why each of those stays.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from scripts.coverage_map import CoverageMap, coverage_map
from scripts.mutated_code import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (Path("operator/exactlyonce"), Path("spark_apps/exactlyonce_spark"))
CORE = (
    "operator/exactlyonce/reconcile/*.py",
    "operator/exactlyonce/ledger/[!p]*.py",  # not the statements of Postgres, which real servers test
    "operator/exactlyonce/ledger/publish.py",
    "operator/exactlyonce/checkpoint/[!s]*.py",
    "operator/exactlyonce/checkpoint/st*.py",  # not s3.py, whose tests need a server
    "spark_apps/exactlyonce_spark/landing*.py",
    "spark_apps/exactlyonce_spark/batch.py",
    "spark_apps/exactlyonce_spark/tasks.py",
)
UNIT_SECONDS, SIMULATION_SECONDS = 180, 1200
"""A mutant that is not through by then runs for ever, which somebody would notice."""

SIMULATION = """
import sys
from tests.simulation.oracle import Violation, run_seed
for seed in range(int(sys.argv[1])):
    try:
        run_seed(seed)
    except Violation as problem:
        print(f"seed {seed}")
        sys.exit(1)
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: who noticed it, and by what."""

    mutant: Mutant
    fate: str
    words: str = ""


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
    parser.add_argument("--map", type=Path, help="a file that keeps the coverage map, for another run on the same code")
    options = parser.parse_args()
    files = sorted({file for pattern in CORE for file in ROOT.glob(pattern)})
    found = [mutant for file in files for mutant in mutants_of(file.relative_to(ROOT), file.read_bytes())]
    if options.only:
        chosen = [mutant for mutant in found if {str(mutant.file), f"{mutant.file}:{mutant.line}"} & set(options.only)]
    else:
        chosen = random.Random(options.seed).sample(found, min(options.sample, len(found)))
    print(f"{len(chosen)} of {len(found)} mutants of {len(files)} files (SEED={options.seed})", flush=True)
    with tempfile.TemporaryDirectory(prefix="exactlyonce-mutants-") as folder:
        tests = coverage_map(Path(folder), options.map)
        copies = Copies(Path(folder), os.cpu_count() or 1)

        def tested(mutant: Mutant) -> Outcome:
            with copies.mutated(mutant) as copy:
                return _test(mutant, copy, tests, options.simulation_seeds)

        outcomes = []
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            for outcome in workers.map(tested, chosen):
                outcomes.append(outcome)
                print(f"{len(outcomes)}/{len(chosen)} {outcome.fate}: {outcome.mutant}", flush=True)
    print(f"\n{_summary(outcomes)}")
    return 0


def _test(mutant: Mutant, copy: Path, tests: CoverageMap, seeds: int) -> Outcome:
    chosen = tests.of(mutant.file, mutant.line)
    if chosen:
        fate = _run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60", *chosen], copy, UNIT_SECONDS)
        if fate is not None:
            return Outcome(mutant, f"killed by unit tests{fate}")
    fate = _run(["-c", SIMULATION, str(seeds)], copy, SIMULATION_SECONDS)
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
