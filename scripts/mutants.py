"""`make mutants SAMPLE=200 SEED=…`: mutation testing of the core.

Each mutant of a sample is run against the unit tests that pass its line (a coverage map says which), the fastest first, and
what survives them against the simulation, in the worlds that run the mutated module: 600 seeds (SEEDS=…) divided among them,
fewer where one takes longer. Mutants live in copies of the packages, on an import path of their own; the work tree is never
touched. With --keep FOLDER what was tested is kept, and the same command continues where it was stopped; with --also TEST what
survived is tested again, against tests that were written since. It prints score and survivors; docs/reports/mutants.md says why
each of those stays.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import Queue

from scripts.coverage_map import CoverageMap, coverage_map, node_ids
from scripts.mutant_trials import failed_in, prepare, shares, try_simulation, try_unit_tests
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
    "spark_apps/exactlyonce_spark/load_outcome.py",
    "spark_apps/exactlyonce_spark/quarantine.py",
    "spark_apps/exactlyonce_spark/bisection.py",
    "spark_apps/exactlyonce_spark/left_out.py",
    "spark_apps/exactlyonce_spark/settling.py",
)

HAS_NO_LIMIT_SECONDS = 0.5
"""A test that is through by then where nothing is mutated has no limit that a busy machine makes it miss."""


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

    def outcome(self, mutant: Mutant, again: bool = False) -> Outcome | None:
        """Return what became of a mutant; None if it was not tested, or survived and is to be tested again."""
        fate = self._fates.get(self._key(mutant))
        return None if fate is None or (again and fate.startswith("survived")) else Outcome(mutant, fate)

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
    """Copies of the packages, one for each worker, compiled but for what is mutated."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: Queue[Path] = Queue()
        for number in range(count):
            copy = folder / f"copy-{number}"
            for package in PACKAGES:
                shutil.copytree(ROOT / package, copy / package.name, ignore=shutil.ignore_patterns("__pycache__"))
            compileall.compile_dir(copy, quiet=2)
            self._free.put(copy)

    @contextmanager
    def whole(self) -> Iterator[Path]:
        """Give a copy as it is."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[Path]:
        """Give a copy in which one file is the mutant's."""
        package = next(package for package in PACKAGES if mutant.file.is_relative_to(package))
        with self.whole() as copy:
            file = copy / package.name / mutant.file.relative_to(package)
            source = file.read_bytes()
            # A mutant may be as long as the source, and be written in the same second: then it would not be compiled.
            Path(cache_from_source(str(file))).unlink(missing_ok=True)
            file.write_bytes(mutant.applied_to(source))
            try:
                yield copy
            finally:
                file.write_bytes(source)


def main() -> int:
    """Test a sample of mutants, or those of the lines that are named."""
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=int(os.environ.get("SAMPLE", "200")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", random.randrange(1 << 32))))
    parser.add_argument("--simulation-seeds", type=int, default=int(os.environ.get("SEEDS", "600")))
    parser.add_argument("--only", action="append", default=[], help="FILE or FILE:LINE, instead of a sample")
    parser.add_argument("--also", action="append", default=[], help="tests that are newer than what is kept")
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
        prepare()
        copies = Copies(Path(folder), os.cpu_count() or 1)
        with copies.whole() as copy:
            also = newer_tests(options.also, copy)
        kept = Kept(options.keep and options.keep / "outcomes.jsonl", options.simulation_seeds)

        def tested(mutant: Mutant) -> Outcome:
            known = kept.outcome(mutant, again=bool(also))
            if known is not None:
                return known
            outcome = _test(mutant, copies, tests, options.simulation_seeds, also)
            kept.add(outcome)
            return outcome

        outcomes = []
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            for outcome in workers.map(tested, chosen):
                outcomes.append(outcome)
                print(f"{len(outcomes)}/{len(chosen)} {outcome.fate}: {outcome.mutant}", flush=True)
    print(f"\n{_summary(outcomes)}")
    return 0


def newer_tests(asked: Sequence[str], copy: Path) -> list[str]:
    """Return the node ids of the tests that are asked for beside those of the coverage map.

    One that is not there, or that fails without any mutant, would count as a witness of each of them: then the run ends here.
    """
    nodes = node_ids(asked) if asked else []
    if nodes and try_unit_tests(copy, nodes) is not None:
        raise SystemExit(f"{failed_in(copy) or ' '.join(asked)} fails without any mutant: mend it first.")
    return nodes


def _fate_in_unit_tests(copies: Copies, mutant: Mutant, chosen: list[str], tests: CoverageMap) -> str | None:
    """Return how the unit tests ended the mutant; None if they did not.

    A test that takes long may have a limit by the clock, which a busy machine makes it miss: it counts only where it does not
    fail without the mutant.
    """
    while chosen:
        with copies.mutated(mutant) as copy:
            fate, failed = try_unit_tests(copy, chosen), failed_in(copy)
        function = (failed or "").partition("[")[0]
        if fate is None or failed is None or tests.seconds.get(function, 0.0) < HAS_NO_LIMIT_SECONDS:
            return fate
        with copies.whole() as copy:
            if try_unit_tests(copy, [failed]) is None:
                return fate
        chosen = [node for node in chosen if node not in (failed, function)]
    return None


def _test(mutant: Mutant, copies: Copies, tests: CoverageMap, seeds: int, also: Sequence[str]) -> Outcome:
    groups = [group for group in ([*also], *tests.of(mutant.file, mutant.line)) if group]
    for group in groups:
        fate = _fate_in_unit_tests(copies, mutant, group, tests)
        if fate is not None:
            return Outcome(mutant, f"killed by unit tests{fate}")
    with copies.mutated(mutant) as copy:
        fate = try_simulation(copy, shares(mutant.file, seeds))
    if fate is not None:
        return Outcome(mutant, f"killed by the simulation{fate}")
    return Outcome(mutant, "survived" if groups else "survived, and no unit test passes it")


def _summary(outcomes: list[Outcome]) -> str:
    fates = Counter(outcome.fate for outcome in outcomes)
    survivors = sorted(outcome.mutant for outcome in outcomes if outcome.fate.startswith("survived"))
    killed = len(outcomes) - len(survivors)
    lines = [f"{killed} of {len(outcomes)} mutants were noticed ({100 * killed / max(1, len(outcomes)):.0f} %)."]
    lines += [f"  {count:>4} {fate}" for fate, count in fates.most_common()]
    return "\n".join([*lines, *(f"- {mutant}" for mutant in survivors)])


if __name__ == "__main__":
    sys.exit(main())
