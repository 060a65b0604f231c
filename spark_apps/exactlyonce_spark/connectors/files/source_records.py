"""Spark's readers of a folder, in Python: as a stream, and of exactly given ranges.

Options are seen in plans and logs, so no login is among them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.column_ddl import parse
from exactlyonce.api.format import Format
from exactlyonce.checkpoint.folders import open_folder, open_versions
from exactlyonce.checkpoint.generation import SOURCE_FOLDER
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_lines import NameFilter
from exactlyonce.connectors.files.source_lists import FileLists, folder_of
from exactlyonce.connectors.files.source_plan import FileLimit, left_out_before
from exactlyonce.connectors.files.source_position import SourceFile, from_text, to_text
from exactlyonce.connectors.files.source_spec import KEY
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_mounted
from exactlyonce.positions.ranges import Ranges
from exactlyonce.schema.model import SecretRef
from exactlyonce.schema.places import S3Place, is_on_s3, plain_path
from exactlyonce_spark.connectors.files.columnar import count_rows
from exactlyonce_spark.connectors.files.columnar_schema import schema_of_rows
from exactlyonce_spark.connectors.files.source_planner import Folder, FolderPlanner, Ready
from exactlyonce_spark.connectors.files.source_rows import (
    PlacedFile,
    Taken,
    arrow_batches,
    columnar_batches,
    counts_in,
    placed,
    schema_text,
    shared_out,
)
from exactlyonce_spark.connectors.files.told_waiting import WaitingWriter
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.decode.records import record_decoder
from exactlyonce_spark.decode.unread import LeftOut

if TYPE_CHECKING:
    from exactlyonce.connectors.files.source_on_s3 import S3Folder

FORMAT = "exactlyonce_folder"

Offsets = dict[str, dict[str, str]]
"""As the codec has them, parsed."""


@dataclass(frozen=True)
class Place:
    """Which files are read, how, and where it is written down which ones were.

    `columns` are those of columnar files, as JSON of Spark's; `format` is that of the resource, as JSON.
    """

    origin: str
    s3: str | None
    file_names: str
    recursive: bool
    taken: Taken
    min_age_seconds: float
    latest_first: bool
    delete: bool
    archive: str | None
    checkpoint: str
    life: str
    tasks: int
    format: str
    columns: str | None = None
    start_milliseconds: int | None = None
    start_checkpoint: str | None = None
    waiting_file: str | None = None
    left_out: LeftOut = field(default_factory=LeftOut)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        """Return what the options say."""
        told = json.loads(options["place"])
        left_out = LeftOut.of(options.get("left_out"))
        return cls(**{**told, "taken": Taken(**told["taken"]), "left_out": left_out})

    def options(self) -> dict[str, str]:
        """Return the options that say so."""
        taken = {"header_lines": self.taken.header_lines, "blank_lines": self.taken.blank_lines}
        told = {name: value for name, value in vars(self).items() if name != "left_out"}
        return {"place": json.dumps({**told, "taken": taken}), **LeftOut.options(self.left_out.spans)}

    def folder(self) -> LocalFolder | S3Folder:
        """Return the folder, on S3 with the login as it is mounted now.

        Raises:
            SecretMissing: if the secret is not there, or holds one half of a login.
        """
        names = NameFilter(self.file_names, self.recursive)
        if self.s3 is None:
            return LocalFolder(self.origin, names)
        from exactlyonce.connectors.files.source_on_s3 import S3Folder

        place = S3Place.model_validate_json(self.s3)
        return S3Folder(open_versions(place, _mounted(place.secret_ref)), names)

    def planner(self, limit: FileLimit) -> FolderPlanner:
        """Return the planner of a query; nothing is read yet.

        Raises:
            SecretMissing: if the secret of the checkpoint is not there.
        """
        checkpoint = Checkpoint.model_validate_json(self.checkpoint)
        # Lists of a folder with many files are larger than what else is in a checkpoint, so no limit is given.
        store = open_folder(checkpoint.s3 or checkpoint.location, _mounted(checkpoint.secret_ref))
        ready = Ready(timedelta(seconds=self.min_age_seconds), self.latest_first, self.delete, self.archive)
        lists = FileLists(store, folder_of(self.origin, SOURCE_FOLDER), self.life)
        records_in = self._rows_in if self.columns else None
        told = {} if self.waiting_file is None else {"tell": WaitingWriter(Path(self.waiting_file))}
        return FolderPlanner(self.folder(), lists, limit, ready, None, records_in, self._left_out, **told)

    def _left_out(self, folder: Folder) -> tuple[SourceFile, ...]:
        if self.start_checkpoint is not None:
            from exactlyonce_spark.connectors.files.spark_query import files_read_by

            given: S3Place | str = plain_path(self.start_checkpoint)
            login: dict[str, str] = {}
            if self.s3 is not None and is_on_s3(self.start_checkpoint):
                source = S3Place.model_validate_json(self.s3)
                given = source.model_copy(update={"location": self.start_checkpoint})
                login = _mounted(source.secret_ref)
            return files_read_by(open_folder(given, login), self.origin)
        if self.start_milliseconds is not None:
            return left_out_before(folder.files(), self.start_milliseconds)
        return ()

    def schema(self) -> str | StructType:
        """Return the columns of a record."""
        if self.columns is None:
            return schema_text(record_decoder(self.format).ddl)
        return schema_of_rows(StructType.fromJson(json.loads(self.columns)))

    def batches(self, files: Iterable[PlacedFile]) -> Iterator[pa.RecordBatch]:
        """Read records."""
        schema = self.schema()
        if isinstance(schema, str):
            decoder = record_decoder(self.format)
            return arrow_batches(self.folder(), self.origin, files, self.taken, decoder, self.left_out)
        given = Format.model_validate_json(self.format)
        arrow = to_arrow_schema(schema, timezone="UTC")
        return columnar_batches(self.folder(), self.origin, files, given.type, arrow, parse(given.schema_))

    def counts_in(self, each: PlacedFile) -> Iterator[int]:
        """Yield how many records a file has, part by part, by reading it as a task does.

        Raises:
            FileVanished, FileChanged, FileUnreadable, SourceRefused, SourceUnreachable: as tasks do.
        """
        if self.columns is None:
            return counts_in(self.folder(), self.origin, (each,), self.taken)
        return (batch.num_rows for batch in self.batches((each,)))

    def _rows_in(self, file: SourceFile) -> int:
        folder = self.folder()
        with folder.opened(file) as opened:
            return count_rows(Format.model_validate_json(self.format).type, folder.named(file), opened)


def _mounted(reference: SecretRef | None) -> dict[str, str]:
    return {} if reference is None else read_mounted(Path(os.environ[SECRETS_FOLDER]), reference.name)


@dataclass
class FilePart(InputPartition):
    """What one task reads."""

    files: tuple[PlacedFile, ...]


def _parts(planner: FolderPlanner, start: int, end: int, tasks: int) -> list[FilePart]:
    read = [each for each in placed(start, planner.files(start, end)) if not each.file.is_left_out]
    return [FilePart(files) for files in shared_out(read, tasks)]


def _batches(place: Place, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, FilePart)
    return place.batches(partition.files)


class FolderStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads batches. Spark keeps one in a process of the driver for the life of the query."""

    def __init__(self, place: Place, limit: FileLimit) -> None:
        self._place = place
        self._limit = limit
        self._planner: FolderPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks are given the reader, and not what the planner holds."""
        return {"_place": self._place, "_limit": self._limit, "_planner": None}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and end."""
        self._planned().read_until_now()

    def initialOffset(self) -> Offsets:
        """Return no position: Spark does not keep what is answered here, so every checkpoint is seeded.

        Spark asks before batch 0 of a seed, whose end is where the stream starts; nothing is read in it.
        """
        return {self._place.origin: {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit of Spark's own: files, bytes and records are limited at once, by the planner."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the next batch ends."""
        begin = self._position(start)
        assert begin is not None, "a query over a folder starts from a seeded checkpoint, which names its position"
        end = self._planned().end(begin)
        if end != begin:
            reached("source.end-planned")
        return {self._place.origin: {str(KEY): to_text(end)}}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return tasks for the files of a batch."""
        begin, until = self._position(start), self._position(end)
        if begin is None or until is None or begin == until:
            return []
        return _parts(self._planned(), begin, until, self._place.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        return _batches(self._place, partition)

    def _position(self, offsets: Offsets) -> int | None:
        text = offsets.get(self._place.origin, {}).get(str(KEY))
        return None if text is None else from_text(text)

    def _planned(self) -> FolderPlanner:
        if self._planner is None:
            self._planner = self._place.planner(self._limit)
        return self._planner


class FolderRangesReader(DataSourceReader):
    """Reads exactly given ranges."""

    def __init__(self, place: Place, ranges: Ranges) -> None:
        self._place = place
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """Return tasks for the files of the ranges."""
        planner = self._place.planner(FileLimit(1, 1))
        spans = self._ranges.non_empty().values()
        return [
            part for span in spans for part in _parts(planner, span.from_offset, span.until_offset, self._place.tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        return _batches(self._place, partition)


class FolderData(DataSource):
    """What Spark calls by the name in `FORMAT`."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return FORMAT

    def schema(self) -> str | StructType:
        """Return the columns of a record."""
        return Place.of(self.options).schema()

    def streamReader(self, schema: Any) -> FolderStreamReader:
        """Return the reader of a stream."""
        return FolderStreamReader(Place.of(self.options), FileLimit(**json.loads(self.options["limit"])))

    def reader(self, schema: Any) -> FolderRangesReader:
        """Return the reader of ranges."""
        return FolderRangesReader(Place.of(self.options), Ranges.from_json(self.options["ranges"]))
