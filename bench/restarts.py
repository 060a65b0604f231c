"""Seconds from a start, and from a SIGKILL, to the next landed batch; and what reconciliation takes of it."""

from __future__ import annotations

import signal
import statistics
import subprocess
import time
from dataclasses import dataclass
from unittest.mock import patch

import psutil

from bench.figures import Figure, compared
from bench.setup import Setup
from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.launch.local import LocalLauncher
from exactlyonce.positions.ranges import Epoch
from testbed import processes

BATCH = 1000
RECORDS = 2_000_000  # more than a run can take, so that there is always a next batch
RECONCILIATION_LIMIT = Figure("limit of reconciliation", 300.0, "ms")


@dataclass(frozen=True)
class Seconds:
    """One run: from process start to the first row, and from SIGKILL to the next."""

    start: float
    restart: float


def restarts(setup: Setup, topic: str, repeats: int) -> list[Figure]:
    """Measure ours and the bare job in turns and return medians with the ratio."""
    ours, bare = [], []
    for turn in range(1, repeats + 1):
        bare.append(_bare(setup, topic))
        ours.append(_ours(setup, topic))
        print(f"  {turn}/{repeats} bare {bare[-1]}, ours {ours[-1]}", flush=True)
    figures = []
    for what, name in (("start", "process start to the first landed batch"), ("restart", "SIGKILL to the next one")):
        peer = Figure(f"{name}, bare Spark job", statistics.median(getattr(run, what) for run in bare), "s")
        value = statistics.median(getattr(run, what) for run in ours)
        figures += [peer, compared(f"{name}, reconciled", value, "s", peer)]
    return figures


def reconciliation(setup: Setup, topic: str, repeats: int) -> list[Figure]:
    """Measure a pass that launches: from its begin to the moment at which the driver's process is asked for."""
    folder, database = setup.fresh("reconcile"), setup.database()
    file = setup.stream_file(folder, topic, database, BATCH)
    opened = open_stream(choose_stream(file, None), folder / "state", folder / "secrets")
    milliseconds = []
    for _ in range(repeats):
        moments: list[float] = []

        loop = opened.loop(lambda _kind, _words: None)
        with patch.object(LocalLauncher, "start", lambda *_, found=moments: found.append(time.monotonic())):
            begun = time.monotonic()
            loop.run_pass()
        milliseconds += [(moment - begun) * 1000 for moment in moments]
    return [compared("reconciliation, before a driver is started", statistics.median(milliseconds), "ms",
                     RECONCILIATION_LIMIT)]  # fmt: skip


def _ours(setup: Setup, topic: str) -> Seconds:
    folder, database = setup.fresh("ours"), setup.database()
    file = setup.stream_file(folder, topic, database, BATCH)
    started = time.monotonic()
    operator = setup.run_stream(folder, file)
    first = setup.first_row(database, 0)
    opened = open_stream(choose_stream(file, None), folder / "state", folder / "secrets")
    time.sleep(2)  # some batches, as in a stream that has run for a while
    opened.launcher.kill(Epoch(1))
    killed = time.monotonic()
    again = setup.first_row(database, setup.count(database))
    processes.stop(operator, signal.SIGINT, 60)
    setup.postgres.execute(f"drop database {database} with (force)")
    return Seconds(first - started, again - killed)


def _bare(setup: Setup, topic: str) -> Seconds:
    folder, database = setup.fresh("bare"), setup.database()
    started = time.monotonic()
    job = setup.run_bare(folder, "jdbc", topic, database, BATCH, continuous=True)
    first = setup.first_row(database, 0)
    time.sleep(2)
    _kill_all(job)
    killed = time.monotonic()
    landed = setup.count(database)
    job = setup.run_bare(folder, "jdbc", topic, database, BATCH, continuous=True)
    again = setup.first_row(database, landed)
    _kill_all(job)
    setup.postgres.execute(f"drop database {database} with (force)")
    return Seconds(first - started, again - killed)


def _kill_all(job: subprocess.Popen[bytes]) -> None:
    """SIGKILL a job, its JVM and its workers."""
    family = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    for process in family:
        process.kill()
    job.wait()
    psutil.wait_procs(family[1:], timeout=10)
