"""Regenerate tests/golden/file_queries: checkpoints and outputs of Spark's own file source and file sink, from real runs.

    python -m scripts.make_golden_file_queries

Each folder holds the checkpoint and the output of one query, as its process left them; three processes die before they begin
a certain log file. Folders are named file:///golden, so that no file of the repository names a folder of the machine; Hadoop's
hidden checksums, which would no longer fit, are left out. What a person or a disk does to such folders is done to copies of
these by tests/file_queries.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from testbed.file_query import run_jobs

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "file_queries"
NAMED = "file:///golden"
BATCHES = 13
"""Batches 0 to 12: one compaction, at 9, and entries after it."""


def write_source(folder: Path, first: int, count: int, prefix: str = "") -> None:
    """Write a file for each batch, a minute apart, so that their order is theirs by number."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        file = folder / f"{prefix}{number:02}.json"
        file.write_text(f'{{"id": {number}, "at": "2026-01-01T00:{number:02}:00Z"}}\n')
        os.utime(file, (1_767_225_600 + 60 * number,) * 2)


def main() -> int:
    """Run the queries in a scratch folder, then put the result in place of what was there."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        _record(scratch)
        shutil.rmtree(GOLDEN, ignore_errors=True)
        for made in sorted(scratch.glob("*/checkpoint")):
            keep(made.parent, GOLDEN / made.parent.name)
    return 0


def keep(made: Path, golden: Path) -> None:
    """Copy what a query left, without hidden files, under the name that no machine has."""
    shutil.rmtree(golden, ignore_errors=True)
    shutil.copytree(made, golden, ignore=shutil.ignore_patterns(".*"))
    for file in golden.rglob("*"):
        if file.is_file() and {"sources", "_spark_metadata"} & set(file.parts):
            text = file.read_text().replace(f"file://{made}", NAMED)
            assert "file:///tmp" not in text, f"{file} names a folder of this machine"
            file.write_text(text)


def _record(scratch: Path) -> None:
    log = scratch / "log"
    state = scratch / "planned"
    write_source(state / "source", 0, BATCHES)
    job = ("plain", state / "checkpoint", state / "output", state / "source")
    run_jobs([job], log, die_before="_spark_metadata/12")
    print("planned: died before _spark_metadata/12", flush=True)
    moved = _moved(state, scratch / "written")
    run_jobs([("plain", *moved)], log, die_before="commits/12")
    print("written: died before commits/12", flush=True)
    listed = _moved(state, scratch / "listed")
    write_source(listed[2], BATCHES, 1)
    run_jobs([("plain", *listed)], log, die_before="offsets/13")
    print("listed: died before offsets/13, after sources/0/13", flush=True)
    equal = _moved(scratch / "written", scratch / "equal")
    dropped = scratch / "dropped"
    two, stateful = scratch / "two-sources", scratch / "stateful"
    write_source(two / "source", 0, 3)
    write_source(two / "other-source", 20, 3)
    write_source(stateful / "source", 0, 4)
    jobs = [
        ("plain", *equal),
        ("plain", two / "checkpoint", two / "output", two / "source", two / "other-source"),
        ("stateful", stateful / "checkpoint", stateful / "output", stateful / "source"),
    ]
    print(run_jobs(jobs, log), flush=True)
    _moved(scratch / "equal", dropped)
    shutil.rmtree(dropped / "checkpoint")
    shutil.rmtree(dropped / "source")
    write_source(dropped / "source", 30, 3)
    job = ("plain", dropped / "checkpoint", dropped / "output", dropped / "source")
    print("dropped:", run_jobs([job], log), flush=True)
    record_by_three(scratch)


def record_by_three(scratch: Path) -> None:
    """Run a query whose logs are put together every three batches: twice, and two entries after that."""
    state = scratch / "by-three"
    write_source(state / "source", 0, 8)
    settings = {f"spark.sql.streaming.{log}.log.compactInterval": "3" for log in ("fileSource", "fileSink")}
    job = ("plain", state / "checkpoint", state / "output", state / "source")
    print("by-three:", run_jobs([job], scratch / "log", settings=settings), flush=True)


def _moved(state: Path, to: Path) -> tuple[Path, Path, Path]:
    """Copy what a query left to another folder, and the names in its logs with it."""
    shutil.copytree(state, to, ignore=shutil.ignore_patterns(".*.crc"))
    for file in to.rglob("*"):
        if file.is_file() and {"sources", "_spark_metadata"} & set(file.parts):
            file.write_text(file.read_text().replace(f"file://{state}", f"file://{to}"))
    return to / "checkpoint", to / "output", to / "source"


if __name__ == "__main__":
    sys.exit(main())
