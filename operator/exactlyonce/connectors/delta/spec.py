"""What a stream says of its Delta table: where it is, how its files are cut, what becomes of columns that it lacks."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from exactlyonce.connectors.files.spec import ColumnName, FileFormat, FileSize, FilesPath, FilesSink, ManifestKind
from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.manifest_sink import ManifestSink
from exactlyonce.connectors.s3_sink_rules import s3_sink_rules
from exactlyonce.schema.constraints import Rule, Unique
from exactlyonce.schema.model import SecretRef
from exactlyonce.schema.places import (
    Described,
    PathStyle,
    S3Endpoint,
    S3Place,
    S3Region,
    only_on_s3,
    place_on_s3,
    plain_path,
)


class SchemaEvolution(StrEnum):
    """What becomes of a column that the query yields and the table lacks."""

    REFUSE = "Refuse"
    ADD_COLUMNS = "AddColumns"


class DescribesTable(Described, Protocol):
    """What a sink says of the data files of its table."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by whose values files are put into folders."""
        ...

    @property
    def target_file_size(self) -> str:
        """The approximate size of each file."""
        ...


def data_files(table: DescribesTable, path: str) -> FilesSink:
    """Return the data files of a table below `path`, as their writer has them."""
    return FilesSink(
        format=FileFormat.PARQUET,
        path=path,
        endpoint=table.endpoint,
        region=table.region,
        path_style=table.path_style,
        secret_ref=table.secret_ref,
        partition_by=table.partition_by,
        target_file_size=table.target_file_size,
        manifest=ManifestKind.NONE,
    )


class DeltaSink(ManifestSink):
    """Rows in a Delta table; the ledger decides which batches count, and the table's log takes each of them once."""

    stream_rules: ClassVar[tuple[Rule, ...]] = (*manifest_rules("delta"), *s3_sink_rules("delta", "location"))
    folder_field: ClassVar[str | None] = "location"
    fixed_fields: ClassVar[tuple[str, ...]] = ("location", "endpoint", "region", "pathStyle", "partitionBy")

    location: FilesPath = Field(
        description="The table's folder: s3a://bucket/folder, an absolute path, or file:///path. A table that is not there is "
        "created. Others may write to it as well. In a cluster a path is on a volume that driver and executors mount there."
    )
    endpoint: S3Endpoint = None
    region: S3Region = None
    path_style: PathStyle = False
    secret_ref: SecretRef | None = Field(
        None,
        description="The login to S3; the keys read are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. "
        "Without it, driver and executors use what their service account and their node are given, such as a web identity. "
        "The operator never opens the table.",
    )
    partition_by: Annotated[tuple[ColumnName, ...], Field(max_length=16), Unique()] = Field(
        (), description="The table's partition columns, in their order."
    )
    target_file_size: FileSize = Field(
        "128Mi",
        description="The approximate size of each file. A batch is never shuffled for it: a small batch makes smaller files.",
    )
    schema_evolution: SchemaEvolution = Field(
        SchemaEvolution.REFUSE,
        description="What becomes of a column that the query yields and the table lacks. Refuse: the stream halts. "
        "AddColumns: it is added to the table, where older rows have NULL. A column's type is never changed.",
    )
    accepted_restore: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        None,
        description="The version of the table's log at which somebody has restored the table to a state before rows of this "
        "stream, and from which the stream may continue, without these rows. Without it, the stream halts there.",
    )

    rules = (only_on_s3("location"),)

    @property
    def place_on_s3(self) -> S3Place | None:
        """The folder, where it is in a bucket."""
        return place_on_s3(self.location, self)

    @property
    def replay_refusal(self) -> None:
        """Nothing forbids it: a table has no order of rows, and those in it are never changed."""
        return

    @property
    def replays_shown(self) -> str:
        """The next batch commits it."""
        return "Readers of the table see these rows with the next batch that lands."

    @property
    def landing_place(self) -> str:
        """The folder."""
        return f"Delta table {plain_path(self.location).rstrip('/')}"

    @property
    def as_files(self) -> FilesSink:
        """The table's data files, as their writer has them."""
        return data_files(self, self.location)


SINK = DeltaSink
