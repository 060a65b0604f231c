"""A world whose sink is files and in which what is in quarantine is replayed into them, beside compactions and removed orphans.

The ledger counts the files of a replay from its landing on. Readers of Spark's log see them once a batch has landed after it.
"""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce_spark.connectors.files.replaying import FilesReplayTarget, PreparedFolderOfReplay
from tests.simulation.manifest import COLUMNS, Writer
from tests.simulation.manifest_log_world import ManifestLogWorld
from tests.simulation.replay_world import ReplayWorld, scenario_of_replays
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process


class FilesReplayWorld(ReplayWorld):
    """A world of replays into files."""

    rows_of_replays_are_shown_by_batches = True

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario or scenario_of_replays(seed))

    def _fitting(self, scenario: Scenario) -> Scenario:
        """Return the scenario with a sink of files and a quarantine; the ledger may go back while the folder stays."""
        restored = scenario.hazards & {"restore"}
        fitting = super()._fitting(scenario).with_manifest().with_quarantine()
        return replace(fitting, hazards=fitting.hazards | restored)

    def target_of(self, process: Process) -> FilesReplayTarget:
        """Return the folder as a replay writes to it."""
        sink = FilesSink(path=self.output.location, continue_after_batch=self.former_batch)
        folder = PreparedFolderOfReplay(sink, self.output, self.ledger(), STREAM_ID, _columns=dict(COLUMNS))
        return folder.with_writer(Writer(self.output), process.name)


class FilesReplayLogWorld(FilesReplayWorld, ManifestLogWorld):
    """The same, with an object log for a ledger; both it and the folder lose answers and let requests arrive late."""

    def strike_sink(self) -> None:
        """Somebody starts a replay, and late requests arrive."""
        FilesReplayWorld.strike_sink(self)
        ManifestLogWorld.strike_sink(self)
