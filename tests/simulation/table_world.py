"""A world whose sink is a table with a log of its own, to which others write, too, and whose requests lose answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from exactlyonce.connectors.files.manifest import Author
from exactlyonce.ledger.rows import StreamRow
from exactlyonce_spark.connectors.delta.table import LedgerBehindTable, TableBusy, Wanted
from exactlyonce_spark.connectors.delta.target import DeltaTarget
from exactlyonce_spark.target import ManifestTarget
from tests.simulation import manifest
from tests.simulation.causes import ERRORS
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.table import FOREIGN, MemoryTableLog, TableOutput, Version
from tests.simulation.world import SimulatedWorld

_CUT = "cut at commit"


class TableWorld(SimulatedWorld):
    """Everything of one seed."""

    continues_output = False
    errors: Mapping[type[BaseException], frozenset[str]] = {
        **ERRORS,
        LedgerBehindTable: frozenset({"restore"}),
        TableBusy: frozenset(),
    }

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario)
        self.table = TableOutput(self.simulation.step)
        self.output = self.table
        self.output.shown = partial(manifest.note_what_is_shown, self)
        self.output.fate = self._fate_in_the_table
        self.database.rows_of = self.output.counted

    def manifest_target(self, stream: StreamRow) -> ManifestTarget:
        """Return the table as a driver writes to it."""
        author = Author.of(stream)
        log = MemoryTableLog(self.table, author.life)
        return DeltaTarget(log, manifest.Writer(self.output), author, Wanted("/table", manifest.COLUMNS, ()))

    def remove_orphans(self) -> None:
        """Somebody appends to the table."""
        self._others(removes=False)

    def compact(self) -> None:
        """Somebody merges small files of the table, or deletes rows of others."""
        self._others(removes=True)

    def strike_sink(self) -> None:
        """Requests to the table that were late arrive, or never."""
        for request in list(self.output.under_way):
            if self.random.random() < 0.02:  # when a successor has committed, too
                self.output.settle(request, apply=self.random.random() < 0.5)

    def calm_sink(self) -> None:
        """All of them arrive, or never."""
        for request in list(self.output.under_way):
            self.output.settle(request, apply=self.random.random() < 0.5)

    def _others(self, *, removes: bool) -> None:
        self.simulation.step("another writer commits to the table")
        if self.table.versions:
            self.table.add(Version(FOREIGN, removes=removes))

    def _fitting(self, scenario: Scenario) -> Scenario:
        return scenario.with_restored_ledger() if "restore" in scenario.hazards else scenario.with_manifest()

    def _fate_in_the_table(self) -> str:
        process = self.simulation.running
        if process is not None and self.hazard_strikes("strike at commit", 0.1):
            self.to_strike.append(process)
        self._perhaps_sleep(process)
        if not self.hazard_strikes(_CUT, 0.2):
            return "answered"
        self.journal.strike(_CUT, process)
        return self.random.choice(["applied", "lost", "late", "late"])

    def _perhaps_sleep(self, process: Process | None) -> None:
        """A driver sleeps between its view of the table and its commit, until a successor has committed."""
        drivers = [driver for found in self.drivers.values() for driver in found if driver.process is process]
        if process is None or not drivers or not self.hazard_strikes("freeze driver", 0.1):
            return
        self.journal.strike("lose driver", process)
        self.journal.strike("freeze driver", process, lasts=True)
        drivers[0].given_up = True
        before = len(self.table.versions)
        self.simulation.wait("a successor to commit", lambda: self.calm or len(self.table.versions) > before)
