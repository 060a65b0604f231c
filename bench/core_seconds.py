"""Where the core-seconds of a run go: to the JVMs of Spark, to Python, to Postgres, to Kafka."""

from __future__ import annotations

import threading
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

    def begin(self) -> None:
        """Forget what was used so far."""
        self._before.clear()
        self._seen.clear()
        self.sample()
        self._before = {pid: used for pid, (_, used) in self._seen.items()}

    def figures(self, contender: str, million_records: float) -> list[Figure]:
        """Return the core-seconds of each kind for a million records."""
        totals = dict.fromkeys(KINDS, 0.0)
        for pid, (kind, used) in self._seen.items():
            totals[kind] += used - self._before[pid]
        return [
            Figure(f"core-seconds for a million records, {contender}: {kind}", total / million_records, "s")
            for kind, total in totals.items()
        ]

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
