"""Objects on S3 as they were listed, and read only as long as each is still the one that was listed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from botocore.exceptions import ClientError

from exactlyonce.aws_answers import code_of
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_answers import CONDITION_FAILED
from exactlyonce.checkpoint.s3_conditions import PROBE

_BUFFER_BYTES = 1 << 20


class OtherVersion(Exception):
    """An object is another one than was listed."""


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """An object as it was listed: its key below the folder; `tag` changes with its content."""

    path: str
    size_bytes: int
    modified_milliseconds: int
    tag: str


class S3Versions(S3LogStore):
    """A folder of objects that others write; they are read and deleted here, and nothing is written."""

    def versions(self, *, recursive: bool) -> Iterator[ObjectVersion]:
        """Yield the objects of the folder, and of those below it, a page of 1,000 after another.

        Raises:
            StoreForbidden, StoreUnreachable: by situation.
        """
        below = {} if recursive else {"Delimiter": "/"}
        with self._named("listed", ""):
            for page in self._pages(self._prefix, **below):
                for item in page.get("Contents", ()):
                    path = item["Key"][len(self._prefix) :]
                    # A key that ends with a slash is the mark of a folder, as Hadoop makes them.
                    if path and path[-1] != "/" and path != PROBE:
                        modified = round(item["LastModified"].timestamp() * 1000)
                        yield ObjectVersion(path, item["Size"], modified, item["ETag"])

    @contextmanager
    def reading(self, path: str, tag: str) -> Iterator[BinaryIO]:
        """Open an object for as long as the block takes; all that is read is of this one version.

        Raises:
            OtherVersion: if it is another one by now.
            FileMissing: if there is none.
            StoreForbidden, StoreUnreachable: by situation, also while it is read.
        """
        with self._named("read", path, may_be_missing=True):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + path, IfMatch=tag)
            except ClientError as problem:
                if code_of(problem) in CONDITION_FAILED:
                    raise OtherVersion(path) from problem
                raise
            with closing(answer["Body"]) as body:
                yield cast("BinaryIO", io.BufferedReader(_Body(body), _BUFFER_BYTES))


class _Body(io.RawIOBase):
    """An answer's body as a file of Python's."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def readable(self) -> bool:
        """Whether it is read: it is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes."""
        part = self._body.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)
