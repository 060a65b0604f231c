"""A sink of files in the model: what was written, what the ledger counts, and what a reader of Spark's log sees."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, cast

from exactlyonce.checkpoint.store import AlreadyExists, Created, CreateOutcome, FolderStore
from exactlyonce.connectors.files import orphans, spark_log
from exactlyonce.connectors.files.compaction import Compaction
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, ReplayWrite, Write
from exactlyonce.connectors.files.orphans import REPLACED_KEPT_SECONDS
from exactlyonce.connectors.files.spark_log import FOLDER, batch_of, name_of, parse
from exactlyonce.connectors.files.tenancy import FilesLost, PathOfAnother, Tenant
from exactlyonce.errors import Refused, StoreUnreachable
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.sink.files import StreamUnknown
from exactlyonce_spark.connectors.files.target import FilesTarget, WrittenFiles
from tests.simulation.files import MemoryStore
from tests.simulation.resource import STREAM_ID

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

COLUMNS = {"id": "long"}
LARGE_BYTES = 10_000
A_DAY_LATER = 2.0 * REPLACED_KEPT_SECONDS


class Output(MemoryStore):
    """The folder of the sink. `rows` keeps what was written to each file, also when the file is removed.

    `fate` says of a create or a replacement, as for objects, whether it is `answered`; `lost`; `applied`, where only the answer
    is lost; or `late`: then it is `under_way` until somebody settles it.
    """

    location = "/output"

    def __init__(self, step: Callable[[str], None]) -> None:
        super().__init__(step)
        self.rows: dict[str, tuple[Hashable, ...]] = {}
        self.shown: Callable[[], None] = lambda: None
        self.fate: Callable[[], str] = lambda: "answered"
        self.under_way: list[Callable[[], object]] = []
        self.seen: Counter[Hashable] = Counter()
        self.former: Counter[Hashable] = Counter()
        """The rows of a query of Spark's own that had written the folder before the stream."""
        self.batches_when_seen: dict[str, int] = {}

    def write(self, path: str, rows: tuple[Hashable, ...]) -> DataFile:
        """Write a data file."""
        self._step(f"write {path}")
        self.files[path], self.rows[path] = repr(rows).encode(), rows
        self.shown()
        return DataFile(path, len(self.files[path]), 0, len(rows))

    def create(self, path: str, content: bytes) -> Any:
        """Create a file; readers look whenever Spark's log has changed."""
        self._step(f"create {path}")
        return self.request(lambda: self._created(path, content), f"create of {path}")

    def replace(self, path: str, expected: bytes, content: bytes) -> bool:
        """Replace a file; readers look."""
        self._step(f"replace {path}")
        replaced: bool = self.request(lambda: self._replaced(path, expected, content), f"replacement of {path}")
        return replaced

    def settle(self, request: Callable[[], object], *, apply: bool) -> None:
        """Let a request arrive that nobody waits for any more, or never."""
        self.under_way.remove(request)
        if apply:
            request()

    def request(self, made: Callable[[], Any], what: str) -> Any:
        """Return what a request answers, if it is answered.

        Raises:
            StoreUnreachable: if not; it may have been applied, or may be at any later time.
        """
        fate = self.fate()
        if fate == "late":
            self.under_way.append(made)
        outcome = made() if fate in ("answered", "applied") else None
        if fate != "answered":
            raise StoreUnreachable(f"no answer to the {what}")
        return outcome

    def _created(self, path: str, content: bytes) -> CreateOutcome:
        if path in self.files:
            return AlreadyExists(self.files[path])
        self.files[path] = content
        if path.startswith(FOLDER):
            self.shown()
        return Created()

    def _replaced(self, path: str, expected: bytes, content: bytes) -> bool:
        if self.files.get(path) != expected:
            return False
        self.files[path] = content
        self.shown()
        return True

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files; readers look."""
        super().delete(paths)
        self.shown()

    def named(self, committable: str) -> tuple[str, ...]:
        """Return the paths of the files that a committable names."""
        return tuple(file.path for file in Manifest.from_json(BatchNumber(0), committable).files)

    def counted(self, committable: str) -> tuple[Hashable, ...]:
        """Return the rows of the files that a committable names."""
        return tuple(row for path in self.named(committable) for row in self.rows[path])

    def visible(self) -> Counter[Hashable]:
        """Return what Spark reads by its log; a file that is gone has no rows. Without a log it reads all files that are there.

        Source: CompactibleFileStreamLog.allFiles: from the latest compaction to the latest entry, without a gap.
        FileStreamSink.hasMetadata.
        """
        names = [name.removeprefix(f"{FOLDER}/") for name in self.files if name.startswith(f"{FOLDER}/")]
        if not names:
            return Counter(row for path, rows in self.rows.items() if path in self.files for row in rows)
        latest = max((batch for name in names if (batch := batch_of(name)) is not None), default=-1)
        every = spark_log.COMPACT_INTERVAL
        first = max(0, (latest + 1) // every * every - 1)
        seen: Counter[Hashable] = Counter()
        for number in range(first, latest + 1):
            name = name_of(number)
            for line in parse(name, self.files[f"{FOLDER}/{name}"]):
                path = json.loads(line)["path"].removeprefix("file:///output/")
                seen.update(self.rows[path] if path in self.files else ())
        return seen


def former_output(world: SimulatedWorld) -> int | None:
    """Return the latest batch of a query of Spark's own that has written the folder before, in some of the seeds.

    It is drawn apart, so that the seed's other draws stay.
    """
    dice = random.Random(f"former output {world.seed}")
    has_one = world.scenario.manifest and world.continues_output and dice.random() < 0.3
    return dice.randint(0, 6) if has_one else None


def write_former_output(world: SimulatedWorld) -> None:
    """Write what that query has left behind; it has died once between a file and its entry."""
    if world.former_batch is None:
        return
    output, latest = world.output, world.former_batch
    lines: list[str] = []
    for number in range(latest + 2):
        path = f"part-00000-{number:08x}-0000-4000-8000-000000000000-c000.snappy.parquet"
        row = ("former", number)
        output.files[path], output.rows[path] = repr(row).encode(), (row,)
        if number <= latest:
            lines.append(spark_log.line_of(DataFile(path, len(output.files[path]), 0), output.location))
            entry = lines if spark_log.is_compaction(number) else lines[-1:]
            output.files[f"{FOLDER}/{name_of(number)}"] = spark_log.render(entry)
            output.former[row] += 1
    output.seen = output.former.copy()


class Writer:
    """Writes each batch into a file for every three rows."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(
        self, write: Write | ReplayWrite, rows: Callable[[], Sequence[Hashable]] | Sequence[Hashable]
    ) -> WrittenFiles:
        """Write the rows of a batch, or of a chunk of a replay."""
        found = rows() if callable(rows) else rows
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
    return Tenant(STREAM_ID, world.ledger().identity(), "Parquet", (), "SparkMetadata", world.former_batch)


