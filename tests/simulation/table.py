"""A table with a log in the model: what the stream has committed to it, what others do there, and what its readers see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.manifest import REGISTERED, TableManifest
from exactlyonce_spark.connectors.delta.table import FileFacts, SinceOurs, TableSeen
from tests.simulation.manifest import COLUMNS, Output

FOREIGN = "another writer"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the log. `removes`: it may conflict with whoever has not seen it, as OPTIMIZE and DELETE do."""

    writer: str
    number: int = REGISTERED
    adds: tuple[str, ...] = ()
    removes: bool = False


class TableOutput(Output):
    """The folder of a table, with its log; readers follow the log."""

    def __init__(self, step: Callable[[str], None]) -> None:
        super().__init__(step)
        self.versions: list[Version] = []

    def take_step(self, label: str) -> None:
        """Let the others work, or this process be struck."""
        self._step(label)

    def named(self, committable: str) -> tuple[str, ...]:
        """Return the paths of the files that a committable names."""
        return tuple(file.path for file in TableManifest.from_json(BatchNumber(0), committable).manifest.files)

    def visible(self) -> Counter[Hashable]:
        """Return what readers of the table see of the stream's rows; a file that was added twice counts twice."""
        seen: Counter[Hashable] = Counter()
        for version in self.versions:
            for path in version.adds:
                seen.update(self.rows[path])
        return seen

    def add(self, version: Version) -> None:
        """Add a version; readers look whenever there is one."""
        self.versions.append(version)
        self.shown()


class MemoryTableLog:
    """A `TableLog` of one driver: a commit is a conditional create, checked against what it has not seen."""

    def __init__(self, output: TableOutput, writer: str) -> None:
        self._output = output
        self._writer = writer
        self._seen = -1

    def view(self, life: str) -> TableSeen | None:
        """Return the table as it is."""
        self._output.take_step("view the table")
        versions = self._output.versions
        if not versions:
            return None
        self._seen = len(versions) - 1
        numbers = [version.number for version in versions if version.writer == life]
        return TableSeen("table-1", self._seen, numbers[-1] if numbers else None, COLUMNS, ())

    def since_ours(self, life: str) -> SinceOurs:
        """Nobody restores the table of the model."""
        return SinceOurs(0)

    def create(self, columns: Mapping[str, Type], partition_by: Sequence[str]) -> None:
        """Create the table."""
        self._output.take_step("create the table")
        self._output.request(self._created, "create of the table")

    def _created(self) -> None:
        if not self._output.versions:
            self._output.add(Version(self._writer))

    def facts(self, files: Sequence[DataFile]) -> Mapping[str, FileFacts]:
        """Return what files say."""
        self._output.take_step("read footers")
        return {file.path: FileFacts(COLUMNS, "{}") for file in files if file.path in self._output.files}

    def commit(self, manifest: TableManifest | None, facts: Mapping[str, FileFacts]) -> bool:
        """Add a version unless one that was not seen conflicts with it."""
        self._output.take_step("commit to the table")
        number = REGISTERED if manifest is None else manifest.number
        version = Version(self._writer if manifest is None else manifest.life, number, tuple(facts))
        seen = self._seen

        def arrives() -> bool:
            if any(self.conflicts(other, version) for other in self._output.versions[seen + 1 :]):
                return False
            self._output.add(version)
            return True

        committed: bool = self._output.request(arrives, "commit to the table")
        return committed

    @staticmethod
    def conflicts(other: Version, version: Version) -> bool:
        """Whether a commit fails because of another one. Source: delta-rs, ConflictChecker."""
        return other.writer == version.writer or other.removes

    def add_columns(self, columns: Mapping[str, Type]) -> bool:
        """The model's columns never change."""
        raise AssertionError("no column is new")
