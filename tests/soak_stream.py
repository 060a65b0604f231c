"""One stream of the soak: `exactlyonce run` as a user has it, its drivers killed by a plan from a seed, its ids counted."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from tests.rig import Rig, eventually
from tests.struck_stream import StruckStream

BATCH = 2500
"""Records per batch: large enough that the tasks write it."""
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


class SoakStream(StruckStream):
    """A stream of Kafka under its own command; `attempts` and `verdicts` are of all its commands together.

    `struck` counts what was struck while this stream was in a batch.
    """

    def __init__(self, rig: Rig, commit: str, seed: int) -> None:
        super().__init__(rig, f"commit: {commit}", seed, dict.fromkeys(POINTS[commit], "kill-driver"))
        self.commit = commit
        self.struck: Counter[Strike] = Counter()
        self.dice = random.Random(f"{seed} {commit}")
        rig.overrides["spec.sink.postgres.commit"] = commit
        rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
        rig.produce(8 * BATCH)

    def plan(self) -> Planned:
        """Draw the next strike; what is drawn depends on the seed alone, never on how far the stream has come."""
        strike = self.dice.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
        point = self.dice.choice(POINTS[self.commit])
        return Planned(strike, self.dice.randint(0, 2), self.dice.uniform(0, 1), point, self.dice.randint(1, 3))

    def keep_ahead(self) -> None:
        """Keep the topic ahead of the stream, and see that no id is there twice and that the command still runs."""
        self.keep_command_alive()
        found = self.query("select count(*), count(distinct id) from orders")
        if found is None:
            return
        landed, different = found[0]
        assert landed == different, f"{self.title}: {landed - different} ids are doubled; seed {self.seed}"
        if landed > len(self.rig.produced) - 6 * BATCH:
            self.rig.produce(6 * BATCH)

    def settle(self) -> None:
        """Wait until every record has landed."""

        def landed() -> bool:
            self.keep_command_alive()
            found = self.query("select count(*) from orders")
            return found is not None and int(found[0][0]) >= len(self.rig.produced)

        eventually(landed, f"{self.title}: every record has landed; seed {self.seed}", 600)
