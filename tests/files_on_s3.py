"""A stream whose files and ledger are in a bucket, which Spark reaches through a proxy; its readers ask the service itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any

import pyarrow.fs

from exactlyonce.api.resource import parse_stream
from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.connector import FILES, FilesFolder
from exactlyonce.connectors.files.manifest import WRITING
from exactlyonce_spark.s3_settings import s3_settings
from testbed.faulty_service import Fate, Request
from testbed.s3 import S3
from tests.files_rig import Stream
from tests.resource_documents import document

_numbers = count(1)

FAULTS = (
    Fate.REFUSED_503,
    Fate.TAKEN_500,
    Fate.TWICE,
    Fate.LATE,
    Fate.REFUSED_500,
    Fate.CUT,
    Fate.TAKEN_503,
    Fate.SLOW,
)
"""What a bad day of S3 has for a request."""


@dataclass
class BadDay:
    """Gives each fault in turn to one of so many requests, of those that `strikes` is true of, until the day is over."""

    every: int
    strikes: Callable[[Request], bool] = lambda request: True
    struck: Counter[Fate] = field(default_factory=Counter)
    is_over: bool = False
    _requests: Iterator[int] = field(default_factory=count)
    _faults: Iterator[Fate] = field(default_factory=lambda: cycle(FAULTS))

    def fate(self, request: Request) -> Fate:
        """Say what becomes of a request."""
        if self.is_over or not self.strikes(request) or (next(self._requests) + 1) % self.every:
            return Fate.ANSWERED
        given = next(self._faults)
        self.struck[given] += 1
        return given


def new_bucket(s3: S3) -> str:
    """Create a bucket for one Spark session: a JVM keeps a file system for each bucket, with the settings of its first use."""
    bucket = f"session-{next(_numbers)}"
    s3.create_bucket(bucket)
    return bucket


def settings_of_spark(s3: S3, bucket: str, endpoint: str) -> dict[str, str]:
    """What a driver gives Spark for such a sink, with the login as settings, and fewer tries with shorter pauses."""
    files = {"path": f"s3a://{bucket}/any", "endpoint": endpoint, "pathStyle": True}
    changes = {"spec.sink": {"files": files}, "spec.ledger": {"objectLog": {"location": "/any"}}}
    spec = parse_stream(document({**changes, "spec.checkpoint": {"local": {"path": "/c"}}}), "the test").spec
    own = {
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "access.key": s3.access_key,
        "secret.key": s3.secret_key,
        "attempts.maximum": "1",
        "retry.interval": "1ms",
        "retry.limit": "3",
        "retry.throttle.interval": "1ms",
        "retry.throttle.limit": "3",
    }
    return {**s3_settings(spec), **{f"spark.hadoop.fs.s3a.bucket.{bucket}.{key}": value for key, value in own.items()}}


@dataclass
class StreamOnS3(Stream):
    """A stream that writes files to a bucket, and its drivers."""

    s3: S3 = field(kw_only=True)

    @property
    def store(self) -> FolderStore:
        """The folder as a driver has it, through the proxy if the sink names that."""
        return self.folder().store

    def folder(self) -> FilesFolder:
        """The folder as a person's command has it."""
        return FILES.folder(self.sink, self.s3.secret())

    def left_of_attempts(self) -> set[str]:
        """The objects where attempts write."""
        return self.keys(f"{WRITING}/")

    def on_disk(self) -> set[str]:
        """The data files where readers might look, as the service itself lists them."""
        keys = self.keys()
        return {key for key in keys if key.endswith(f".{self.sink.format.spark_name}") and not key.startswith("_")}

    def keys(self, below: str = "") -> set[str]:
        """Every object below a folder of the path, by its name from the path on, but for marks of folders."""
        bucket, prefix = self._place()
        pages = self.s3.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}{below}")
        found = (entry["Key"].removeprefix(prefix) for page in pages for entry in page.get("Contents", ()))
        return {key for key in found if key and not key.endswith("/")}

    def copy(self, before: str, after: str) -> None:
        """Copy an object, as the service itself does it."""
        bucket, prefix = self._place()
        source = {"Bucket": bucket, "Key": f"{prefix}{before}"}
        self.s3.client().copy_object(Bucket=bucket, Key=f"{prefix}{after}", CopySource=source)

    def _place(self) -> tuple[str, str]:
        bucket, _, prefix = self.sink.path.removeprefix("s3a://").partition("/")
        return bucket, f"{prefix}/"

    def root_of_pyarrow(self) -> tuple[str, Any]:
        """The path as pyarrow calls it, and the service itself."""
        s3 = self.s3
        files = pyarrow.fs.S3FileSystem(
            access_key=s3.access_key, secret_key=s3.secret_key, endpoint_override=s3.endpoint, region="us-east-1"
        )
        return self.sink.path.removeprefix("s3a://"), files
