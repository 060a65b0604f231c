"""Delta tables inside Spark: Spark's own tasks write the files, and the table's library commits what the ledger has landed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.checkpoint.folders import open_folder
from exactlyonce.connectors.delta.spec import DeltaSink
from exactlyonce.connectors.files.manifest import Author
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce_spark.connectors.delta.fit import require_holdable
from exactlyonce_spark.connectors.delta.library_storage import library_uri, require_no_certificate
from exactlyonce_spark.connectors.delta.prepared import PreparedTable, TableOfStream
from exactlyonce_spark.connectors.delta.replaying import PreparedTableOfReplay, prepare_table_replay
from exactlyonce_spark.connectors.delta.table import Wanted
from exactlyonce_spark.connectors.delta.target import DeltaTarget

if TYPE_CHECKING:
    from exactlyonce_spark.connectors.delta.table_log import DeltaLog

MICROSECONDS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Spark's default, INT96, has no statistics, and readers other than Spark take it for nanoseconds."""


_PATIENCE = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "4", "retry_timeout": "60s"}
"""How long one request to S3 may take: the library's own limit is three minutes, in which a driver shows no progress."""


@dataclass
class DeltaTableOfStream(TableOfStream):
    """The table of a `sink.delta`."""

    sink: DeltaSink
    options: Mapping[str, str]

    def require_holdable(self) -> None:
        """Require that a Delta table can have these columns."""
        require_holdable(self.columns, self.sink.partition_by)

    def opened(self) -> DeltaTarget:
        """Return the table."""
        from exactlyonce_spark.connectors.files.writer import SparkFileWriter

        sink = self.sink
        writer = SparkFileWriter(sink.as_files, in_place=True, session_settings=MICROSECONDS)
        wanted = Wanted(sink.location, self.columns, sink.partition_by, sink.schema_evolution, sink.accepted_restore)
        return DeltaTarget(self._log(), writer, self.author, wanted)

    def _log(self) -> DeltaLog:
        from exactlyonce_spark.connectors.delta.table_log import DeltaLog

        location = self.sink.location
        return DeltaLog(location, library_uri(location), self.options, self.folder, self.stream_id, self.author)


class DeltaConnector:
    """Delta tables."""

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


def _table(spec: StreamSpec, secrets: Secrets, stream_id: str, author: Author) -> DeltaTableOfStream:
    sink = spec.sink.spec
    assert isinstance(sink, DeltaSink), "the registry gives each connector its own spec"
    secret = secrets(sink.secret_ref)
    folder = open_folder(sink.place_on_s3 or sink.location, secret)
    return DeltaTableOfStream(folder, stream_id, author, sink, storage_options(sink, secret))


def storage_options(sink: DeltaSink, secret: Mapping[str, str]) -> dict[str, str]:
    """Return what the table's library is told of an S3 service, with the login; nothing for a path. Performs no I/O.

    Raises:
        SecretRefused: if the secret has a certificate, which the library cannot be given.
    """
    place = sink.place_on_s3
    if place is None:
        return {}
    require_no_certificate(secret, "sink.delta.secretRef", "Delta")
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    options = {key: secret[key].strip() for key in keys if secret.get(key, "").strip()}
    options |= _PATIENCE
    options["aws_conditional_put"] = "etag"  # a version of the log is created only where there is none
    options["aws_virtual_hosted_style_request"] = str(not place.path_style).lower()
    if place.endpoint is not None:
        options["aws_endpoint"] = place.endpoint
        options["aws_allow_http"] = str(place.endpoint.startswith("http://")).lower()
    if place.region is not None or place.endpoint is not None:
        options["aws_region"] = place.region or "us-east-1"
    return options


SINK = DeltaConnector()