def has_files(world: SimulatedWorld) -> bool:
    """Whether the ledger names a file."""
    texts = [text for key, text in world.database.tables.rows.items() if key[0] == "committable"]
    return any(world.output.counted(text) for text in texts)


def note_what_is_shown(world: SimulatedWorld) -> None:
    """Readers never see a row that the ledger does not count, or did not before it was restored; and what they saw stays."""
    if world.journal.has_struck({"restore"}):
        return
    _note_what_is_not_taken_over(world)
    visible = world.output.visible()
    too_many = visible - world.database.tables.target - world.output.former
    if too_many:
        world.wrong.append(f"visible and not landed: {sorted(map(str, too_many))}")
    too_few = world.output.seen - visible
    if too_few:
        world.wrong.append(f"visible before and not any more: {sorted(map(str, too_few))}")
    world.output.seen = visible
    lost = files_lost(world)
    if lost:
        world.wrong.append(f"counted and removed: {lost}")


def not_taken_over(world: SimulatedWorld) -> Counter[Hashable]:
    """Return the rows that replays have landed, and that Spark's log shows with the next batch that lands."""
    texts = [text for key, text in world.database.tables.rows.items() if key[0] == "replayed"]
    return Counter(row for text in texts for row in world.output.counted(text))


def _note_what_is_not_taken_over(world: SimulatedWorld) -> None:
    """What a replay has landed is in the next batch that lands, so that readers of Spark's log come to see it."""
    rows = world.database.tables.rows
    batches = sum(key[0] == "committable" for key in rows)
    for name in [key[2] for key in rows if key[0] == "replayed"]:
        if batches > world.output.batches_when_seen.setdefault(name, batches):
            world.wrong.append(f"landed by a replay, and a later batch has not taken it over: {name}")


def files_lost(world: SimulatedWorld) -> list[str]:
    """Return the files that the ledger names and that are not there."""
    texts = [text for key, text in world.database.tables.rows.items() if key[0] in ("committable", "replayed")]
    return [path for text in texts for path in world.output.named(text) if path not in world.output.files]


def remove_orphans(world: SimulatedWorld) -> None:
    """Somebody removes what nobody will count, while drivers run; a day passes faster here than anything else."""
    found = orphans.find_orphans(world.output, world.ledger(), STREAM_ID, lambda: A_DAY_LATER)
    for orphan in found:
        world.output.delete([orphan.path])


class Merger:
    """A `Merger` of the model's files."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def merge(self, files: Sequence[DataFile], path: str, now_milliseconds: int) -> DataFile:
        """Write the rows of some files into one."""
        gone = [file.path for file in files if file.path not in self._output.files]
        if gone:
            raise FilesLost(f"{gone} are missing")
        return self._output.write(path, tuple(row for file in files for row in self._output.rows[file.path]))


def compact(world: SimulatedWorld) -> None:
    """Somebody merges small files, while drivers run and others merge and remove files."""
    merging = Compaction(
        cast("FolderStore", world.output),
        world.ledger(),
        STREAM_ID,
        LARGE_BYTES,
        Merger(world.output),
        clock=lambda: 0.0,
    )
    try:
        world.merged += sum(len(merge.files) for merge in merging.run())
    except (StreamUnknown, PathOfAnother):
        return  # no driver has come so far
    except Refused as problem:
        if not world.journal.has_struck({"restore"}) and "drop ledger" not in world.struck:
            world.wrong.append(f"a compaction was refused: {problem}")
