"""A real driver whose JVM or Python is frozen shows no progress; one with a long batch, or without anything to do, does."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil

from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.launch.driver_progress import progress_file, with_progress_probe
from exactlyonce.launch.local import MARKER
from exactlyonce.launch.pod_names import DRIVER
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.crash_points import LET_GO
from tests.rig import QUICK_JVM, Rig, eventually, running

QUICK, SLOW = 2_100, 1_500
"""How many records are read at once, as too many for the driver to write them itself, and then how many one after another."""
SLOWLY = (
    "SELECT id, customer, amount, ts FROM source "
    f"WHERE reflect('java.lang.Thread', 'sleep', if(id < {QUICK}, 0L, 100L)) = 'null'"
)
OFTEN = {"spark.executor.heartbeatInterval": "1s", "spark.driver.extraJavaOptions": QUICK_JVM}
LIMIT = timedelta(seconds=12)
LONG_SECONDS = 3600.0


def held_at(rig: Rig, point: str) -> Path:
    """Return the file that tells that a driver is held at a point."""
    return rig.folder / f"fired-0-{point}-hold"


def progress_of(opened: LocalStream) -> Path:
    """Return the file that the first driver touches."""
    return opened.launcher.log_of(Epoch(1)).parent / "progress"


def shows_progress(opened: LocalStream) -> bool:
    """Whether the probe of a pod succeeds over the file of this driver: the limit is LIMIT."""
    pod = {"metadata": {"name": "a-pod"}, "spec": {"containers": [{"name": DRIVER}]}}
    (container,) = with_progress_probe(pod, LIMIT)["spec"]["containers"]
    command = container["readinessProbe"]["exec"]["command"]
    found = [str(progress_of(opened)) if word == progress_file("a-pod") else word for word in command]
    return subprocess.run(found, check=False, capture_output=True).returncode == 0


def await_touches(opened: LocalStream, count: int, why: str) -> None:
    """Return when the driver has touched its file so often."""
    touches = {progress_of(opened).stat().st_mtime}

    def has_touched() -> bool:
        touches.add(progress_of(opened).stat().st_mtime)
        return len(touches) > count

    eventually(has_touched, f"{why}: {count} touches")


def in_hand(rig: Rig) -> bool:
    """Whether a batch was begun and has not landed."""
    if rig.sql("select to_regclass('exactlyonce.batches')")[0][0] is None:
        return False
    return bool(rig.sql("select 1 from exactlyonce.batches where status = 'InProgress'"))


def process_of(opened: LocalStream, *, java: bool) -> psutil.Process:
    """Return the JVM of the driver, or the Python that has started it."""
    marker = f"{opened.launcher.run_id}/1"
    for found in psutil.process_iter():
        try:
            command = found.cmdline()
            if found.environ().get(MARKER) != marker or not command:
                continue
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if command[0].endswith("java") is java and (java or "exactlyonce_spark" in command):
            return found
    raise AssertionError("the driver runs")


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    """Keep a process from running for as long as the block takes."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_frozen_processes_and_a_task_that_waits_are_noticed_and_a_long_batch_and_a_query_without_data_are_not(
    rig: Rig,
) -> None:
    """One driver for all of it; the long batch is one task of one partition, so nothing but its rows can be a sign."""
    rig.cold = True  # its JVM has no other driver's name
    opened = rig.open({"spec.transform": {"sql": SLOWLY}, "spec.sparkConf": OFTEN})
    opened.launcher.unresponsive_seconds = LONG_SECONDS  # progress alone is looked at
    rig.produce(QUICK, partition=0)
    with running(rig, opened, crash="task.copying=hold") as finish:
        held = held_at(rig, "task.copying")
        eventually(held.exists, "a Python worker waits")
        eventually(lambda: not shows_progress(opened), "it is noticed that the task waits")
        Path(f"{held}{LET_GO}").touch()
        eventually(rig.has_all, "the batch has landed")
        await_touches(opened, 2, "a query without data")
        with frozen(process_of(opened, java=False)):
            eventually(lambda: not shows_progress(opened), "it is noticed that Python is frozen")
        eventually(lambda: shows_progress(opened), "it makes progress again")
        long = rig.produce(SLOW, partition=0)
        eventually(lambda: in_hand(rig), "the long batch is running")
        await_touches(opened, 3, "a batch that reads records")
        assert in_hand(rig), "it still is the batch that was looked at"
        process_of(opened, java=True).send_signal(signal.SIGSTOP)
        eventually(lambda: not shows_progress(opened), "it is noticed that the JVM is frozen")
        finish.set()
        opened.launcher.progress_doubt_seconds = 1.0
        opened.launcher.progress_seconds = 10.0  # its successor has to start within it
    told = [words for kind, words in rig.events if kind == "NoProgress"]
    assert len(told) == 1, rig.story()
    assert "driver.progressTimeout" in told[0]
    rig.assert_exactly_once(without=long)
