"""A table of snapshots in the model: a commit is taken by the state that was seen, and properties outlive snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from exactlyonce.connectors.files.columns import Type
from exactlyonce_spark.connectors.delta.manifest import REGISTERED, TableManifest
from exactlyonce_spark.connectors.delta.table import FileFacts, TableSeen
from exactlyonce_spark.connectors.iceberg.marker import Ancestor, Marker
from tests.simulation.manifest import COLUMNS, Writer
from tests.simulation.table import MemoryTableLog, TableOutput, Version

NONE = -1
"""No snapshot: the parent of the first."""


class SnapshotOutput(TableOutput):
    """The folder of a table, with its snapshots, the first of which are expired, and its properties: a marker by life.

    `current` is the snapshot that readers see, behind which its parent is, and so on; one that is on no path to it counts for
    nothing. `taken` says how many commits the catalog has taken, be they snapshots, rollbacks or properties.
    """

    def __init__(self, step: Callable[[str], None]) -> None:
        super().__init__(step)
        self.markers: dict[str, Marker] = {}
        self.parents: list[int] = []
        self.current = NONE
        self.taken = 0
        self.expired = 0

    def add(self, version: Version) -> None:
        """Add a snapshot behind the current one; readers look."""
        self.parents.append(self.current)
        self.current = len(self.versions)
        self.taken += 1
        super().add(version)

    def path_to(self, snapshot: int) -> Iterator[int]:
        """Yield a snapshot and its ancestors, also those that are expired."""
        while snapshot != NONE:
            yield snapshot
            snapshot = self.parents[snapshot]

    def visible(self) -> Counter[Hashable]:
        """Return what readers see; a file that was added twice counts twice."""
        shown = [self.versions[at] for at in self.path_to(self.current)]
        return Counter(row for version in shown for path in version.adds for row in self.rows[path])

    def make_current(self, snapshot: int) -> None:
        """Roll the table back or forward; nobody reads it in between."""
        self.current = snapshot
        self.taken += 1


class MemorySnapshotLog(MemoryTableLog):
    """A `SnapshotLog` of one driver: what it sees is what the catalog had in one moment."""

    def __init__(self, output: SnapshotOutput, writer: str) -> None:
        super().__init__(output, writer)
        self._snapshots = output
        self._markers: Mapping[str, Marker] = {}
        self._first = 0
        self._commits = 0

    def view(self, life: str) -> TableSeen | None:
        """Return the table as it is."""
        seen = super().view(life)
        if seen is None:
            return None
        table = self._snapshots
        self._seen, self._commits = table.current, table.taken
        self._markers, self._first = dict(table.markers), table.expired
        marker = self.marker(life)
        return TableSeen(seen.id, seen.version, None if marker is None else marker.number, COLUMNS, ())

    def marker(self, life: str) -> Marker | None:
        """Return what the properties say."""
        return self._markers.get(life)

    def history(self) -> Iterator[Ancestor]:
        """Yield what is not expired; a snapshot has the number of its version, which is its sequence number as well."""
        return (Ancestor(at, at) for at in self._snapshots.path_to(self._seen) if at >= self._first)

    def added(self) -> Mapping[int, int]:
        """Return what the summaries say of the stream's batches."""
        versions = self._snapshots.versions
        return {at: it.number - 1 for at, it in enumerate(versions) if it.number and at >= self._first}

    def ids(self) -> Mapping[str, int]:
        """The model's columns never change."""
        return {}

    def create(self, columns: Mapping[str, Type], partition_by: Sequence[str]) -> None:
        """Create the table, registered."""
        self._output.take_step("create the table")

        def arrives() -> None:
            if not self._snapshots.versions:
                self._snapshots.markers[self._writer] = Marker(REGISTERED)
                self._snapshots.add(Version(self._writer))

        self._output.request(arrives, "create of the table")

    def commit(self, manifest: TableManifest | None, facts: Mapping[str, FileFacts]) -> bool:
        """Add a snapshot and its marker, or a marker alone, unless the table has another snapshot by now."""
        self._output.take_step("commit to the table")
        life = self._writer if manifest is None else manifest.life
        number = REGISTERED if manifest is None else manifest.number
        version = Version(life, number, tuple(facts))
        table, seen, commits = self._snapshots, self._seen, self._commits

        def arrives() -> bool:
            if self.refuses(table, seen, commits):
                return False
            at = len(table.versions)
            table.markers[life] = Marker(number) if manifest is None else Marker(number, at, at)
            if manifest is None:
                table.taken += 1
            else:
                table.add(version)
            return True

        committed: bool = self._output.request(arrives, "commit to the table")
        return committed

    @staticmethod
    def refuses(table: SnapshotOutput, seen: int, commits: int) -> bool:
        """Whether the catalog refuses a commit: where it has taken any since the table was seen. `CatalogInDatabase`."""
        return table.taken != commits


class IdentifyingWriter(Writer):
    """The model's writer; columns have no ids there."""

    ids: Mapping[str, int] = {}
