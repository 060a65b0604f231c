"""A world whose sink commits a load once it is submitted: rows of large tasks wait in files until the ledger has decided.

Small tasks prepare loads as in any sink of two phases, so a batch may have both. Time passes for the sink alone: it forgets
labels, while a driver is frozen between what it has recorded and what it sends.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.load_outcome import NotCommitted
from exactlyonce_spark.two_phase_finish import RowsNotThere
from exactlyonce_spark.two_phase_submit import RowsPartlyLoaded
from tests.simulation.causes import OTHER_OPERATOR, SUCCESSOR
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.staged_store import StagedStore, StagingTarget, StoreFull
from tests.simulation.two_phase_store import TwoPhaseStore
from tests.simulation.two_phase_world import (
    ANSWERED,
    LABELS_EXPIRE,
    LOADS_ABORTED,
    SINK_SILENT,
    OverLoads,
    TwoPhaseLogWorld,
    TwoPhaseWorld,
)

FILE_LOST, STORE_FULL = "file lost while read", "store full"

_NOT_SENT = frozenset(
    {
        "kill driver",
        "strike at commit",
        "freeze driver",
        "lose driver",
        "start twice",
        "cut at commit",
        "database crash",
    }
    | {SINK_SILENT, SUCCESSOR, OTHER_OPERATOR}
)
"""What may come between the record that a load is submitted and its statement; its rows are then made again."""


class OverStagedLoads(OverLoads):
    """What a world over a store of files and loads adds to one with a ledger of any kind."""

    errors: Mapping[type[BaseException], frozenset[str]] = {
        **OverLoads.errors,
        NotCommitted: OverLoads.errors[NotCommitted] | _NOT_SENT,
        RowsNotThere: OverLoads.errors[RowsNotThere] | _NOT_SENT,
        RowsPartlyLoaded: frozenset({FILE_LOST}),
        StoreFull: frozenset({STORE_FULL}),
    }
    written_again_after = frozenset({LOADS_ABORTED, ANSWERED, *_NOT_SENT})

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self._files_of_batch: set[str] = set()
        self._dawdles = 0
        super().__init__(seed, scenario)
        assert isinstance(self.loads, StagedStore), "it was made here"
        self.files: StagedStore = self.loads
        self.files.cancels = self._cancels
        self.files.dawdles = self._dawdled
        self._dice = random.Random(f"files {seed}")
        self.files.loses_file = lambda: self._befalls(LOADS_ABORTED, FILE_LOST, 0.4)
        self.files.is_full = lambda: self._befalls(SINK_SILENT, STORE_FULL, 0.3)
        self.stages_from = self.random.choice([0, 0, 2, 4])
        self.files.skips_missing = self.random.random() < 0.5
        self.late_arrives = self.random.choice([0.3, 0.02])

    def made_store(self) -> TwoPhaseStore:
        """Return a store that takes files."""
        return StagedStore(lambda label: None, lambda: "answered", lambda rows: None)

    def target(self, epoch: int) -> Any:
        """Return the sink as a driver of this epoch writes to it."""
        return StagingTarget(self.files, LoadLabels(STREAM_ID, "token"), Epoch(epoch), self.stages_from)

    def strike_sink(self) -> None:
        """Loads come further, and hours may pass."""
        super().strike_sink()
        self._require_no_file_of_a_landed_batch()
        if self.random.random() < 0.2:
            self.files.progress()
        if self.strikes(LABELS_EXPIRE, 0.02):
            minutes = self.random.choice([1, 9, 11, 60])
            self.simulation.tell(f"{minutes} minutes pass for the sink")
            if self.files.pass_minutes(minutes, lambda: self.random.random() < 0.7):
                self.simulation.tell("the sink forgets labels of files")

    def _require_no_file_of_a_landed_batch(self) -> None:
        """Nothing of a batch that has landed is left to be loaded by anybody."""
        decided = self.decided()
        if decided is not None:
            self._files_of_batch |= _files_of(decided)
        elif self._files_of_batch:
            left = self._files_of_batch & set(self.files.files)
            if left:
                self.wrong.append(f"a batch has landed, and files of its loads are there: {sorted(left)}")
            self._files_of_batch = set()

    def mend(self, label: str) -> bool:
        """A person adds the rows that a load lacks, or removes those that it has loaded; whether all of them are there now."""
        lacking = self.files.lacking.pop(label)
        if self._dice.random() < 0.5:
            self.show(lacking)
            return True
        self.hide(self.files.read_by[label])
        return False

    def _befalls(self, hazard: str, what: str, probability: float) -> bool:
        """Dice of their own leave the schedules of other worlds as they are."""
        if self.calm or hazard not in self.scenario.hazards or self._dice.random() >= probability:
            return False
        self.journal.strike(what)
        return True

    def _cancels(self) -> bool:
        strikes = self.hazard_strikes(LOADS_ABORTED, 0.1)
        if strikes:
            self.journal.strike(LOADS_ABORTED)
        return strikes

    def _dawdled(self) -> bool:
        if self._dawdles <= 0 and self.hazard_strikes(SINK_SILENT, 0.05):
            self._dawdles = self.random.choice([2, 5, 40])
        self._dawdles -= 1
        if self._dawdles < 0 or self.calm:
            return False
        self.journal.strike(SINK_SILENT)
        return True


class StagedWorld(OverStagedLoads, TwoPhaseWorld):
    """The ledger is a database's."""


class StagedLogWorld(OverStagedLoads, TwoPhaseLogWorld):
    """The ledger is an object log."""


def _files_of(decided: DecidedBatch) -> set[str]:
    return {one.staged.name for one in decided.committables if one.staged is not None}
