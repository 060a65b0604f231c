"""A world whose sink is a table of snapshots: others commit, expire snapshots and roll back, and requests lose answers."""

from __future__ import annotations

from functools import partial

from exactlyonce.connectors.files.manifest import Author
from exactlyonce.ledger.rows import StreamRow
from exactlyonce_spark.connectors.delta.table import Wanted
from exactlyonce_spark.connectors.iceberg.marker import ICEBERG
from exactlyonce_spark.connectors.iceberg.target import IcebergTarget
from exactlyonce_spark.target import ManifestTarget
from tests.simulation import manifest
from tests.simulation.scenario import Scenario
from tests.simulation.snapshots import IdentifyingWriter, MemorySnapshotLog, SnapshotOutput
from tests.simulation.table import FOREIGN, Version
from tests.simulation.table_world import TableWorld


class SnapshotWorld(TableWorld):
    """Everything of one seed."""

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario)
        self.snapshots = SnapshotOutput(self.simulation.step)
        self.output = self.table = self.snapshots
        self.output.shown = partial(manifest.note_what_is_shown, self)
        self.output.fate = self._fate_in_the_table
        self.database.rows_of = self.output.counted
        if self.random.random() < 0.5:  # a table that others have made knows no stream, which is registered late
            self.snapshots.add(Version(FOREIGN))

    def manifest_target(self, stream: StreamRow) -> ManifestTarget:
        """Return the table as a driver writes to it."""
        author = Author.of(stream)
        log = MemorySnapshotLog(self.snapshots, author.life)
        wanted = Wanted("/table", manifest.COLUMNS, (), words=ICEBERG)
        return IcebergTarget(log, IdentifyingWriter(self.output), author, wanted)

    def compact(self) -> None:
        """Somebody rewrites files of the table, sets a property, or expires all snapshots but the current one."""
        kind = self.random.choice(["files", "files", "property", "expiry"])
        if kind == "files":
            super().compact()
        elif self.snapshots.versions:
            self.simulation.step(f"another writer commits: {kind}")
            self.snapshots.taken += 1
            if kind == "expiry":
                self.snapshots.expired = self.snapshots.current

    def strike_sink(self) -> None:
        """Requests that were late arrive, also while somebody has rolled the table back, which is undone at once."""
        table = self.snapshots
        earlier = [at for at in table.path_to(table.current) if at >= table.expired][1:]
        for request in list(table.under_way):
            if self.random.random() > 0.02:
                continue
            if not earlier or self.random.random() < 0.2:
                table.settle(request, apply=self.random.random() < 0.5)
                continue
            was, back = table.current, self.random.choice(earlier)
            table.make_current(back)
            table.settle(request, apply=True)
            if table.current == back:
                table.make_current(was)
                table.shown()
