"""A sink of files in the model: what was written, what the ledger counts, and what a reader of Spark's log sees."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from exactlyonce.connectors.files import orphans
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, Write
from exactlyonce.connectors.files.spark_log import COMPACT_INTERVAL, FOLDER, batch_of, name_of, parse
from exactlyonce.connectors.files.tenancy import Tenant
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.files.target import FilesTarget, WrittenFiles
from tests.simulation.database import MemoryLedger
from tests.simulation.files import MemoryStore
from tests.simulation.resource import STREAM_ID

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

COLUMNS = {"id": "long"}


class Output(MemoryStore):
    """The folder of the sink. `rows` keeps what was written to each file, also when the file is removed."""

    location = "/output"

    def __init__(self, step: Callable[[str], None]) -> None:
        super().__init__(step)
        self.rows: dict[str, tuple[Hashable, ...]] = {}
        self.shown: Callable[[], None] = lambda: None

    def write(self, path: str, rows: tuple[Hashable, ...]) -> DataFile:
        """Write a data file."""
        self._step(f"write {path}")
        self.files[path], self.rows[path] = repr(rows).encode(), rows
        return DataFile(path, len(self.files[path]), 0, len(rows))

    def create(self, path: str, content: bytes) -> Any:
        """Create a file; readers look whenever Spark's log has changed."""
        outcome = super().create(path, content)
        if path.startswith(FOLDER):
            self.shown()
        return outcome

    def counted(self, committable: str) -> tuple[Hashable, ...]:
        """Return the rows of the files that a committable names."""
        manifest = Manifest.from_json(BatchNumber(0), committable)
        return tuple(row for file in manifest.files for row in self.rows[file.path])

    def visible(self) -> Counter[Hashable]:
        """Return what Spark reads by its log; a file that is gone has no rows.

        Source: CompactibleFileStreamLog.allFiles: from the latest compaction to the latest entry, without a gap.
        """
        names = [name.removeprefix(f"{FOLDER}/") for name in self.files if name.startswith(f"{FOLDER}/")]
        latest = max((batch for name in names if (batch := batch_of(name)) is not None), default=-1)
        first = max(0, (latest + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1)
        seen: Counter[Hashable] = Counter()
        for number in range(first, latest + 1):
            name = name_of(number)
            for line in parse(name, self.files[f"{FOLDER}/{name}"]):
                path = json.loads(line)["path"].removeprefix("file:///output/")
                seen.update(self.rows[path] if path in self.files else ())
        return seen


class Writer:
    """Writes each batch into a file for every three rows."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, write: Write, rows: Callable[[], list[Hashable]]) -> WrittenFiles:
        """Write the rows of a batch."""
        found = rows()
        pieces = [tuple(found[first : first + 3]) for first in range(0, len(found), 3)]
        files = [self._output.write(f"{write.name}-part-{at}", piece) for at, piece in enumerate(pieces)]
        return WrittenFiles(tuple(files), len(found))

    def learn(self, manifest: Manifest) -> None:
        """The model's files are as large as they are."""


def target_of(world: SimulatedWorld, stream: StreamRow) -> FilesTarget:
    """Return the target of a driver."""
    return FilesTarget(world.output, Writer(world.output), tenant_of(world), Author.of(stream), COLUMNS)


def tenant_of(world: SimulatedWorld) -> Tenant:
    """Return whose the folder is: an orphan is looked for with the ledger that it was written with, or not at all."""
    return Tenant(STREAM_ID, MemoryLedger(world.database).identity(), "Parquet", (), "SparkMetadata")


def has_files(world: SimulatedWorld) -> bool:
    """Whether the ledger names a file."""
    texts = [text for key, text in world.database.tables.rows.items() if key[0] == "committable"]
    return any(world.output.counted(text) for text in texts)


def note_what_is_shown(world: SimulatedWorld) -> None:
    """Readers never see a row that the ledger does not count, or did not before it was restored."""
    if world.journal.has_struck({"restore"}):
        return
    too_many = world.output.visible() - world.database.tables.target
    if too_many:
        world.wrong.append(f"visible and not landed: {sorted(map(str, too_many))}")


def remove_orphans(world: SimulatedWorld) -> None:
    """Somebody removes what nobody will count, while drivers run."""
    for orphan in orphans.find_orphans(world.output, MemoryLedger(world.database), STREAM_ID):
        world.output.delete([orphan.path])
