"""What a stream says of its files: their format and place, how they are cut, what readers use."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.connectors.files.stream_rules import STREAM_RULES
from exactlyonce.connectors.manifest_sink import ManifestSink
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import Flag, SecretRef
from exactlyonce.schema.places import (
    NO_DOTS,
    S3_LOCATION,
    S3_SECRET_KEYS,
    PathStyle,
    S3Endpoint,
    S3Place,
    S3Region,
    is_on_s3,
    only_on_s3,
    place_on_s3,
    plain_path,
)

_LOCAL = r"(file://)?(/[A-Za-z0-9!_.*()=@+, -]+)+"
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

FilesPath = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    matches(
        f"{S3_LOCATION}|{_LOCAL}",
        "write s3a://bucket/folder, an absolute path, or file:///path; letters, digits and !_.*()=@+,- are allowed, "
        "and spaces outside of S3",
    ),
    NO_DOTS,
]
ColumnName = Annotated[
    str,
    Field(min_length=1, max_length=255),
    matches(r"[A-Za-z0-9_ -]+", "write a column's name of letters, digits, spaces, underscores and hyphens"),
]
FileSize = Annotated[
    str,
    Field(max_length=12),
    matches("[1-9][0-9]{0,6}(Ki|Mi|Gi)", "write a size such as 64Mi or 1Gi"),
]


class FileFormat(StrEnum):
    """How rows are written."""

    PARQUET = "Parquet"
    JSON = "Json"
    CSV = "Csv"
    ORC = "Orc"

    @property
    def spark_name(self) -> str:
        """What Spark calls it."""
        return self.value.lower()


class ManifestKind(StrEnum):
    """What readers find the files of landed batches by, beside the ledger."""

    SPARK_METADATA = "SparkMetadata"
    NONE = "None"


class FilesSink(ManifestSink):
    """Rows in files; the ledger decides which files count."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    folder_field: ClassVar[str | None] = "path"
    fixed_fields: ClassVar[tuple[str, ...]] = (
        "path",
        "endpoint",
        "region",
        "pathStyle",
        "format",
        "partitionBy",
        "manifest",
        "continueAfterBatch",
    )

    format: FileFormat = Field(FileFormat.PARQUET, description="How rows are written.")
    path: FilesPath = Field(
        description="A folder of this stream alone: s3a://bucket/folder, an absolute path, or file:///path. In a cluster a "
        "path is on a volume that driver and executors mount there. A file in it counts once the ledger names it."
    )
    endpoint: S3Endpoint = None
    region: S3Region = None
    path_style: PathStyle = False
    secret_ref: SecretRef | None = Field(
        None,
        description=f"The login to S3; the keys read are {', '.join(S3_SECRET_KEYS)}. Without it, driver and executors use "
        "what their service account and their node are given, such as a web identity. The operator never opens the folder.",
    )
    partition_by: Annotated[tuple[ColumnName, ...], Field(max_length=16), Unique()] = Field(
        (), description="Columns whose values become folder names and are not stored in the files."
    )
    target_file_size: FileSize = Field(
        "128Mi",
        description="The approximate size of each file. A batch is never shuffled for it: a small batch makes smaller files.",
    )
    include_positions: Flag = Field(
        False,
        description="Whether each row carries its source position in _exactlyonce_origin, _exactlyonce_partition and "
        "_exactlyonce_offset. The query has to yield the source's position columns, such as _topic, _partition and _offset.",
    )
    manifest: ManifestKind = Field(
        ManifestKind.SPARK_METADATA,
        description="SparkMetadata: spark.read of the path sees exactly the rows that have landed. None: nothing is written "
        "for readers, and the ledger alone names the files of each batch.",
    )
    continue_after_batch: Annotated[int, Field(ge=0, le=2**31 - 2)] | None = Field(
        None,
        description="The latest batch in the _spark_metadata of a folder that a query of Spark's own file sink has written, as "
        "`exactlyonce inspect` shows it: the stream continues in this folder with higher numbers, and readers with Spark see "
        "the rows of both. Without it, a new stream needs an empty folder. The query must never be started again.",
    )

    rules = (
        Rule(
            "!has(self.partitionBy) || !self.partitionBy.exists(column, column.startsWith('_exactlyonce_'))",
            lambda it: not any(column.startswith("_exactlyonce_") for column in it.partition_by),
            "partitionBy may not name a column of the source position",
        ),
        only_on_s3("path"),
        Rule(
            "!has(self.continueAfterBatch) || ((!has(self.manifest) || self.manifest == 'SparkMetadata') "
            "&& (!has(self.includePositions) || !self.includePositions))",
            lambda it: (
                it.continue_after_batch is None
                or (it.manifest is ManifestKind.SPARK_METADATA and not it.include_positions)
            ),
            "continueAfterBatch needs manifest: SparkMetadata, by which the former rows are found, and no includePositions, "
            "which these rows do not have",
        ),
    )

    @property
    def is_on_s3(self) -> bool:
        """Whether the files are in a bucket."""
        return is_on_s3(self.path)

    @property
    def place_on_s3(self) -> S3Place | None:
        """The folder, where it is in a bucket."""
        return place_on_s3(self.path, self)

    @property
    def folder(self) -> str:
        """The path as the file system, or S3, names it."""
        return plain_path(self.path).rstrip("/")

    @property
    def replay_refusal(self) -> None:
        """Nothing forbids it: files have no order, and the rows in them are never changed."""
        return

    @property
    def replays_shown(self) -> str | None:
        """Spark's log has entries of batches alone."""
        if self.manifest != ManifestKind.SPARK_METADATA:
            return None
        return (
            "`exactlyonce files` lists these rows; readers of _spark_metadata see them with the next batch that lands."
        )

    @property
    def landing_place(self) -> str:
        """The folder."""
        return f"files {self.folder}"

    @property
    def target_file_bytes(self) -> int:
        """About how many bytes a file becomes."""
        found = re.fullmatch("([0-9]+)(Ki|Mi|Gi)", self.target_file_size)
        assert found is not None, "the field's rule asks for it"
        return int(found[1]) * _UNITS[found[2]]


SOURCE = FilesSource
SINK = FilesSink
