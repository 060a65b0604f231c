"""A long run: python -m tests.simulation.long --seeds 1000000 --report docs/reports/simulation.md

Runs at the lowest priority on all cores, tells each seed that goes wrong at once, and appends each chunk of seeds that is
done to a file beside the report (`simulation.progress.jsonl`, which git ignores). Whoever stops it (Ctrl-C, SIGTERM, a reboot)
continues with the same command. Seeds that another commit has run do not count, and are run again; with --any-commit they do
count, and the report says which commit has run how many.

When it ends or is stopped it writes the report and `simulation.progress.json`: a few kilobytes to be committed with it, from
which the same command continues on another machine. --report-only writes both of what has been run, also while another process
runs on.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from scripts.code_version import commit_of
from tests.simulation.long_progress import CompactFile, Progress, ProgressFile, Ran, line_of
from tests.simulation.search import Chunk, run_chunk, workers

TOLD_EVERY_SECONDS = 30.0
CODE = ("operator", "spark_apps", "tests/simulation")


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that the command line asks for; the exit status is 0 when all were run and none went wrong.

    With --report-only it is 0 when none went wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.long", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=int(os.environ.get("FIRST_SEED", "0")), help="the first seed")
    parser.add_argument("--report", type=Path, required=True, help="where the report is written")
    parser.add_argument("--progress", type=Path, help="where progress is kept (default: beside the report)")
    parser.add_argument("--any-commit", action="store_true", help="do not run again what another commit has run")
    parser.add_argument("--report-only", action="store_true", help="run nothing; write what has been run")
    options = parser.parse_args(arguments)
    file = ProgressFile(options.progress or options.report.with_suffix(".progress.jsonl"))
    compact = CompactFile(options.report.with_suffix(".progress.json"))
    progress = Progress(commit_of(*CODE), options.first, options.first + options.seeds, options.any_commit)
    compact.read_into(progress)
    file.read_into(progress)
    if progress.seeds:
        print(f"{progress.seeds} seeds were run before.", flush=True)
    if not options.report_only:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            _run(progress, file)
        except KeyboardInterrupt:
            print("\nStopped. The same command continues.", flush=True)
    compact.write(progress)
    options.report.write_text(progress.report())
    print(f"\n{progress.report()}")
    return 1 if progress.wrong or (progress.seeds < options.seeds and not options.report_only) else 0


def _run(progress: Progress, file: ProgressFile) -> None:
    before = told = time.monotonic()
    with workers() as pool:
        try:
            for chunk in _chunks(pool, progress):
                now = time.monotonic()
                ran = Ran(progress.commit, chunk, now - before)
                file.append(ran)
                progress.add(ran)
                before = now
                for found in chunk.wrong:
                    print(f"seed {found.seed} went wrong: {line_of(found.words)}", flush=True)
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
