"""One stream of the soak: `exactlyonce run` as a user has it, its drivers killed by a plan from a seed, its ids counted."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import psycopg2

from exactlyonce_spark.crash_points import TRACE, VARIABLE
from tests.command import Command
from tests.rig import Rig, eventually

BATCH = 2500
"""Records a batch: large enough that the tasks write it."""
VERDICTS = frozenset({
    "FirstStart", "Resume", "ReplayBatch", "SkipLanded", "FinishBatch", "RebuildFromSink", "RewindToSink",
})  # fmt: skip
"""What may be decided here: any other verdict halts a stream, which fails the soak."""

_BETWEEN = ("batch.planned", "batch.begun", "batch.rows-written")
POINTS = {
    "Batch": (
        *_BETWEEN, "batch.source-checked", "land.fenced", "land.rows-moved", "land.positions-advanced",
        "land.before-commit", "batch.landed", "task.started", "task.copying", "task.committed",
    ),
    "Partition": (
        *_BETWEEN, "land.fenced", "land.before-commit", "batch.landed", "task.started", "task.fenced", "task.advanced",
        "task.copying", "task.before-commit", "task.committed",
    ),
}  # fmt: skip
"""The named points that a batch of this size passes, by the way it lands."""


class Strike(Enum):
    """What goes wrong next."""

    DRIVER = "driver, at a moment drawn at random"
    POINT = "driver, at a named point"
    LOOP = "loop, and its driver with it"
    CRASH = "database, restarted after a crash"
    BACKEND = "backend of the database, which ends all sessions"
    FAILOVER = "database, failed over to the standby"
    LOSS = "database, failed over without its latest transactions"


WEIGHTS = {
    Strike.DRIVER: 40,
    Strike.POINT: 30,
    Strike.LOOP: 8,
    Strike.CRASH: 6,
    Strike.BACKEND: 6,
    Strike.FAILOVER: 5,
    Strike.LOSS: 5,
}


@dataclass(frozen=True)
class Planned:
    """One strike as the seed draws it: after so many batches and seconds, at this point where it is a named one."""

    strike: Strike
    batches: int
    seconds: float
    point: str
    lost_batches: int


@dataclass
class SoakStream:
    """A stream under its own command; a context manager. `attempts` and `verdicts` are of all its commands together."""

    rig: Rig
    commit: str
    seed: int
    ended: int = 0
    points: Counter[str] = field(default_factory=Counter)
    struck_at: int = -1
    _stack: ExitStack = field(default_factory=ExitStack)
    _command: Command | None = None
    _told: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"{self.seed} {self.commit}")
        self.rig.overrides["spec.sink.postgres.commit"] = self.commit
        self.rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
        self.rig.overrides["spec.recovery.maxFailuresPerBatch"] = 1000
        for point in POINTS[self.commit]:
            self._armed(point).touch()
        self.rig.produce(8 * BATCH)

    def plan(self) -> Planned:
        """Draw the next strike; what is drawn depends on the seed alone, never on how far the stream has come."""
        strike = self.dice.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
        point = self.dice.choice(POINTS[self.commit])
        return Planned(strike, self.dice.randint(0, 2), self.dice.uniform(0, 1), point, self.dice.randint(1, 3))

    def start(self) -> None:
        """Start the command, again after it was killed."""
        words = " ".join(f"{point}=kill-driver,{self._armed(point)}" for point in POINTS[self.commit])
        environment = {VARIABLE: words, TRACE: str(self._trace)}
        self._command = self._stack.enter_context(Command(self.rig, environment=environment))

    def stop(self) -> None:
        """End the command after the batch in hand, as Ctrl-C does."""
        assert self._command is not None
        status = self._command.interrupt()
        self._told += self._command.events()
        assert status == 0, self._command.output
        self._stack.close()

    def give_up(self) -> None:
        """End everything at once."""
        self._stack.close()

    def is_ready(self, batches: int) -> bool:
        """Whether so many batches have landed since the last strike and another one is in hand."""
        return self._is_in_a_batch() and self.landed_batch() >= self.struck_at + batches

    def keep_ahead(self) -> None:
        """Keep the topic ahead of the stream, and see that no id is there twice and that the command still runs."""
        assert self._command is not None
        events = self._command.events()
        halted = [words for kind, words in events if kind == "Halted"]
        assert not halted, f"{self.commit}: it halted: {halted}; seed {self.seed}"
        found = self._query("select count(*), count(distinct id) from orders")
        if found is None:
            return
        landed, different = found[0]
        assert landed == different, f"{self.commit}: {landed - different} ids are doubled; seed {self.seed}"
        if landed > len(self.rig.produced) - 6 * BATCH:
            self.rig.produce(6 * BATCH)

    def kill_driver(self) -> None:
        """Kill every process of the driver."""
        assert self._command is not None
        self.points[self.latest_point()] += 1
        for process in self._command.drivers():
            process.kill()
        self._forget_trace()

    def kill_at(self, point: str) -> bool:
        """Let the driver be killed at the named point, and tell whether it came by."""
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

    def kill_loop(self) -> None:
        """Kill the command, whose driver ends with it, and start another one."""
        assert self._command is not None
        self._told += self._command.events()
        self._stack.close()
        self._forget_trace()
        self.start()

    def landed_batch(self) -> int:
        """Return the latest landed batch; -1 while that is not known."""
        found = self._query("select coalesce(max(landed_batch), -1) from exactlyonce.streams")
        return -1 if found is None else int(found[0][0])

    def settle(self) -> None:
        """Wait until every record has landed."""

        def landed() -> bool:
            self.keep_command_alive()
            found = self._query("select count(*) from orders")
            return found is not None and int(found[0][0]) >= len(self.rig.produced)

        eventually(landed, f"{self.commit}: every record has landed; seed {self.seed}", 600)

    def keep_command_alive(self) -> None:
        """Fail where the command has halted."""
        assert self._command is not None
        assert not self._command.told("Halted"), f"{self._command.output[-3000:]}\nseed {self.seed}"

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

    def _query(self, question: str) -> list[tuple[Any, ...]] | None:
        """Ask the database of this moment; None where it does not answer or has no ledger yet."""
        try:
            return self.rig.sql(question)
        except (psycopg2.OperationalError, psycopg2.errors.UndefinedTable):
            return None
