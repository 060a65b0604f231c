"""A long run: python -m tests.simulation.long --seeds 1000000 --report docs/reports/simulation.md

Runs at the lowest priority on all cores, tells each seed that goes wrong at once, and appends each chunk of seeds that is
done to a file beside the report. Whoever stops it (Ctrl-C, a reboot) continues with the same command. Seeds that another commit
has run do not count, and are run again; with --any-commit they do count, and the report says which commit has run how many.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts.code_version import commit_of
from tests.simulation.search import Chunk, Found, run_chunk, workers

CHUNK = 200
TOLD_EVERY_SECONDS = 30.0
SEEDS_SHOWN = 50
CODE = ("operator", "spark_apps", "tests/simulation")


@dataclass
class Progress:
    """What of the seeds `[first, last)` has been run, in chunks that come in any order; `commit` is the one that runs now."""

    commit: str
    first: int
    last: int
    seconds: float = 0.0
    done: set[int] = field(default_factory=set)
    wrong: dict[int, str] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    hazards: Counter[str] = field(default_factory=Counter)
    halted: int = 0
    commits: Counter[str] = field(default_factory=Counter)

    @property
    def seeds(self) -> int:
        """How many seeds have been run."""
        return self.commits.total()

    def add(self, chunk: Chunk, commit: str | None = None) -> None:
        """Count a chunk, which another commit may have run."""
        self.done.add(chunk.first)
        self.commits[commit or self.commit] += chunk.until - chunk.first
        self.wrong |= {found.seed: found.words for found in chunk.wrong}
        self.verdicts += chunk.verdicts
        self.hazards += chunk.hazards
        self.halted += chunk.halted

    def left(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks that have not been run."""
        for start in range(self.first, self.last, CHUNK):
            if start not in self.done:
                yield start, min(start + CHUNK, self.last)

    def report(self) -> str:
        """Return the page for docs/reports/."""
        told = ", ".join(str(seed) for seed in sorted(self.wrong)[:SEEDS_SHOWN]) or "none"
        words = [f"- {seed}: {text.splitlines()[0][:300]}" for seed, text in sorted(self.wrong.items())[:SEEDS_SHOWN]]
        lines = [
            "# A long run of the simulation",
            "",
            f"Seeds {self.first} to {self.last - 1} of {self._told_commits()}, {datetime.now(UTC):%Y-%m-%d}: "
            f"{self.seeds} seeds in {self.seconds:.0f} seconds on {os.cpu_count()} cores, Python {platform.python_version()} "
            f"({self.seeds / max(self.seconds, 1):.0f} seeds per second).",
            "",
            *([] if self.seeds == self.last - self.first else [f"**Not complete**: {self.seeds} seeds were run.", ""]),
            f"**Violations: {len(self.wrong)}.** Seeds: {told}.",
            *words,
            "",
            f"{self.halted} runs ended halted, each for a reason that the oracle accepts; the others landed everything.",
            "",
            "| Verdict | Times |",
            "|---|---|",
            *(f"| {name} | {count} |" for name, count in self.verdicts.most_common()),
            "",
            "| Hazard | Runs in which it struck |",
            "|---|---|",
            *(f"| {name} | {count} |" for name, count in self.hazards.most_common()),
            "",
        ]
        return "\n".join(lines)

    def _told_commits(self) -> str:
        if set(self.commits) <= {self.commit}:
            return f"commit {self.commit}"
        told = ", ".join(f"{commit} ({seeds} seeds)" for commit, seeds in self.commits.most_common())
        return f"{len(self.commits)} commits, {told}"


class ProgressFile:
    """The chunks that are done, a line each. A line that was cut short by a crash is run again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read_into(self, progress: Progress, any_commit: bool = False) -> None:
        """Count what earlier runs have done of these seeds: those of the same commit, or of any."""
        if not self._path.exists():
            return
        left = set(progress.left())
        for line in self._path.read_text().splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            chunk = Chunk(
                told["first"],
                told["until"],
                tuple(Found(seed, words) for seed, words in told["wrong"]),
                Counter(told["verdicts"]),
                Counter(told["hazards"]),
                told["halted"],
            )
            counts = any_commit or told["commit"] == progress.commit
            if counts and (chunk.first, chunk.until) in left:
                left.remove((chunk.first, chunk.until))
                progress.add(chunk, told["commit"])
                progress.seconds += told["seconds"]

    def append(self, commit: str, chunk: Chunk, seconds: float) -> None:
        """Add a chunk; `seconds` are those since the chunk before."""
        told: dict[str, Any] = {
            "commit": commit,
            "first": chunk.first,
            "until": chunk.until,
            "seconds": round(seconds, 3),
            "wrong": [[found.seed, found.words] for found in chunk.wrong],
            "verdicts": chunk.verdicts,
            "hazards": chunk.hazards,
            "halted": chunk.halted,
        }
        with self._path.open("a") as file:
            file.write(f"{json.dumps(told)}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that the command line asks for; the exit status is 0 when all were run and none went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.long", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=int(os.environ.get("FIRST_SEED", "0")), help="the first seed")
    parser.add_argument("--report", type=Path, required=True, help="where the report is written")
    parser.add_argument("--progress", type=Path, help="where progress is kept (default: beside the report)")
    parser.add_argument("--any-commit", action="store_true", help="do not run again what another commit has run")
    options = parser.parse_args(arguments)
    file = ProgressFile(options.progress or options.report.with_suffix(".progress.jsonl"))
    progress = Progress(commit_of(*CODE), options.first, options.first + options.seeds)
    file.read_into(progress, options.any_commit)
    if progress.seeds:
        print(f"{progress.seeds} seeds were run before; going on.", flush=True)
    try:
        _run(progress, file)
    except KeyboardInterrupt:
        print("\nStopped. The same command continues.", flush=True)
    options.report.write_text(progress.report())
    print(f"\n{progress.report()}")
    return 1 if progress.wrong or progress.seeds < options.seeds else 0


def _run(progress: Progress, file: ProgressFile) -> None:
    before = told = time.monotonic()
    with workers() as pool:
        try:
            for chunk in _chunks(pool, progress):
                now = time.monotonic()
                file.append(progress.commit, chunk, now - before)
                progress.add(chunk)
                progress.seconds += now - before
                before = now
                for found in chunk.wrong:
                    print(f"seed {found.seed} went wrong: {found.words.splitlines()[0][:300]}", flush=True)
                if now - told >= TOLD_EVERY_SECONDS:
                    told = now
                    _show(progress)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _chunks(pool: ProcessPoolExecutor, progress: Progress) -> Iterator[Chunk]:
    """Yield chunks as they are done, a few under way for each core: a million futures would be held otherwise."""
    running: set[Future[Chunk]] = set()
    for first, until in list(progress.left()):
        running.add(pool.submit(run_chunk, first, until))
        if len(running) >= 2 * (os.cpu_count() or 1):
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def _show(progress: Progress) -> None:
    rate = progress.seeds / max(progress.seconds, 1.0)
    asked = progress.last - progress.first
    minutes = (asked - progress.seeds) / max(rate, 0.1) / 60
    print(
        f"{progress.seeds} of {asked} seeds, {rate:.0f} per second, {minutes:.0f} minutes left; "
        f"{len(progress.wrong)} went wrong",
        flush=True,
    )


if __name__ == "__main__":
    os.nice(19)
    sys.exit(main())
