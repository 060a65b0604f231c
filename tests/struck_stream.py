"""A stream under `exactlyonce run` as a user has it, whose drivers and loop are killed at named points and at random."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2

from exactlyonce_spark.crash_points import TRACE, VARIABLE
from tests.command import Command
from tests.rig import Rig, eventually

VERDICTS = frozenset({
    "FirstStart", "Resume", "ReplayBatch", "SkipLanded", "FinishBatch", "RebuildFromSink", "RewindToSink",
})  # fmt: skip
"""What may be decided where drivers, loops and databases are struck: any other verdict halts a stream."""


@dataclass
class StruckStream:
    """A stream under its own command. `named_points` are those at which something may be killed, and what; none is armed.

    `points` counts at which point each driver was killed, or after which one at random.
    """

    rig: Rig
    title: str
    seed: int
    named_points: Mapping[str, str]
    points: Counter[str] = field(default_factory=Counter)
    struck_at: int = -1
    _stack: ExitStack = field(default_factory=ExitStack)
    _command: Command | None = None
    _told: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rig.overrides["spec.recovery.maxFailuresPerBatch"] = 1000
        for point in self.named_points:
            self._armed(point).touch()

    def start(self) -> None:
        """Start the command, again after it was killed."""
        words = " ".join(f"{point}={action},{self._armed(point)}" for point, action in self.named_points.items())
        environment = {VARIABLE: words, TRACE: str(self._trace)}
        self._command = self._stack.enter_context(Command(self.rig, environment=environment))

    def stop(self) -> None:
        """End the command after the current batch, as Ctrl-C does."""
        assert self._command is not None
        status = self._command.interrupt()
        self._told += self._command.events()
        assert status == 0, self._command.output
        self._stack.close()

    def give_up(self) -> None:
        """End everything at once."""
        self._stack.close()

    def is_ready(self, batches: int) -> bool:
        """Whether so many batches have landed since the last strike and another one is running."""
        return self._is_in_a_batch() and self.landed_batch() >= self.struck_at + batches

    def kill_driver(self) -> None:
        """Kill every process of the driver."""
        assert self._command is not None
        self.points[self.latest_point()] += 1
        self._command.kill_drivers()
        self._forget_trace()

    def kill_at(self, point: str) -> bool:
        """Let what is to be killed at the named point be killed there, and tell whether it came by."""
        armed = self._armed(point)
        armed.unlink()
        try:
            eventually(armed.exists, f"the driver has come to {point}", 120)
        except AssertionError:
            armed.touch()
            return False
        self.points[point] += 1
        self._forget_trace()
        return True

    def kill_loop(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Kill the command, whose driver ends with it, and start another one; `meanwhile` is done while neither is there."""
        assert self._command is not None
        command = self._command
        self._told += command.events()
        self._stack.close()
        eventually(lambda: not command.drivers(), "its drivers are gone")
        meanwhile()
        self._forget_trace()
        self.start()

    def landed_batch(self) -> int:
        """Return the latest landed batch; -1 while that is not known."""
        found = self.query("select coalesce(max(landed_batch), -1) from exactlyonce.streams")
        return -1 if found is None else int(found[0][0])

    def keep_command_alive(self) -> None:
        """Fail where the command has halted."""
        assert self._command is not None
        halted = self._command.told("Halted")
        assert not halted, f"{self.title}: it halted: {halted}; seed {self.seed}"

    def told(self) -> str:
        """Return the end of what the command has printed."""
        return "" if self._command is None else self._command.output[-3000:]

    def verdicts(self) -> Counter[str]:
        """Count the verdicts of the commands that have ended."""
        return Counter(kind for kind, _ in self._told if kind in VERDICTS)

    def attempts(self) -> int:
        """Return how many drivers were started or about to be."""
        assert self._command is not None
        return int(self._command.status()["attempt"])

    def latest_point(self) -> str:
        """Return the latest point that the driver has passed; empty before the first."""
        words = self._trace.read_text().split() if self._trace.exists() else []
        return words[0] if words else ""

    def pause(self, seconds: float) -> None:
        """Let a stretch of the batch pass: the moment itself is what is drawn."""
        threading.Event().wait(seconds)

    def query(self, question: str) -> list[tuple[Any, ...]] | None:
        """Ask the database of this moment; None where it does not answer or has no ledger yet."""
        try:
            return self.rig.sql(question)
        except (psycopg2.OperationalError, psycopg2.errors.UndefinedTable):
            return None

    @property
    def _trace(self) -> Path:
        return self.rig.folder / "latest-point"

    def _armed(self, point: str) -> Path:
        return self.rig.folder / f"not-armed-{point}"

    def _forget_trace(self) -> None:
        if self._trace.exists():
            self._trace.write_bytes(b"")  # the same file: a successor may have it open already

    def _is_in_a_batch(self) -> bool:
        return self.latest_point().startswith(("batch", "task", "land"))
