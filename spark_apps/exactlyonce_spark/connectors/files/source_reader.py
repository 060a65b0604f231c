"""A folder as a source inside Spark: its lines or rows as DataFrames."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.columns import ddl
from exactlyonce.api.format import Format
from exactlyonce.api.format_type import FormatType
from exactlyonce.connectors.files.source_between import named_files, ranges_between, ranges_of, require_all_there
from exactlyonce.connectors.files.source_codec import CODEC, FolderCodec
from exactlyonce.connectors.files.source_plan import FileLimit
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile
from exactlyonce.connectors.files.source_spec import CleanSource, FilesSource
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce.schema.moment import Moments
from exactlyonce_spark.connectors.files.dividing import FolderDivider

# What its tasks raise comes back as text, and is told apart by the errors that this process knows.
from exactlyonce_spark.connectors.files.source_planner import FilesUnknown as FilesUnknown
from exactlyonce_spark.connectors.files.told_waiting import WaitingReader
from exactlyonce_spark.connectors.ports import PositionPart, RecordColumns, Spot
from exactlyonce_spark.decode.records import as_option
from exactlyonce_spark.decode.unread import LeftOut
from exactlyonce_spark.metrics import NotLanded

_VIEW = {
    "_file": "file",
    "_line": "line",
    "_modification_time": "modification_time",
    "_folder": "folder",
    "_partition": "partition",
    "_position": "position",
    "_key": "cast(null as binary)",
}
_ROW_VIEW = {name.replace("_line", "_row"): column.replace("line", "`row`") for name, column in _VIEW.items()}


def _where(unit: str) -> str:
    return f"concat(' in file ', _folder, '/', _file, ' {unit} ', _{unit})"


def _place(unit: str) -> str:
    return f"to_json(named_struct('folder', folder, 'file', file, '{unit}', `{unit}`))"


@dataclass(frozen=True)
class FolderRecords:
    """A `SourceReader` over a folder; its planner tells in the file of `told` how much waits, if one is given."""

    spec: FilesSource
    checkpoint: Checkpoint
    format: Format
    life: str
    codec: FolderCodec = CODEC
    told: WaitingReader | None = None

    def not_landed(self) -> NotLanded | None:
        """Return what waits in the folder by the planner's latest listing; None until it has listed it."""
        return None if self.told is None else self.told.not_landed()

    def note_landed(self) -> None:
        """Note that the batch that was planned last has landed."""
        if self.told is not None:
            self.told.note_landed()

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names that the view `source` has of a folder."""
        return tuple(self._view)

    @property
    def position_columns(self) -> Mapping[str, PositionPart]:
        """Folder, its one partition, and the position as a text whose order is that of positions."""
        return {
            "_folder": PositionPart.ORIGIN,
            "_partition": PositionPart.PARTITION,
            "_position": PositionPart.POSITION_TEXT,
        }

    @property
    def names_before_reading(self) -> bool:
        """A folder is named at its start in the end of batch 0, and read from the next batch on."""
        return True

    def columns(self, records: Any) -> RecordColumns:
        """Return the columns of lines or rows."""
        unit = "row" if self.format.type.is_columnar else "line"
        return RecordColumns(
            self._view,
            _where(unit),
            "folder",
            "partition",
            "position",
            _place(unit),
        )

    def stream(self, session: Any, partitions: int, most: int | None, left_out: Collection[Spot] = ()) -> Any:
        """Return the streaming DataFrame of the records."""
        limit = FileLimit(self.spec.batch_files, self.spec.batch_bytes, most)
        options = self._options(session, left_out) | {"limit": json.dumps(asdict(limit))}
        return session.readStream.format(_registered(session)).options(**options).load()

    def batch(self, session: Any, ranges: Ranges, left_out: Collection[Spot] = ()) -> Any:
        """Return the records of exactly these ranges."""
        options = self._options(session, left_out) | {"ranges": ranges.to_json()}
        return session.read.format(_registered(session)).options(**options).load()

    def divider(self, session: Any, *, of_backfill: bool) -> FolderDivider:
        """Return what divides ranges into files, as the lists beside the generations name them."""
        from exactlyonce_spark.connectors.files.source_records import Place

        place = Place.of(self._options(session))
        planner = place.planner(FileLimit(1, 1))
        return FolderDivider(self.spec.folder, planner.files, place.counts_in, of_backfill)

    def ranges_between(
        self, session: Any, stands: Positions, moments: Moments
    ) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        """Return the ranges of the files that were last written to between two moments."""
        read, listed = self._files(session, stands)
        for files in read.values():
            require_all_there(self.spec.folder, files, listed, moments)
        return {partition: ranges_between(files, moments) for partition, files in read.items()}

    def ranges_given(
        self, session: Any, stands: Positions, given: Sequence[NamedSpan]
    ) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        """Return the ranges of the files that a person names."""
        read, listed = self._files(session, stands)
        chosen = {it: named_files(it.origin, files, listed, given) for it, files in read.items()}
        return {partition: ranges_of(files, chosen[partition].__contains__) for partition, files in read.items()}

    def _files(
        self, session: Any, stands: Positions
    ) -> tuple[Mapping[Partition, Sequence[SourceFile]], Sequence[SourceFile]]:
        """Return the files that the stream has landed, in the order in which they were read, and those that are there now."""
        from exactlyonce_spark.connectors.files.source_records import Place

        place = Place.of(self._options(session))
        listed = place.folder().files()
        planner = place.planner(FileLimit(1, 1))
        return {partition: planner.files(NOTHING_READ, position) for partition, position in stands.items()}, listed

    def task_ranges(self, input_partitions: Iterable[Any]) -> None:
        """Return nothing: Spark does not show what a task of a source in Python reads."""

    @property
    def _view(self) -> Mapping[str, str]:
        return _ROW_VIEW if self.format.type.is_columnar else _VIEW

    def _options(self, session: Any, left_out: Collection[Spot] = ()) -> dict[str, str]:
        from exactlyonce_spark.connectors.files.source_records import Place
        from exactlyonce_spark.connectors.files.source_rows import Taken

        columns: str | None = None
        if self.format.type.is_columnar:
            from pyspark.sql.types import StructType

            from exactlyonce_spark.connectors.files.columnar_schema import columnar_schema
            from exactlyonce_spark.formats import parse_schema

            declared = StructType.fromDDL(ddl(parse_schema(self.format, self.reserved)))
            assert isinstance(declared, StructType), "DDL of columns"
            columns = columnar_schema(declared).json()
        spec = self.spec
        s3 = spec.place_on_s3
        return Place(
            spec.folder,
            None if s3 is None else s3.model_dump_json(by_alias=True, exclude_none=True),
            spec.file_names,
            spec.recursive,
            Taken(spec.header_lines, self.format.type is FormatType.RAW),
            spec.min_file_age.total_seconds(),
            spec.latest_first,
            spec.clean_source is CleanSource.DELETE,
            spec.archive_path,
            self.checkpoint.model_dump_json(by_alias=True, exclude_none=True),
            self.life,
            max(1, int(session.sparkContext.defaultParallelism)),
            as_option(self.format),
            columns,
            spec.start.milliseconds,
            spec.start.checkpoint,
            None if self.told is None else self.told.path,
            LeftOut(tuple(left_out)),
        ).options()


def _registered(session: Any) -> str:
    from exactlyonce_spark.connectors.files.source_records import FORMAT, FolderData

    session.dataSource.register(FolderData)
    return FORMAT
