"""A folder as a source inside Spark: its lines as DataFrames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.connectors.files.source_codec import CODEC, FolderCodec
from exactlyonce.connectors.files.source_plan import FileLimit
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.positions.ranges import Ranges

# What its tasks raise comes back as text, and is told apart by the errors that this process knows.
from exactlyonce_spark.connectors.files.source_planner import FilesUnknown as FilesUnknown
from exactlyonce_spark.connectors.ports import PositionPart, RecordColumns

_VIEW = {
    "_file": "file",
    "_line": "line",
    "_modification_time": "modification_time",
    "_folder": "folder",
    "_partition": "partition",
    "_position": "position",
    "_key": "cast(null as binary)",
}
_WHERE = "concat(' in file ', _folder, '/', _file, ' line ', _line)"
_PLACE = "to_json(named_struct('folder', folder, 'file', file, 'line', line))"


@dataclass(frozen=True)
class FolderRecords:
    """A `SourceReader` over a folder. `blank_lines`: whether a line without anything in it is a record."""

    spec: FilesSource
    checkpoint: Checkpoint
    blank_lines: bool
    codec: FolderCodec = CODEC

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names that the view `source` has of a folder."""
        return tuple(_VIEW)

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
        """Return the columns of lines."""
        return RecordColumns(
            _VIEW,
            "_key",
            _WHERE,
            "folder",
            "partition",
            "position",
            "modification_time",
            "cast(null as binary)",
            place=_PLACE,
        )

    def stream(self, session: Any, partitions: int, most: int | None) -> Any:
        """Return the streaming DataFrame of the records."""
        limit = FileLimit(self.spec.batch_files, self.spec.batch_bytes, most)
        options = self._options(session) | {"limit": json.dumps(asdict(limit))}
        return session.readStream.format(_registered(session)).options(**options).load()

    def batch(self, session: Any, ranges: Ranges) -> Any:
        """Return the records of exactly these ranges."""
        options = self._options(session) | {"ranges": ranges.to_json()}
        return session.read.format(_registered(session)).options(**options).load()

    def task_ranges(self, input_partitions: Iterable[Any]) -> None:
        """Return nothing: Spark does not show what a task of a source in Python reads."""

    def _options(self, session: Any) -> dict[str, str]:
        from exactlyonce_spark.connectors.files.source_records import Place
        from exactlyonce_spark.connectors.files.source_rows import Taken

        spec = self.spec
        return Place(
            spec.folder,
            spec.folder,
            spec.file_names,
            spec.recursive,
            Taken(spec.header_lines, self.blank_lines),
            spec.min_file_age.total_seconds(),
            spec.latest_first,
            self.checkpoint.model_dump_json(by_alias=True, exclude_none=True),
            max(1, int(session.sparkContext.defaultParallelism)),
        ).options()


def _registered(session: Any) -> str:
    from exactlyonce_spark.connectors.files.source_records import FORMAT, FolderData

    session.dataSource.register(FolderData)
    return FORMAT
