"""A world whose sink is files, with compactions and who removes orphans, and whose ledger is an object log.

Both the log and the folder of the sink lose answers, and let requests arrive late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

from exactlyonce.connectors.files.tenancy import PathNotWritable
from exactlyonce.connectors.object_log.state import Key, Table
from tests.simulation import keyed
from tests.simulation.causes import ERRORS
from tests.simulation.log_database import LogDatabase
from tests.simulation.log_world import LogWorld
from tests.simulation.objects import ObjectHooks
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.server import Hooks, MemoryDatabase

_CUT = "cut at commit"


class ManifestLogDatabase(LogDatabase):
    """The objects of a log whose committables are manifests: those of landed batches change when files are merged."""

    def _count(self, found: dict[Key, Any]) -> None:
        """Count the rows of the files that the log names now; where no stream is left, nobody looks."""
        if not any(key.table is Table.STREAM for key in found):
            return
        texts = self._latest_texts(found)
        self.tables.rows |= {("committable", STREAM_ID, batch): text for batch, text in texts.items()}
        replayed = [text for key, text in found.items() if key.table is Table.REPLAYED]
        counted = (*texts.values(), *replayed)
        target: Counter[Hashable] = Counter(row for text in counted for row in self.rows_of(text))
        for row in (target - self.tables.target).elements():
            keyed.write(self.tables.by_key, row, self.how_keyed)
        self.tables.target = target

    def _latest_texts(self, found: dict[Key, Any]) -> dict[Any, str]:
        """What was written last of each batch: in the state, or else in the newest object that has the batch."""
        texts: dict[Any, str] = {}
        for key in sorted((key for key in found if key.table is Table.ARCHIVE), key=lambda key: key.rest):
            texts |= dict(self._archived(key))
        return texts | {key.rest[0]: text for key, text in found.items() if key.table is Table.COMMITTABLE}


class ManifestLogWorld(LogWorld):
    """Everything of one seed."""

    errors: Mapping[type[BaseException], frozenset[str]] = {**ERRORS, PathNotWritable: frozenset({_CUT})}

    most_chaos_steps = 5000  # a batch takes many requests, and some have to land before files can be merged

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self._is_drawn = scenario is None
        super().__init__(seed, scenario)
        self.output.fate = self._fate_in_the_folder

    def strike_sink(self) -> None:
        """Requests to the folder that were late arrive, or never."""
        for request in list(self.output.under_way):
            if self.random.random() < 0.3:
                self.output.settle(request, apply=self.random.random() < 0.5)

    def calm_sink(self) -> None:
        """All of them arrive, or never."""
        for request in list(self.output.under_way):
            self.output.settle(request, apply=self.random.random() < 0.5)

    def _database_of(self, hooks: Hooks, objects: ObjectHooks) -> MemoryDatabase:
        return ManifestLogDatabase(hooks, objects)

    def _fitting(self, scenario: Scenario) -> Scenario:
        """Return the scenario with a sink of files, where it is drawn with half of its hazards: batches land and are merged."""
        fitting = super()._fitting(scenario).with_manifest()
        if not self._is_drawn:
            return fitting
        dice = random.Random(f"files {self.seed}")
        kept = (one for one in sorted(fitting.hazards) if one == _CUT or dice.random() < 0.5)
        return replace(fitting, hazards=frozenset(kept))

    def _fate_in_the_folder(self) -> str:
        """It gets fewer requests than the log, and loses more of them; here no client sends one again."""
        process = self.simulation.running
        if process is not None and self.hazard_strikes("strike at commit", 0.1):
            self.to_strike.append(process)
        if not self.hazard_strikes(_CUT, 0.15):
            return "answered"
        self.journal.strike(_CUT, process)
        return self.random.choice(["applied", "lost", "late", "late"])
