"""What a stream says of where it starts in a folder."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Model
from exactlyonce.schema.moment import Moment, first_milliseconds
from exactlyonce.schema.places import NO_DOTS, S3_LOCATION

SourcePath = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    matches(
        f"{S3_LOCATION}|(file://)?(/[A-Za-z0-9!_.*()=@+, -]+)+",
        "write s3a://bucket/folder, an absolute path, or file:///path, without a slash at its end; letters, digits and "
        "!_.*()=@+,- are allowed, and spaces outside of S3",
    ),
    NO_DOTS,
]


class StartFrom(StrEnum):
    """Where a new stream starts."""

    OLDEST = "Oldest"
    TIMESTAMP = "Timestamp"
    SPARK_CHECKPOINT = "SparkCheckpoint"


class FolderStart(Model):
    """Where a new stream starts; resolved once, before its first batch."""

    from_: StartFrom = Field(
        StartFrom.OLDEST,
        alias="from",
        description="Which files a new stream leaves out for good: none (Oldest); those that were last written to before a "
        "moment (Timestamp); or those that a query of Spark's own file source has read, by its checkpoint (SparkCheckpoint). "
        "That query has to have ended, with its last batch committed. Which files these are is settled when the first files "
        "are planned; those that come after that are read, whatever their times.",
    )
    timestamp: Moment | None = Field(
        None, description="With from: Timestamp, files are read that were last written to at or after it (RFC 3339)."
    )
    checkpoint: SourcePath | None = Field(
        None,
        description="With from: SparkCheckpoint, the query's checkpointLocation, which is only read: s3a://bucket/folder with "
        "the login of a path on S3, an absolute path, or file:///path.",
    )

    rules = (
        Rule(
            "(self.from == 'Timestamp') == has(self.timestamp)",
            lambda it: (it.from_ is StartFrom.TIMESTAMP) == (it.timestamp is not None),
            "timestamp belongs to from: Timestamp, and from: Timestamp needs it",
        ),
        Rule(
            "(self.from == 'SparkCheckpoint') == has(self.checkpoint)",
            lambda it: (it.from_ is StartFrom.SPARK_CHECKPOINT) == (it.checkpoint is not None),
            "checkpoint belongs to from: SparkCheckpoint, and from: SparkCheckpoint needs it",
        ),
    )

    @property
    def milliseconds(self) -> int | None:
        """The timestamp, in milliseconds since 1970; a fraction of one counts as the next."""
        return None if self.timestamp is None else first_milliseconds(self.timestamp)
