"""How long it takes to plan the first batch of a folder that holds many files, against Spark's own file source.

    python -m bench.folders [--files 1000000]

Planning is listing the folder, putting the files in order, and writing down those of a batch of 20. Spark's is what it says
of itself (`durationMs.latestOffset`). The files are of one line each, on a local disk; the file system has just seen them all,
so both find their entries in memory. Ours is run in a process of Python, as in a driver, and nothing is read of any file. The
processor time is ours while it plans, and of Spark that of its whole virtual machine from the start of the query until it says
how long it has planned: the batch of 20 files is in it, and what a first query of 100 files has left to load and compile. On
cores that others use, it tells more than the seconds do.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.figures import Figure, compared, table, write
from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_lines import NameFilter
from exactlyonce.connectors.files.source_lists import FileLists
from exactlyonce.connectors.files.source_plan import FileLimit
from exactlyonce.connectors.files.source_position import NOTHING_READ, count_of
from exactlyonce_spark.connectors.files.source_planner import FolderPlanner, Ready

BATCH_FILES = 20
_FOLDER_FILES = 10_000
"""Of one folder; those are below the one that is read, as partitions are."""


class Took(NamedTuple):
    """How long a plan took, on a clock and of a processor."""

    seconds: float
    core_seconds: float

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.seconds:.2f} s ({self.core_seconds:.2f} core-seconds)"


def main() -> int:
    """Measure both, in turns, and print and write medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.folders", description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=100_000, help="files in the folder (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="plans of each (default: %(default)s)")
    options = parser.parse_args()
    ours: list[Took] = []
    theirs: list[Took] = []
    with tempfile.TemporaryDirectory(prefix="exactlyonce-bench-") as made:
        folder, session = Path(made), _session()
        _fill(folder / "incoming", options.files)
        _fill(folder / "warm" / "incoming", 100)
        _of_spark(session, folder / "warm", 0)  # its first query of all loads classes for seconds
        for turn in range(1, options.repeats + 1):
            theirs.append(_of_spark(session, folder, turn))
            ours.append(_planned(folder, turn))
            print(f"  {turn}/{options.repeats} Spark {theirs[-1]}, ours {ours[-1]}", flush=True)
        session.stop()
    figures: list[Figure] = []
    for what, unit, of in (
        ("", "s", lambda took: took.seconds),
        (", processor time", "core-seconds", lambda took: took.core_seconds),
    ):
        named = f"the first batch of {options.files:,} files{what}"
        spark = Figure(f"Spark's file source: {named}", statistics.median(map(of, theirs)), unit)
        figures += [spark, compared(f"ours: {named}", statistics.median(map(of, ours)), unit, spark)]
    print(f"  at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB in our process")
    print(f"\n{table(figures)}\n\n{write(figures, 'folders')}")
    return 0


def _fill(folder: Path, files: int) -> None:
    """Create files of one line, with times that differ."""
    for number in range(files):
        if number % _FOLDER_FILES == 0:
            below = folder / f"part={number // _FOLDER_FILES:03}"
            below.mkdir(parents=True)
        created = os.open(below / f"{number:07}.json", os.O_CREAT | os.O_WRONLY)
        os.write(created, b'{"id": 1}\n')
        os.close(created)


def _planned(folder: Path, turn: int) -> Took:
    """Return what our planner takes for a first batch."""
    lists = FileLists(open_folder(str(folder / f"lists-{turn}"), {}), "source", "a-life")
    source = LocalFolder(str(folder / "incoming"), NameFilter("*", recursive=True))
    planner = FolderPlanner(source, lists, FileLimit(BATCH_FILES, 1 << 40), Ready(timedelta(0), latest_first=False))
    began, core_began = time.perf_counter(), time.process_time()
    end = planner.end(NOTHING_READ)
    took = Took(time.perf_counter() - began, time.process_time() - core_began)
    assert count_of(end) == BATCH_FILES, "the batch is full"
    return took


def _of_spark(session: Any, folder: Path, turn: int) -> Took:
    """Return what Spark's file source takes for the same."""
    process = int(session._jvm.java.lang.ProcessHandle.current().pid())
    core_began = _core_seconds(process)
    rows = (
        session.readStream.schema("id BIGINT").option("maxFilesPerTrigger", BATCH_FILES).json(str(folder / "incoming"))
    )
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / f"spark-{turn}")).start()
    try:
        while not (told := [progress for progress in query.recentProgress if progress["batchId"] == 0]):
            if query.awaitTermination(1):
                raise RuntimeError(f"Spark's query ended: {query.exception()}")
        core_seconds = _core_seconds(process) - core_began
    finally:
        query.stop()
    return Took(float(told[0]["durationMs"]["latestOffset"]) / 1000, core_seconds)


def _core_seconds(process: int) -> float:
    """Return the processor time that a process has used, with all of its threads: proc_pid_stat(5), utime and stime."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _session() -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "4g"}
    session = builder.master("local[2]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # a query that is stopped in its batch has errors to tell
    return session


if __name__ == "__main__":
    raise SystemExit(main())
