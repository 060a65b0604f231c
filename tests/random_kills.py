"""SIGKILL drawn at random inside batches: what a list of named points cannot think of. The fault test and the soak use it."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.crash_points import TRACE
from tests.rig import Rig, eventually, running

MOST_BATCHES, LONGEST_SECONDS = 3, 1.0
"""A kill comes after so many batches of its driver at most, and then at a moment of the next seconds."""
BETWEEN_SECONDS = 0.3
"""Where that moment is between two batches, another one of so many seconds is drawn."""
_OF_A_BATCH = ("batch", "task", "land")
BATCH = 2500
"""Records per batch: large enough that the tasks write it."""


@dataclass
class RandomKills:
    """Kills the drivers of one stream at random moments of their batches, and keeps at which point each was.

    `points` are the kills that count: those inside of a batch. After batch.landed nobody can tell a batch from a pause.
    """

    rig: Rig
    kills: int
    seed: int
    report: Callable[[str], None] = lambda line: None
    points: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """Kill as often as asked, then let the stream take the rest."""
        choice = random.Random(self.seed)
        self.rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
        self.rig.overrides["spec.recovery.maxFailuresPerBatch"] = 1000
        trace = self.rig.folder / "latest-point"
        opened = self.rig.open()
        with running(self.rig, opened, environment={TRACE: str(trace)}, seconds=60.0 * (self.kills + 3)):
            attempt = 0
            while (number := self.points.total()) < self.kills:
                attempt = self._in_a_batch_after(opened, attempt, trace)
                self._let_land(choice.randint(0, MOST_BATCHES))
                _pause(choice.uniform(0, LONGEST_SECONDS))
                while not _is_inside(trace):
                    self._require_attempt(opened, attempt)
                    _pause(choice.uniform(0, BETWEEN_SECONDS))
                opened.launcher.kill(Epoch(attempt))
                if _is_inside(trace):
                    self.points[_point(trace)] += 1
                trace.write_bytes(b"")  # the same file: a successor may have it open already
                self.report(f"{number + 1}/{self.kills} killed, {self.rig.landed()} landed")
                self._produce_ahead()
            eventually(self.rig.has_all, "every record has landed", 300)

    def _in_a_batch_after(self, opened: LocalStream, attempt: int, trace: Path) -> int:
        """Wait until an attempt after `attempt` is inside a batch, and return it."""

        def inside() -> bool:
            return opened.statuses.read()[0].attempt > attempt and _point(trace).startswith(_OF_A_BATCH)

        eventually(inside, f"a driver after attempt {attempt} takes a batch; seed {self.seed}", 120)
        return opened.statuses.read()[0].attempt

    def _require_attempt(self, opened: LocalStream, attempt: int) -> None:
        """A driver that nobody has killed continues, and takes its next batch."""
        latest = opened.statuses.read()[0].attempt
        assert latest == attempt, f"attempt {attempt} ended by itself; seed {self.seed}\n{self.rig.story()}"
        self._produce_ahead()

    def _produce_ahead(self) -> None:
        if self.rig.landed() > len(self.rig.produced) - 4 * BATCH:
            self.rig.produce(4 * BATCH)

    def _let_land(self, batches: int) -> None:
        """Wait until so many more batches have landed; the topic is kept ahead of them."""
        goal = self.rig.landed_batch() + batches
        eventually(lambda: self.rig.landed_batch() >= goal, f"{batches} batches land; seed {self.seed}", 120)

    def histogram(self) -> str:
        """Return the points, most frequent first, a line each."""
        lines = [f"  {point:<28} {count:>4} {'#' * count}" for point, count in self.points.most_common()]
        return f"{sum(self.points.values())} kills by the latest point passed (seed {self.seed}):\n" + "\n".join(lines)


def _is_inside(trace: Path) -> bool:
    point = _point(trace)
    return point.startswith(_OF_A_BATCH) and point != "batch.landed"


def _point(trace: Path) -> str:
    try:
        words = trace.read_text().split()
    except FileNotFoundError:
        return ""
    return words[0] if words else ""


def _pause(seconds: float) -> None:
    """Let a random stretch of the batch pass: the moment itself is what is drawn."""
    threading.Event().wait(seconds)
