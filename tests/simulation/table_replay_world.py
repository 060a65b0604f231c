"""A world whose sink is a table with a log, to which others write, and in which what is in quarantine is replayed into it.

The ledger counts the files of a replay from its landing on. Readers of the table see them with the next batch.
"""

from __future__ import annotations

from exactlyonce_spark.connectors.delta.replaying import TableReplayTarget, replay_target, stream_in
from exactlyonce_spark.connectors.delta.target import TableTarget
from tests.simulation.replay_world import ReplayWorld, scenario_of_replays
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.snapshot_world import SnapshotWorld
from tests.simulation.table_world import TableWorld


class TableReplayWorld(ReplayWorld, TableWorld):
    """A world of replays into a Delta table."""

    rows_of_replays_are_shown_by_batches = True

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario or scenario_of_replays(seed))

    def _fitting(self, scenario: Scenario) -> Scenario:
        """Return the scenario with a table and a quarantine; the ledger may go back while the table stays."""
        return super()._fitting(scenario).with_quarantine()

    def target_of(self, process: Process) -> TableReplayTarget:
        """Return the table as a replay writes to it."""
        stream = stream_in(self.ledger(), STREAM_ID)
        target = self.manifest_target(stream)
        assert isinstance(target, TableTarget)
        return replay_target(target, self.ledger(), STREAM_ID, stream.life, process.name)

    def strike_sink(self) -> None:
        """Somebody starts a replay, and late requests arrive."""
        ReplayWorld.strike_sink(self)
        TableWorld.strike_sink(self)


class SnapshotReplayWorld(TableReplayWorld, SnapshotWorld):
    """A world of replays into a table of snapshots, such as Iceberg's."""

    def strike_sink(self) -> None:
        """Somebody starts a replay, and late requests arrive."""
        ReplayWorld.strike_sink(self)
        SnapshotWorld.strike_sink(self)
