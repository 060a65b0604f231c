"""Files inside Spark: as a sink, Spark's own tasks write them and the ledger names those that count; a folder as a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exactlyonce.api.format import FormatType
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files.columns import (
    POSITION_COLUMNS,
    ColumnsUnfit,
    Type,
    require_columns,
    require_positions,
)
from exactlyonce.connectors.files.manifest import Author
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.files.tenancy import Tenant
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce_spark.connectors.files.source_reader import FolderRecords
from exactlyonce_spark.connectors.files.target import FilesTarget
from exactlyonce_spark.connectors.ports import FittedColumn, NoTasks, PositionPart, YieldedColumn
from exactlyonce_spark.manifest_landing import recover_manifests


@dataclass
class PreparedFolder:
    """A `PreparedSink`: the folder, which is looked at once the columns are known and before the first batch."""

    sink: FilesSink
    store: OutputStore
    ledger: Ledger
    permit: Permit
    author: Author
    _renamed: dict[str, str] = field(default_factory=dict)
    _columns: dict[str, Type] = field(default_factory=dict)

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns, which are handed over as they are."""
        names = [column.name for column in yielded]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ColumnsUnfit(
                f"The query yields {', '.join(twice)} more than once; rename one of them in the transform."
            )
        if self.sink.include_positions:
            types = {column.name: column.type_document for column in yielded}
            require_positions(types, {part.value: name for name, part in positions.items()})
            self._renamed = {name: POSITION_COLUMNS[part.value] for name, part in positions.items()}
        self._columns = {column.name: column.type_document for column in yielded}
        require_columns(self._columns, self.sink.format, self.sink.partition_by)
        return tuple(FittedColumn(name, f"`{name.replace('`', '``')}`") for name in names)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[FilesTarget, NoTasks]:
        """Return the folder, which is the stream's and shows all that has landed."""
        from exactlyonce_spark.connectors.files.writer import SparkFileWriter

        tenant = Tenant.of(self.sink, self.permit.stream_id, self.ledger.identity())
        target = FilesTarget(self.store, SparkFileWriter(self.sink, self._renamed), tenant, self.author, self._columns)
        recover_manifests(self.ledger, self.permit, target)
        return target, NoTasks(self.permit.stream_id)


class FilesConnector:
    """Files."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedFolder:
        """Return the folder; nothing is written before the columns are known."""
        sink = spec.sink.spec
        assert isinstance(sink, FilesSink), "the registry gives each connector its own spec"
        store = open_folder(sink.place_on_s3 or sink.path, secrets(sink.secret_ref))
        return PreparedFolder(sink, store, ledger, permit, Author.of(stream))


class FolderConnector:
    """Folders as sources."""

    def reader(self, spec: StreamSpec, secrets: Secrets) -> FolderRecords:
        """Return the reader of a stream."""
        source = spec.source.spec
        assert isinstance(source, FilesSource), "the registry gives each connector its own spec"
        return FolderRecords(source, spec.checkpoint, spec.source.format.type is FormatType.RAW)

    def load_classes(self, session: Any) -> None:
        """Load nothing: the reader is written in Python."""


SINK = FilesConnector()
SOURCE = FolderConnector()
