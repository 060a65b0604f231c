"""An Iceberg table in its catalog, by the library of its own project, pyiceberg. No pyspark here.

Source: pyiceberg 0.12. Its own retry of a commit that was refused is switched off: it puts the same files on top of whatever
others have committed, without a look at whether this stream's successor has committed the very batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import pyarrow
import pyarrow.parquet
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform
from sqlalchemy.exc import SQLAlchemyError

from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.manifest import Author, DataFile
from exactlyonce.connectors.iceberg.spec import DATA
from exactlyonce.errors import Unreachable
from exactlyonce_spark.connectors.delta.facts_at_once import facts_at_once
from exactlyonce_spark.connectors.delta.manifest import REGISTERED, TableManifest
from exactlyonce_spark.connectors.delta.table import FileFacts, TableOfAnother, TableSeen
from exactlyonce_spark.connectors.iceberg.data_files import Footer, data_file
from exactlyonce_spark.connectors.iceberg.fit import (
    WRITTEN_VERSION,
    can_merge,
    new_fields,
    partitioned_by,
    schema_of,
    spark_type,
    unwritable,
)
from exactlyonce_spark.connectors.iceberg.marker import Ancestor, Marker, batch_in, property_of, summary_of

_MAIN = "main"


class TableUnreachable(Unreachable):
    """The catalog or the storage of the table does not answer, or the library cannot read the table."""


@dataclass
class IcebergLog:
    """One table, for one stream: a `SnapshotLog`. Its catalog is opened once it is needed."""

    identifier: str
    location: str
    """As the resource says it."""
    uri: str
    """As the table says it, where this project creates it."""
    open_catalog: Callable[[], Catalog]
    folder: OutputStore
    stream: str
    author: Author
    _catalog: Catalog | None = field(default=None, repr=False)
    _table: Table | None = field(default=None, repr=False)

    def view(self, life: str) -> TableSeen | None:
        """Return the table as it is now, and the number that it has of a life of the stream; None if there is no table."""
        with self._named("read"):
            try:
                self._table = self._opened().load_table(self.identifier)
            except NoSuchTableError:
                self._table = None
                return None
            metadata = self._table.metadata
            # In this process alone: a commit that is refused is looked at again here, and is repeated by nobody else. Manifests
            # are merged unless the table says otherwise, as is the default of Iceberg and not of the library.
            metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
            metadata.properties.setdefault(TableProperties.MANIFEST_MERGE_ENABLED, "true")
            marker = self.marker(life)
            return TableSeen(
                str(metadata.table_uuid),
                getattr(metadata, "last_sequence_number", 0),  # version 1 has none, and is refused
                None if marker is None else marker.number,
                {column.name: spark_type(column.field_type) for column in metadata.schema().fields},
                partitioned_by(metadata),
                unwritable(metadata, self.location),
            )

    def marker(self, life: str) -> Marker | None:
        """Return what the table, as `view` saw it last, knows of a life of the stream; None if it does not know it."""
        return Marker.from_json(self._seen.metadata.properties.get(property_of(self.stream, life)))

    def history(self) -> Iterator[Ancestor]:
        """Yield the current snapshot and its ancestors as `view` saw them last, as far as they are not expired."""
        metadata = self._seen.metadata
        snapshot = metadata.current_snapshot()
        while snapshot is not None:
            yield Ancestor(snapshot.snapshot_id, snapshot.sequence_number or 0)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)

    def added(self) -> dict[int, int]:
        """Return the batch that each snapshot of this stream has added, of those that are not expired, wherever they are."""
        told = ((it.snapshot_id, it.summary) for it in self._seen.metadata.snapshots)
        found = ((id_, batch_in({} if it is None else it.additional_properties, self.stream)) for id_, it in told)
        return {id_: batch for id_, batch in found if batch is not None}

    def ids(self) -> dict[str, int]:
        """Return the id of each column of the table as `view` saw it last."""
        return {column.name: column.field_id for column in self._seen.metadata.schema().fields}

    def create(self, columns: Mapping[str, Type], partition_by: Sequence[str]) -> None:
        """Create the table, registered, and its namespace; where one appears meanwhile, it stays as it is.

        Metadata without a table is what a driver has left that died here.
        """
        names = sorted(it.name for it in self.folder.entries("") if it.name != "metadata" and it.name[:1] != ".")
        if names:
            raise TableOfAnother(
                f"The folder {self.location} holds {', '.join(names[:3])}{', …' if len(names) > 3 else ''}, and there is no "
                f"table {self.identifier} in the catalog. Use an empty folder, or name the table that is there."
            )
        schema = schema_of(columns)
        parts = [
            PartitionField(schema.find_field(name).field_id, PARTITION_FIELD_ID_START + at, IdentityTransform(), name)
            for at, name in enumerate(partition_by)
        ]
        with self._named("created"):
            catalog = self._opened()
            catalog.create_namespace_if_not_exists(Catalog.namespace_from(self.identifier))
            try:
                catalog.create_table(
                    self.identifier,
                    schema,
                    self.uri,
                    PartitionSpec(*parts),
                    properties={"format-version": str(WRITTEN_VERSION), **self._property(Marker(REGISTERED))},
                )
            except TableAlreadyExistsError:
                return

    def facts(self, files: Sequence[DataFile]) -> Mapping[str, FileFacts]:
        """Return the footer of each file by its path; those that are gone or have another size are left out."""

        def footer(file: DataFile) -> Footer | None:
            entry = self._seen.io.new_input(self._address(file))
            if len(entry) != file.size_bytes:
                return None
            with entry.open() as opened:
                return Footer({}, "", pyarrow.parquet.read_metadata(cast("pyarrow.NativeFile", opened)))

        with self._named("read"):
            return facts_at_once(files, footer)

    def commit(self, manifest: TableManifest | None, facts: Mapping[str, FileFacts]) -> bool:
        """Add the files of a batch in one snapshot with its number, behind the snapshot that `view` saw; or register."""
        with self._named("written"):
            return self._register() if manifest is None else self._append(manifest, facts)

    def _append(self, manifest: TableManifest, facts: Mapping[str, FileFacts]) -> bool:
        table = self._seen
        transaction = table.transaction()
        summary = summary_of(self.stream, self.author, manifest)
        update = transaction.update_snapshot(snapshot_properties=summary)
        append = update.merge_append() if can_merge(table.metadata) else update.fast_append()
        for each in manifest.manifest.files:
            footer = facts[each.path]
            assert isinstance(footer, Footer), "facts are those of this log"
            append.append_data_file(data_file(table.metadata, self._address(each), each, footer.metadata))
        marker = Marker(manifest.number, append.snapshot_id, table.metadata.next_sequence_number())
        append.commit()
        transaction.set_properties(self._property(marker, manifest.life))
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            return False
        return True

    def _register(self) -> bool:
        """Set the number of a life without a batch: behind what was seen alone, or a late one would set it back to none."""
        table = self._seen
        current = table.metadata.current_snapshot()
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId(ref=_MAIN, snapshot_id=None if current is None else current.snapshot_id),
        )
        updates = (SetPropertiesUpdate(updates=self._property(Marker(REGISTERED))),)
        try:
            self._opened().commit_table(table, requirements, updates)
        except CommitFailedException:
            return False
        return True

    def add_columns(self, columns: Mapping[str, Type]) -> bool:
        """Add columns to the table as `view` saw it."""
        with self._named("written"):
            try:
                with self._seen.update_schema() as update:
                    for name, type_ in new_fields(columns):
                        update.add_column(name, type_)
            except CommitFailedException:
                return False
        return True

    @property
    def _seen(self) -> Table:
        assert self._table is not None, "view comes first"
        return self._table

    def _opened(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self.open_catalog()
        return self._catalog

    def _address(self, file: DataFile) -> str:
        return f"{self._seen.metadata.location.rstrip('/')}/{DATA}/{file.path}"

    def _property(self, marker: Marker, life: str | None = None) -> dict[str, str]:
        return {property_of(self.stream, life or self.author.life): marker.to_json()}

    @contextmanager
    def _named(self, done: str) -> Iterator[None]:
        """Raise what the library, catalog or storage says as TableUnreachable: what was asked for may have happened."""
        try:
            yield
        except (
            SQLAlchemyError,
            RESTError,
            OSError,
            ValueError,
            ValidationException,
            pyarrow.ArrowException,
        ) as problem:
            said = " ".join(str(getattr(problem, "orig", None) or problem).split()).rstrip(".")[:300]
            raise TableUnreachable(
                f"The table {self.identifier} at {self.location} cannot be {done} ({said}); nothing was lost by this. Check "
                "the catalog, the storage, and the logins to both."
            ) from problem
