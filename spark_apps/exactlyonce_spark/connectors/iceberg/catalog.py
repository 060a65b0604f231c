"""The catalog of a table, in a Postgres database: pyiceberg's own, over sessions that depend on the secret alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Properties

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.iceberg.spec import IcebergSink
from exactlyonce.connectors.postgres.connecting import open_within
from exactlyonce.connectors.postgres.parameters import parameters_of
from exactlyonce_spark.connectors.delta.library_storage import require_no_certificate
from exactlyonce_spark.connectors.delta.table import TableUnfit
from exactlyonce_spark.connectors.iceberg.fit import is_within, unwritable

_CONNECT_SECONDS = 30.0
_LIMITS = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "exactlyonce catalog",
    "target_session_attrs": "read-write",
}
_EACH_TRANSACTION = (
    "set local transaction_read_only = off; set local statement_timeout = '30s'; "
    "select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off'"
)
"""A standby, which answers with what was true a moment ago, refuses the first. A driver that waits for the catalog shows no
progress, and each statement concerns a row or two. What was committed lasts, whatever the role has as its default. A pooler
takes no options of a session and gives the session to others, so it is said in each transaction.
"""


def _begin(connection: sqlalchemy.Connection) -> None:
    connection.exec_driver_sql(_EACH_TRANSACTION)


class FilesWithin(FileIO):
    """Opens, writes and deletes files in one folder alone, whatever path it is told.

    An append reads the manifests that the table's metadata name, and whoever may write to the table decides what they name:
    another bucket, a file of the pod, a server of any scheme, asked with the stream's login.
    """

    def __init__(self, files: FileIO, folder: str) -> None:
        super().__init__(files.properties)
        self.files = files
        self.folder = folder

    def new_input(self, location: str) -> InputFile:
        """Return a file to read.

        Raises:
            TableUnfit: if it is not in the folder; so do the other methods.
        """
        return self.files.new_input(self._within(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        return self.files.new_output(self._within(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        self._within(location if isinstance(location, str) else location.location)
        self.files.delete(location)

    def _within(self, path: str) -> str:
        if not is_within(path, self.folder):
            raise TableUnfit(
                f"The metadata of the table name the file {one_line(path, 300)}, and sink.iceberg.location says {self.folder}. "
                "It is not opened. Rewrite the table's manifests into its own folder."
            )
        return path


class CatalogInDatabase(SqlCatalog):
    """pyiceberg's catalog, which commits to what was seen alone, and lets a table's metadata decide nothing of where or how.

    The library commits to whatever is there by then, as far as its requirements hold: a table that somebody has rolled back and
    forward, or has told to load a class, looks the same to them. It opens files by a table's properties, which name servers and
    classes, and deletes the files that a table's metadata name as its former ones: whoever may write to the table would have
    requests signed with the stream's login, and files removed by it.

    Each look asks the database which file of metadata is the table's. A file that was read, or written by a commit of this
    process, is not read again: none is ever changed, and they grow with the snapshots that are kept.
    """

    def __init__(self, name: str, engine: sqlalchemy.Engine, files: Mapping[str, str], location: str) -> None:
        MetastoreCatalog.__init__(self, name, **dict(files))
        self.engine = engine
        self.location = location
        self._known: tuple[str, TableMetadata] | None = None
        """The latest file of metadata, and what it says."""
        self._init_catalog()

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit to the table as it was seen, and to no other state of it.

        Raises:
            CommitFailedException: if anybody has committed since then, or the table may not be written. Nothing was done.
        """
        current = self.load_table(table.name())
        why = unwritable(current.metadata, self.location)
        if current.metadata_location != table.metadata_location or why is not None:
            raise CommitFailedException(why or "somebody has committed since the table was seen")
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        *namespace, name = table.name()
        seen = (
            sqlalchemy.update(IcebergTables)
            .where(IcebergTables.catalog_name == self.name, IcebergTables.table_name == name)
            .where(IcebergTables.table_namespace == Catalog.namespace_to_string(tuple(namespace)))
            .where(IcebergTables.metadata_location == table.metadata_location)
        )
        replaced = seen.values(
            metadata_location=staged.metadata_location, previous_metadata_location=table.metadata_location
        )
        with self.engine.begin() as connection:
            if connection.execute(replaced).rowcount != 1:
                raise CommitFailedException("somebody has committed meanwhile")
        self._known = staged.metadata_location, staged.metadata
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        where = orm_table.metadata_location or ""
        if not is_within(where, self.location):
            raise TableUnfit(
                f"The catalog says that the metadata of the table {orm_table.table_namespace}.{orm_table.table_name} are at "
                f"{where}, and sink.iceberg.location says {self.location}. They are not opened; name the table's own folder."
            )
        if self._known is None or self._known[0] != where:
            read = super()._convert_orm_to_iceberg(orm_table)
            self._known = where, read.metadata
        # Who looks may change properties for itself, which are not to be in the metadata that a commit is made from.
        metadata = self._known[1].model_copy(update={"properties": dict(self._known[1].properties)})
        name = Catalog.identifier_to_tuple(f"{orm_table.table_namespace}.{orm_table.table_name}")
        return Table(name, metadata, where, self._load_file_io(metadata.properties, where), self)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        files = {key: value for key, value in self.properties.items() if key.startswith("s3.")}
        return FilesWithin(load_file_io(files, location), self.location)

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete nothing: the table's metadata say which files those would be."""


def catalog_opener(
    sink: IcebergSink, login: Mapping[str, str], storage: Mapping[str, str]
) -> Callable[[], CatalogInDatabase]:
    """Return what opens the catalog of a sink; the secrets are read at once.

    Raises:
        SecretMissing, SecretRefused: if a secret lacks a key, or has one that no stream may set.
    """
    sql = sink.catalog.sql
    parameters = parameters_of(sql.secret_ref.name, login)
    files = file_options(sink, storage)

    def connect() -> Any:
        return open_within(_CONNECT_SECONDS, {**parameters, **_LIMITS})

    def opened() -> CatalogInDatabase:
        engine = sqlalchemy.create_engine("postgresql+psycopg2://", creator=connect, pool_pre_ping=True, pool_size=1)
        sqlalchemy.event.listen(engine, "begin", _begin)
        return CatalogInDatabase(sql.name, engine, files, sink.location)

    return opened


def file_options(sink: IcebergSink, secret: Mapping[str, str]) -> dict[str, str]:
    """Return what pyiceberg is told of an S3 service, with the login; nothing for a path. Performs no I/O.

    Raises:
        SecretRefused: if the secret has a certificate, which the library cannot be given.
    """
    place = sink.place_on_s3
    if place is None:
        return {}
    require_no_certificate(secret, "sink.iceberg.secretRef", "Iceberg")
    keys = {
        "AWS_ACCESS_KEY_ID": "s3.access-key-id",
        "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
        "AWS_SESSION_TOKEN": "s3.session-token",
    }
    options = {option: secret[key].strip() for key, option in keys.items() if secret.get(key, "").strip()}
    options |= {"s3.connect-timeout": "5", "s3.request-timeout": "30"}
    options["s3.force-virtual-addressing"] = str(not place.path_style).lower()
    if place.endpoint is not None:
        options["s3.endpoint"] = place.endpoint
    if place.region is not None or place.endpoint is not None:
        options["s3.region"] = place.region or "us-east-1"
    return options
