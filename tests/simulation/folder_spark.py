"""Spark's model with the product's reader of a folder: its planner, its lists, what a task reads, its offset log."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from exactlyonce.connectors.files.source_codec import CODEC
from exactlyonce.connectors.files.source_lines import NameFilter
from exactlyonce.connectors.files.source_lists import FileLists, folder_of
from exactlyonce.connectors.files.source_on_s3 import S3Folder
from exactlyonce.connectors.files.source_plan import FileLimit
from exactlyonce.connectors.files.source_position import count_of
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions
from exactlyonce_spark import tasks
from exactlyonce_spark.connectors.files import source_records
from exactlyonce_spark.connectors.files.source_planner import Clock, FolderPlanner, Ready
from exactlyonce_spark.connectors.files.source_rows import Taken, arrow_batches
from tests.decoders import BYTES, BYTES_OPTION, NOTHING
from tests.simulation.folder_bucket import FOLDER, PARTITION
from tests.simulation.planned_spark import PlannedBatch, PlannedQuery
from tests.simulation.source import Record
from tests.simulation.spark_errors import BatchTooLarge, PoisonRecord, SparkFailed

if TYPE_CHECKING:
    from tests.simulation.folder_world import FolderWorld


LIFE = "the only one"
"""No stream over a folder starts over in the simulation."""


class AtRest(Clock):
    """A clock that stands: each file is old enough, and waiting is the query's."""

    def seconds(self) -> float:
        """Return the time."""
        return 2e9

    def elapsed_seconds(self) -> float:
        """Return the time."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Return at once: the model of the query waits."""


@dataclass(frozen=True)
class SimulatedPlace(source_records.Place):
    """The folder of a world, and its lists beside the generations."""

    world: FolderWorld = field(kw_only=True)

    def folder(self) -> S3Folder:
        """Return the folder."""
        return S3Folder(cast(Any, self.world.bucket), NameFilter(self.file_names, self.recursive))

    def planner(self, limit: FileLimit) -> FolderPlanner:
        """Return the planner of a query."""
        ready = Ready(self.world.min_age, self.latest_first, self.delete, None)
        lists = FileLists(self.world.store, folder_of(FOLDER, "source"), self.life)
        return FolderPlanner(self.folder(), lists, limit, ready, AtRest())


def place_of(world: FolderWorld) -> SimulatedPlace:
    """Return the place of a world."""
    return SimulatedPlace(
        FOLDER, None, "*", False, Taken(), 0.0, world.latest_first, world.cleans, None, "", LIFE, 2, BYTES_OPTION, world=world
    )  # fmt: skip


class FolderBatch(PlannedBatch):
    """A batch of files, each read by the product's own reader."""

    codec = CODEC
    origin = FOLDER

    def run_tasks(self, job: tasks.Job) -> list[tasks.TaskReport]:
        """Run the tasks; what a task refuses, the driver does: it comes back as text, and is told apart by its name."""
        try:
            return super().run_tasks(job)
        except SparkFailed as problem:
            refused = problem.__cause__
            if not isinstance(refused, Refused):
                raise
        raise refused  # outside of the block, or each of the two would be the context of the other

    def _require_memory(self) -> None:
        most = self._world.most_records
        files = sum(count_of(span.until_offset) - count_of(span.from_offset) for span in self._ranges.values())
        if most is not None and files > most:
            raise BatchTooLarge(f"java.lang.OutOfMemoryError: batch {self.number} has {files} files")

    def _read(self, key: Partition, offsets: OffsetRange) -> list[Hashable]:
        world: FolderWorld = self._world
        place = place_of(world)
        rows: list[Record] = []
        for part in self._planned:
            if not isinstance(part, source_records.FilePart):
                continue
            for batch in arrow_batches(place.folder(), FOLDER, part.files, Taken(), BYTES, NOTHING):
                values: list[Any] = batch.column("value").to_pylist()
                rows += [("record", 0, int(row["value"])) for row in values]
        failing = [offset for _, offset in sorted(world.poison) if ("record", 0, offset) in rows]
        if world.poison_left and failing:
            world.poison_left -= 1
            world.journal.strike("poison")
            raise PoisonRecord(f"record {failing[0]} fails its batch")
        return list(rows)


class FolderQuery(PlannedQuery):
    """A query over a folder."""

    batch_type = FolderBatch

    def _reader_of_query(self) -> source_records.FolderStreamReader:
        world: FolderWorld = self._world
        limit = FileLimit(world.limit, 1 << 20, self._growth.records)
        return source_records.FolderStreamReader(place_of(world), limit)

    def _version(self) -> int:
        return int(self._world.bucket.version)

    def _note_plan(self, start: Positions, end: Positions) -> None:
        self._world.note_plan(self._reader, start[PARTITION], end[PARTITION])
