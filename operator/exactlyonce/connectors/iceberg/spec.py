"""What a stream says of its Iceberg table: its catalog and name, where it is, what becomes of columns that it lacks."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from exactlyonce.connectors.delta.spec import SchemaEvolution, data_files
from exactlyonce.connectors.files.spec import ColumnName, FileSize, FilesPath, FilesSink
from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.manifest_sink import ManifestSink
from exactlyonce.connectors.s3_sink_rules import s3_sink_rules
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import Model, SecretRef
from exactlyonce.schema.places import PathStyle, S3Endpoint, S3Place, S3Region, only_on_s3, place_on_s3, plain_path

DATA = "data"
"""The folder below the table's in which Iceberg's writers put data files."""

TableIdentifier = Annotated[
    str,
    Field(max_length=255),
    matches(
        r"[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)+", "write namespace.table: letters, digits, underscores and hyphens in each"
    ),
]
CatalogName = Annotated[
    str,
    Field(max_length=255),
    matches("[A-Za-z0-9_.-]+", "write a name: letters, digits, underscores, dots and hyphens"),
]


class CatalogInSql(Model):
    """A catalog in a Postgres database, in the tables that Iceberg's JdbcCatalog and pyiceberg's SqlCatalog share."""

    secret_ref: SecretRef = Field(
        description="The login to the database; the keys read are those of a Postgres sink: uri, or host, port, dbname, user "
        "and password, with sslmode, sslrootcert and ca.crt. The tables iceberg_tables and iceberg_namespace_properties are "
        "created in the role's schema if they are not there."
    )
    name: CatalogName = Field(
        "default", description="The catalog's name: several catalogs may share the tables, and each sees its own rows."
    )


class Catalog(Model):
    """Where the table's current metadata is named."""

    sql: CatalogInSql = Field(description="A catalog in a Postgres database.")


class IcebergSink(ManifestSink):
    """Rows in an Iceberg table; the ledger decides which batches count, and the table's catalog takes each of them once."""

    stream_rules: ClassVar[tuple[Rule, ...]] = (*manifest_rules("iceberg"), *s3_sink_rules("iceberg", "location"))
    folder_field: ClassVar[str | None] = "location"
    fixed_fields: ClassVar[tuple[str, ...]] = ("table", "location", "endpoint", "region", "pathStyle", "partitionBy")

    catalog: Catalog
    table: TableIdentifier = Field(
        description="The table's name in the catalog: namespace.table. A table that is not there is created, and so is its "
        "namespace. Others may write to it as well."
    )
    location: FilesPath = Field(
        description="The table's folder: s3a://bucket/folder, an absolute path, or file:///path; of a table that is there "
        "already, the one that it has. In a cluster a path is on a volume that driver and executors mount there."
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
        (),
        description="The columns by whose values the table is partitioned (identity transforms), in their order. Days, hours, "
        "buckets and the like are columns that the transform computes.",
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
    accepted_rollback: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        None,
        description="The batch up to which rows of this stream may be missing because somebody has rolled the table back to a "
        "snapshot before it, and behind which the stream may continue. Without it, the stream halts there.",
    )

    rules = (only_on_s3("location"),)

    @property
    def further_secrets(self) -> tuple[SecretRef, ...]:
        """The login to the catalog."""
        return (self.catalog.sql.secret_ref,)

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
        """The table by its name in the catalog and its folder."""
        return f"Iceberg table {self.table} in {plain_path(self.location).rstrip('/')}"

    @property
    def as_files(self) -> FilesSink:
        """The table's data files, as their writer has them."""
        return data_files(self, f"{self.location.rstrip('/')}/{DATA}")


SINK = IcebergSink
