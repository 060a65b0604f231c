"""What a stream says of an object log: the folder that it is in."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from exactlyonce.schema.model import Model, SecretRef
from exactlyonce.schema.places import (
    S3_SECRET_KEYS,
    Location,
    PathStyle,
    S3Endpoint,
    S3Place,
    S3Region,
    is_on_s3,
    only_on_s3,
    place_on_s3,
)


class ObjectLogLedger(Model):
    """A ledger of objects in a folder, on S3 or on a disk; it needs no database."""

    fixed_fields: ClassVar[tuple[str, ...]] = ("location", "endpoint", "region", "pathStyle")
    folder_field: ClassVar[str | None] = "location"

    location: Location = Field(
        description="A folder of this stream alone: s3a://bucket/folder; for exactlyonce run also an absolute path, or "
        "file:///path."
    )
    endpoint: S3Endpoint = None
    region: S3Region = None
    path_style: PathStyle = False
    secret_ref: SecretRef | None = Field(
        None,
        description=f"The login to S3; the keys read are {', '.join(S3_SECRET_KEYS)}. The operator reads the ledger too, so "
        "without it an administrator has to allow the operator to use its own login there.",
    )

    rules = (only_on_s3("location"),)

    @classmethod
    def in_folder(cls, folder: S3Place | str) -> ObjectLogLedger:
        """Return the log in a folder whose parts were checked where they were written."""
        if isinstance(folder, str):
            return cls.model_construct(location=folder)
        return cls.model_construct(
            location=folder.location,
            endpoint=folder.endpoint,
            region=folder.region,
            path_style=folder.path_style,
            secret_ref=folder.secret_ref,
        )

    @property
    def is_on_s3(self) -> bool:
        """Whether the log's objects are in a bucket."""
        return is_on_s3(self.location)

    @property
    def folder(self) -> S3Place | str:
        """The folder that the log is in."""
        return place_on_s3(self.location, self) or self.location


LEDGER = ObjectLogLedger
