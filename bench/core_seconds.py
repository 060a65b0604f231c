"""Where the core-seconds of a run go: to the JVMs of Spark, to Python, to Postgres, to Kafka."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from bench.figures import Figure

KINDS = ("JVM", "Python", "Postgres", "Kafka")
_SAMPLE_SECONDS = 0.2


@dataclass
class CoreSeconds:
    """Core-seconds by process id and kind, as last seen; a process's last moments may be missed."""

    kafka_pid: int
    _seen: dict[int, tuple[str, float]] = field(default_factory=dict)
    _before: dict[int, float] = field(default_factory=dict)
    _history: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """What each kind had used at a moment (time.time)."""

    def sample(self) -> None:
        """Look at every process below this one."""
        for process in psutil.Process().children(recursive=True):
            try:
                kind, times = self._kind(process), process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            if kind is not None:
                self._before.setdefault(process.pid, 0.0)
                self._seen[process.pid] = (kind, times.user + times.system)
        self._history.append((time.time(), self._totals()))

    def begin(self) -> None:
        """Forget what was used so far."""
        self._before.clear()
        self._seen.clear()
        self.sample()
        self._before = {pid: used for pid, (_, used) in self._seen.items()}
        self._history.clear()

    def figures(self, contender: str, million_records: float) -> list[Figure]:
        """Return the core-seconds of each kind for a million records."""
        return [
            Figure(f"core-seconds for a million records, {contender}: {kind}", total / million_records, "s")
            for kind, total in self._totals().items()
        ]

    def between(self, begin: float, end: float) -> dict[str, float]:
        """Return what each kind used between two moments (time.time), to a sample: the start of a JVM is left out so."""
        earlier, later = self._at(begin), self._at(end)
        return {kind: later[kind] - earlier[kind] for kind in KINDS}

    def _at(self, moment: float) -> dict[str, float]:
        found = bisect_right(self._history, moment, key=lambda sample: sample[0])
        return self._history[min(found, len(self._history) - 1)][1]

    def _totals(self) -> dict[str, float]:
        totals = dict.fromkeys(KINDS, 0.0)
        for pid, (kind, used) in self._seen.items():
            totals[kind] += used - self._before.get(pid, 0.0)
        return totals

    def _kind(self, process: psutil.Process) -> str | None:
        name = process.name()
        if name == "java":
            return "Kafka" if process.pid == self.kafka_pid else "JVM"
        if name.startswith("python"):
            return "Python"
        return "Postgres" if name.startswith("postgres") else None


@contextmanager
def counted(core_seconds: CoreSeconds) -> Iterator[None]:
    """Count what is used until the block ends."""
    stop = threading.Event()
    core_seconds.begin()

    def run() -> None:
        while not stop.wait(_SAMPLE_SECONDS):
            core_seconds.sample()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
