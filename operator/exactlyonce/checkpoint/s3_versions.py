"""Objects on S3 as they were listed, and read only as long as each is still the one that was listed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, cast

from exactlyonce.aws import errors
from exactlyonce.aws.answers import error_in
from exactlyonce.checkpoint.s3 import MOST_DELETED, S3LogStore
from exactlyonce.checkpoint.s3_answers import UNKNOWN_CONDITION
from exactlyonce.checkpoint.s3_conditions import PROBE
from exactlyonce.checkpoint.store import FileMissing

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
    """A folder of objects that others write; they are read, deleted and copied here."""

    def beside(self, location: str) -> S3Versions:
        """Return another folder of the same service, with the same login."""
        return S3Versions(location, self._service)

    def versions(self, *, recursive: bool, is_enough: Callable[[], bool] = lambda: False) -> Iterator[ObjectVersion]:
        """Yield the objects of the folder, and of those below it, a page of 1,000 after another.

        `is_enough` is asked between two pages, which may hold none: of folders that are not looked into, or of a server that
        sends such pages for ever.

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
                if page.get("IsTruncated") and is_enough():
                    return

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
                answer = self._request("GetObject", Key=self._prefix + path, IfMatch=tag)
            except errors.ConditionFailed as error:
                raise OtherVersion(path) from error
            with closing(answer["Body"]) as body:
                yield cast("BinaryIO", io.BufferedReader(_Body(body), _BUFFER_BYTES))

    def seekable(self, path: str, tag: str, size_bytes: int) -> BinaryIO:
        """Return an object as a file in which a reader may seek; each read is a request for this one version.

        Nothing is requested before the first read, which raises what `reading` raises.
        """
        return cast("BinaryIO", _Parts(partial(self._part, path, tag), size_bytes))

    def delete_listed(self, objects: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Delete objects, given as path and ETag, 1,000 with each request; return those that are others by now, and stay.

        A service that ignores the ETags of DeleteObjects deletes what is there; one that refuses them is asked without.

        Raises:
            StoreForbidden, StoreUnreachable: by situation.
        """
        changed: list[str] = []
        for start in range(0, len(objects), MOST_DELETED):
            part = objects[start : start + MOST_DELETED]
            with self._named("removed", part[0][0]):
                wanted = [{"Key": self._prefix + path, "ETag": tag} for path, tag in part]
                try:
                    answer = self._request("DeleteObjects", Delete={"Objects": wanted, "Quiet": True})
                except errors.Refused as error:
                    if error.code not in UNKNOWN_CONDITION:
                        raise
                    self._delete([each["Key"] for each in wanted])
                    continue
                for told in answer.get("Errors", ()):
                    problem = error_in(told)
                    if not isinstance(problem, errors.ConditionFailed | errors.Missing):
                        raise problem
                    changed.append(told["Key"].removeprefix(self._prefix))
        return tuple(changed)

    def described(self, path: str) -> Mapping[str, Any] | None:
        """Return what HeadObject says of an object; None where there is none.

        Raises:
            StoreForbidden, StoreUnreachable: by situation.
        """
        try:
            with self._named("read", path, may_be_missing=True):
                return cast("Mapping[str, Any]", self._request("HeadObject", Key=self._prefix + path))
        except FileMissing:
            return None

    def copy_from(self, source: S3Versions, path: str, tag: str, written: Mapping[str, Any]) -> bool:
        """Copy one version of an object of another folder to the same path here; False if it is gone, or the name is taken.

        Raises:
            StoreForbidden, StoreUnreachable: by situation.
        """
        place = {"Bucket": source._bucket, "Key": source._prefix + path}
        with self._named("written", path):
            try:
                self._request(
                    "CopyObject",
                    Key=self._prefix + path,
                    CopySource=place,
                    CopySourceIfMatch=tag,
                    IfNoneMatch="*",
                    MetadataDirective="REPLACE",
                    **written,
                )
            except (errors.ConditionFailed, errors.Conflict, errors.Missing):
                return False
            return True

    def _part(self, path: str, tag: str, start: int, end: int) -> bytes:
        with self._named("read", path, may_be_missing=True):
            try:
                found: bytes = self._request(
                    "GetObject", _read, Key=self._prefix + path, IfMatch=tag, Range=f"bytes={start}-{end - 1}"
                )
            except errors.ConditionFailed as error:
                raise OtherVersion(path) from error
            return found


def _read(answer: Any) -> bytes:
    with closing(answer["Body"]) as body:
        return bytes(body.read())


class _Parts(io.RawIOBase):
    """An object of which `part` returns the bytes from one place up to another."""

    def __init__(self, part: Callable[[int, int], bytes], size_bytes: int) -> None:
        self._part = part
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        """Whether it is read: it is."""
        return True

    def seekable(self) -> bool:
        """Whether a reader may seek: it may."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Let the next read begin elsewhere."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as much as the buffer holds, or as there is."""
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        part = self._part(self._at, end)
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


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
