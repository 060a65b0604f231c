"""What a stream says of its files: their format and place, how they are cut, what readers use."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from exactlyonce.connectors.files.stream_rules import STREAM_RULES
from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import Flag, Model, SecretRef

SECRET_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "ca.crt")
"""The keys read from the secret of a path on S3: a login, and the CA of its endpoint as PEM."""

S3_PREFIX = "s3a://"

_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_FOLDER = r"[A-Za-z0-9!_.*()=@+,-]+"
_LOCAL = r"(file://)?(/[A-Za-z0-9!_.*()=@+, -]+)+"
_ON_S3 = f"self.path.startsWith('{S3_PREFIX}')"
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

FilesPath = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    matches(f"s3a://{_BUCKET}(/{_FOLDER})+|{_LOCAL}", "write s3a://bucket/folder, an absolute path, or file:///path"),
    Rule(
        "!self.matches('(^|/)[.][.]?(/|$)')",
        lambda path: not {".", ".."} & set(path.split("/")),
        "write the path without . and .. as parts of it",
    ),
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
Endpoint = Annotated[
    str,
    Field(max_length=1024),
    matches(r"https?://[A-Za-z0-9.:\[\]-]+/?", "write it as https://host:port"),
]
Region = Annotated[str, Field(max_length=64), matches("[a-z0-9-]+", "write a region's name, such as eu-central-1")]


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


class FilesSink(Model):
    """Files of rows; the ledger decides which of them count."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    fixed_fields: ClassVar[tuple[str, ...]] = ("path", "format", "partitionBy", "manifest")
    holds_ledger: ClassVar[bool] = False

    format: FileFormat = Field(FileFormat.PARQUET, description="How rows are written.")
    path: FilesPath = Field(
        description="A folder of this stream alone: s3a://bucket/folder, an absolute path, or file:///path. A file in it "
        "counts once the ledger names it."
    )
    endpoint: Endpoint | None = Field(None, description="The address of an S3 service other than Amazon's.")
    region: Region | None = Field(None, description="The region of the bucket.")
    path_style: Flag = Field(False, description="Whether the bucket stands in the path and not in the host's name.")
    secret_ref: SecretRef | None = Field(
        None, description=f"The login to S3; the keys read are {', '.join(SECRET_KEYS)}."
    )
    partition_by: Annotated[tuple[ColumnName, ...], Field(max_length=16), Unique()] = Field(
        (), description="Columns whose values are names of folders and not stored in the files."
    )
    target_file_size: FileSize = Field(
        "128Mi",
        description="About how large a file becomes. A batch is never shuffled for it: a small batch makes smaller files.",
    )
    include_positions: Flag = Field(
        False,
        description="Whether each row carries its source position in _exactlyonce_origin, _exactlyonce_partition and "
        "_exactlyonce_offset. The query has to yield _topic, _partition and _offset.",
    )
    manifest: ManifestKind = Field(
        ManifestKind.SPARK_METADATA,
        description="SparkMetadata: spark.read of the path sees exactly the rows that have landed. None: readers take the list "
        "of files from exactlyonce files.",
    )

    rules = (
        Rule(
            f"{_ON_S3} || (!has(self.secretRef) && !has(self.endpoint) && !has(self.region) && !self.pathStyle)",
            lambda it: it.is_on_s3 or not (it.secret_ref or it.endpoint or it.region or it.path_style),
            "secretRef, endpoint, region and pathStyle belong to a path on s3a://",
        ),
        Rule(
            "!has(self.partitionBy) || !self.partitionBy.exists(column, column.startsWith('_exactlyonce_'))",
            lambda it: not any(column.startswith("_exactlyonce_") for column in it.partition_by),
            "partitionBy may not name a column of the source position",
        ),
    )

    @property
    def is_on_s3(self) -> bool:
        """Whether the files are objects in a bucket."""
        return self.path.startswith(S3_PREFIX)

    @property
    def commit(self) -> Commit:
        """A batch lands as a whole."""
        return Commit.BATCH

    @property
    def target_file_bytes(self) -> int:
        """About how many bytes a file becomes."""
        found = re.fullmatch("([0-9]+)(Ki|Mi|Gi)", self.target_file_size)
        assert found is not None, "the field's rule asks for it"
        return int(found[1]) * _UNITS[found[2]]
