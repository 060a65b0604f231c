"""Iceberg tables inside Spark: Spark's own tasks write the files, and pyiceberg commits what the ledger has landed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.connectors.files.manifest import Author
from exactlyonce.connectors.iceberg.spec import IcebergSink
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce_spark.connectors.delta.library_storage import library_uri
from exactlyonce_spark.connectors.delta.prepared import PreparedTable, TableOfStream
from exactlyonce_spark.connectors.delta.replaying import PreparedTableOfReplay, prepare_table_replay
from exactlyonce_spark.connectors.delta.table import Wanted
from exactlyonce_spark.connectors.iceberg.catalog import catalog_opener
from exactlyonce_spark.connectors.iceberg.fit import require_holdable
from exactlyonce_spark.connectors.iceberg.marker import ICEBERG
from exactlyonce_spark.connectors.iceberg.table_log import IcebergLog
from exactlyonce_spark.connectors.iceberg.target import IcebergTarget

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass
class IcebergTableOfStream(TableOfStream):
    """The table of a `sink.iceberg`."""

    sink: IcebergSink
    open_catalog: Callable[[], Catalog]

    def require_holdable(self) -> None:
        """Require that an Iceberg table can have these columns."""
        require_holdable(self.columns, self.sink.partition_by)

    def opened(self) -> IcebergTarget:
        """Return the table."""
        from exactlyonce_spark.connectors.files.writer import SparkFileWriter
        from exactlyonce_spark.connectors.iceberg.writer import SETTINGS, SparkIcebergWriter

        sink = self.sink
        location = sink.location.rstrip("/")
        uri = library_uri(location)
        log = IcebergLog(sink.table, location, uri, self.open_catalog, self.folder, self.stream_id, self.author)
        writer = SparkIcebergWriter(SparkFileWriter(sink.as_files, in_place=True, session_settings=SETTINGS))
        evolution = sink.schema_evolution
        wanted = Wanted(location, self.columns, sink.partition_by, evolution, sink.accepted_rollback, ICEBERG)
        return IcebergTarget(log, writer, self.author, wanted)


class IcebergConnector:
    """Iceberg tables."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedTable:
        """Return the table; nothing is written before the columns are known."""
        table = _table(spec, secrets, permit.stream_id, Author.of(stream))
        return PreparedTable(table, ledger, permit)

    def prepare_replay(
        self, spec: StreamSpec, ledger: Ledger, stream_id: str, secrets: Secrets
    ) -> PreparedTableOfReplay:
        """Return the table; nothing is written before the columns are known."""
        return prepare_table_replay(ledger, stream_id, lambda author: _table(spec, secrets, stream_id, author))


def _table(spec: StreamSpec, secrets: Secrets, stream_id: str, author: Author) -> IcebergTableOfStream:
    sink = spec.sink.spec
    assert isinstance(sink, IcebergSink), "the registry gives each connector its own spec"
    secret = secrets(sink.secret_ref)
    opener = catalog_opener(sink, secrets(sink.catalog.sql.secret_ref), secret)
    folder = open_folder(sink.place_on_s3 or sink.location, secret)
    return IcebergTableOfStream(folder, stream_id, author, sink, opener)


SINK = IcebergConnector()
