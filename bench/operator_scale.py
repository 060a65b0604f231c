"""An operator with 10,000 streams, most of them suspended: what it takes to start, to sweep, to be scraped and to remember.

The streams are there before the operator is. Those that are not suspended have a driver's pod that need not run. While the
first sweep runs, streams are created, and each of them must get its pod: no event of the watch is lost.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import psutil

from bench.figures import Figure, compared
from bench.operator_setup import PATIENCE_SECONDS, Namespace, core_seconds, in_threads, operator_process, settled
from testbed import processes

_CREATED_MEANWHILE = 50
_STEADY_SECONDS = 60
_MEGABYTE = 1_000_000
MEMORY_LIMIT = Figure("limit of memory with 10,000 streams", 500.0, "MB")
START_LIMIT = Figure("limit of a start with 10,000 streams", 60.0, "s")
SCRAPE_LIMIT = Figure("limit of a scrape with 10,000 streams", 1.0, "s")


@dataclass
class Peak:
    """The most memory that a process has had, looked at a few times a second."""

    process: psutil.Process
    size_bytes: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until `ended`."""
        while not self.ended.wait(0.2):
            self.size_bytes = max(self.size_bytes, self.process.memory_info().rss)


@contextmanager
def peak_of(process: psutil.Process) -> Iterator[Peak]:
    """Watch the memory of a process until the block ends."""
    peak = Peak(process)
    watcher = threading.Thread(target=peak.watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        peak.ended.set()
        watcher.join()


def scale(space: Namespace, streams: int, running: int) -> list[Figure]:
    """Measure an operator of `streams` streams, of which `running` have a driver."""
    setup = space.setup
    print(f"Creating {streams:,} streams", flush=True)
    space.apply_all([f"suspended-{number}" for number in range(streams - running)], suspended=True)
    space.apply_all([f"running-{number}" for number in range(running)])
    expected = {"Suspended": streams - running, "Running": running}
    drivers = [f"running-{number}-driver-1" for number in range(running)]
    created = [f"created-{number}" for number in range(_CREATED_MEANWHILE)]
    with space.watched() as pods:
        with operator_process(setup, space, "exactlyonce.control") as operator:
            pods.until(drivers, "drivers")
            in_threads(space.runs, drivers, 4)
            _until(lambda: space.phases() == expected, "every stream is at rest or runs", apart_seconds=5.0)
            settled(operator, quiet=0.5)
        port, begun = processes.free_port(), time.monotonic()
        with operator_process(setup, space, "exactlyonce.control", port) as operator, peak_of(operator) as peak:
            page = f"http://127.0.0.1:{port}"
            _until(lambda: _answers(f"{page}/readyz"), "it is ready")
            ready = time.monotonic()
            space.apply_all(created)
            pods.until([f"{name}-driver-1" for name in created], "drivers of streams that were created in the sweep")
            seen = time.monotonic()
            _until(lambda: _passes(page) >= streams, "every stream had a pass")
            swept = time.monotonic()
            settled(operator, quiet=0.6)
            seconds, size_bytes = _scraped(page)
            before = core_seconds(operator)
            time.sleep(_STEADY_SECONDS)
            share = (core_seconds(operator) - before) / _STEADY_SECONDS
            at_rest = operator.memory_info().rss
    return [
        compared(f"start with {streams:,} streams, until it is ready", ready - begun, "s", START_LIMIT),
        Figure(f"from the start to the end of the sweep over {streams:,} streams", swept - begun, "s"),
        Figure("passes in the first sweep", streams / (swept - begun), "a second"),
        Figure(f"{len(created)} streams created meanwhile, until the last pod", seen - ready, "s"),
        compared(f"scrape of {streams:,} streams", seconds, "s", SCRAPE_LIMIT),
        Figure("size of a scrape", size_bytes / _MEGABYTE, "MB"),
        compared(f"most memory with {streams:,} streams", peak.size_bytes / _MEGABYTE, "MB", MEMORY_LIMIT),
        Figure(f"memory at rest with {streams:,} streams", at_rest / _MEGABYTE, "MB"),
        Figure(f"steady CPU with {streams:,} streams", share * 100, "% core"),
    ]


def _until(condition: Callable[[], bool], what: str, apart_seconds: float = 0.5) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time"
        time.sleep(apart_seconds)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def _scraped(page: str) -> tuple[float, int]:
    """Scrape the metrics as Prometheus does; return the seconds and the bytes."""
    begun = time.monotonic()
    with urllib.request.urlopen(f"{page}/metrics", timeout=60) as answer:
        size_bytes = len(answer.read())
    return time.monotonic() - begun, size_bytes


def _passes(page: str) -> float:
    with urllib.request.urlopen(f"{page}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(r"(?m)^exactlyonce_pass_seconds_count\{[^}]*\} (\S+)$", text))
