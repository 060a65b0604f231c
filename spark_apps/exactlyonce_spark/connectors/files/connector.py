"""Files inside Spark: as a sink, Spark's own tasks write them and the ledger names those that count; a folder as a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import Author
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce.connectors.files.tenancy import Tenant
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce_spark.connectors.files.as_yielded import fit_files
from exactlyonce_spark.connectors.files.former_columns import columns_in
from exactlyonce_spark.connectors.files.replaying import PreparedFolderOfReplay
from exactlyonce_spark.connectors.files.source_reader import FolderRecords
from exactlyonce_spark.connectors.files.target import FilesTarget
from exactlyonce_spark.connectors.files.told_waiting import WaitingReader, new_file
from exactlyonce_spark.connectors.ports import FittedColumn, NoTasks, PositionPart, YieldedColumn
from exactlyonce_spark.manifest_landing import recover_manifests


@dataclass
class PreparedFolder:
    """A `PreparedSink`: the folder, which is looked at once the columns are known and before the first batch."""

    sink: FilesSink
    store: FolderStore
    ledger: Ledger
    permit: Permit
    author: Author
    _renamed: dict[str, str] = field(default_factory=dict)
    _columns: dict[str, Type] = field(default_factory=dict)

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns, which are handed over as they are."""
        self._columns, self._renamed, fitted = fit_files(self.sink, yielded, positions)
        return fitted

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[FilesTarget, NoTasks]:
        """Return the folder, which is the stream's and shows all that has landed."""
        target = self._opened()
        recover_manifests(self.ledger, self.permit, target)
        return target, NoTasks(self.permit.stream_id)

    def finishing(self) -> FilesTarget:
        """Return the folder, which may not show all that has landed."""
        target = self._opened()
        target.writes = False
        return target

    def _opened(self) -> FilesTarget:
        from exactlyonce_spark.connectors.files.writer import SparkFileWriter

        tenant = Tenant.of(self.sink, self.permit.stream_id, self.ledger.identity())
        writer = SparkFileWriter(self.sink, self._renamed)
        former = partial(columns_in, self.store)
        return FilesTarget(self.store, writer, tenant, self.author, self._columns, former)


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

    def prepare_replay(
        self, spec: StreamSpec, ledger: Ledger, stream_id: str, secrets: Secrets
    ) -> PreparedFolderOfReplay:
        """Return the folder; nothing is written before the columns are known."""
        sink = spec.sink.spec
        assert isinstance(sink, FilesSink), "the registry gives each connector its own spec"
        store = open_folder(sink.place_on_s3 or sink.path, secrets(sink.secret_ref))
        return PreparedFolderOfReplay(sink, store, ledger, stream_id)


class FolderConnector:
    """Folders as sources."""

    def reader(self, spec: StreamSpec, secrets: Secrets, life: str) -> FolderRecords:
        """Return the reader of a stream."""
        source = spec.source.spec
        assert isinstance(source, FilesSource), "the registry gives each connector its own spec"
        file = new_file()
        told = None if file is None else WaitingReader(file)
        return FolderRecords(source, spec.checkpoint, spec.source.format, life, told=told)

    def load_classes(self, session: Any) -> None:
        """Load nothing: the reader is written in Python."""


SINK = FilesConnector()
SOURCE = FolderConnector()
