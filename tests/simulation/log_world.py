"""A world whose ledger is an object log, and whose sink makes files visible by the log's entries.

Each process folds the log by itself, so what one of them knows may be old; the store loses answers, delays requests, and lists
what is not of one moment. Snapshots are so frequent that names are pruned many times in a run, and each takes the committables
out of the state.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.object_log.bounds import BOUNDS
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.port import Ledger
from tests.simulation.log_database import FOLDER, LogDatabase
from tests.simulation.log_target import LogTarget
from tests.simulation.objects import ObjectHooks
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.server import Hooks, MemoryDatabase
from tests.simulation.world import SimulatedWorld

OF_DATABASES = frozenset(
    {
        "delivery changed",
        "database crash",
        "restore",
        "failover",
        "synchronous_commit off",
        "edited by hand",
        "commit changed",
        "lose ledger",
        "drop ledger",
        "start over",
    }
)
"""What happens to a database, or takes its transactions to tell what became of it. An object store forgets nothing."""


class LogWorld(SimulatedWorld):
    """Everything of one seed. `ledgers` are those of the processes: each has folded the log up to where it last looked."""

    archived_from_bytes = 1

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self._ledgers: dict[Process | None, ObjectLogLedger] = {}
        self._silent: dict[Process | None, int] = {}
        self.bounds = replace(BOUNDS, ended_ranges=seed % 5, batch_ranges=5 + seed % 40)
        super().__init__(seed, scenario)
        self._snapshot_every = self.random.randint(2, 5)

    def ledger(self) -> Ledger:
        """Return the ledger of the process that is running."""
        process = self.simulation.running
        if process not in self._ledgers:
            assert isinstance(self.database, LogDatabase)
            log = ObjectLog(
                self.database.objects,
                FOLDER,
                snapshot_every=self._snapshot_every,
                archived_from_bytes=self.archived_from_bytes,
                bounds=self.bounds,
            )
            self._ledgers[process] = ObjectLogLedger(
                log, lambda: self.clock + timedelta(microseconds=self.simulation.steps)
            )
        return self._ledgers[process]

    def target(self, epoch: int) -> Any:
        """Return the sink as a driver of this epoch writes to it."""
        assert isinstance(self.database, LogDatabase)
        return LogTarget(self.database, epoch)

    def _made_database(self, hooks: Hooks) -> MemoryDatabase:
        dice = self.random.random
        objects = ObjectHooks(
            hooks.step,
            self._fate_of_create,
            self._read_fails,
            parts=lambda: 12 if dice() < 0.1 else 2,
            shows=lambda: dice() < 0.5,
        )
        return self._database_of(hooks, objects)

    def _database_of(self, hooks: Hooks, objects: ObjectHooks) -> MemoryDatabase:
        return LogDatabase(hooks, objects)

    def _fitting(self, scenario: Scenario) -> Scenario:
        return replace(
            scenario,
            delivery=Delivery.EXACTLY_ONCE,
            commit=Commit.BATCH,
            small_batches=False,
            stateful=False,
            manifest=False,  # the sink of this world is one of its own
            hazards=scenario.hazards - OF_DATABASES,
        )

    def _fate_of_create(self) -> str:
        """A store that loses one answer is likely to lose the next ones, too, until the client has given up."""
        process = self.simulation.running
        if process is not None and self.hazard_strikes("strike at commit", 0.1):
            self.to_strike.append(process)
        self._perhaps_sleep(process)
        left = self._silent.get(process, 0)
        if left <= 0 and self.hazard_strikes("cut at commit", 0.04):
            left = self.random.choice([1, 1, 2, 4, 8])
        if left <= 0 or self.calm:
            return "answered"
        self._silent[process] = left - 1
        self.journal.strike("cut at commit", process)
        return self.random.choice(["applied", "lost", "late", "late"])

    def _perhaps_sleep(self, process: Process | None) -> None:
        """A driver sleeps just before its create is sent, for so long that the names it knows may be pruned."""
        database = self.database
        assert isinstance(database, LogDatabase)
        drivers = [driver for found in self.drivers.values() for driver in found if driver.process is process]
        if not drivers or not self.hazard_strikes("strike at commit", 0.05):
            return
        self.journal.strike("lose driver", process)
        self.journal.strike("freeze driver", process, lasts=True)
        drivers[0].given_up = True
        until = database.number + 2 * self._snapshot_every + self.random.randint(1, 6)
        self.simulation.wait("a day to pass", lambda: self.calm or database.number >= until)
        self.journal.end("freeze driver", process)

    def _read_fails(self) -> bool:
        fails = self.hazard_strikes("cut at commit", 0.005)
        if fails:
            self.journal.strike("cut at commit", self.simulation.running)
        return fails
