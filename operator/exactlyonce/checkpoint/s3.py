"""Checkpoints on S3, or on a service that speaks its protocol and has conditional writes.

Of two creators one wins by `If-None-Match: *`, of two replacers by `If-Match`. A service that ignores these headers would
let two operators write one file, so the first write of a process to a service asks it to prove that it does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from exactlyonce.aws import errors
from exactlyonce.aws.answers import BROKEN_OFF, error_in, error_of
from exactlyonce.aws.calls import Call
from exactlyonce.aws.errors import AwsError
from exactlyonce.checkpoint.s3_answers import UNKNOWN_CONDITION, sentence_of
from exactlyonce.checkpoint.s3_clients import CLIENTS, S3Service
from exactlyonce.checkpoint.s3_conditions import PROBE, conditions_ignored, require_conditions
from exactlyonce.checkpoint.s3_large import copy_object, write_object
from exactlyonce.checkpoint.scratch import needing_room, scratch_folder
from exactlyonce.checkpoint.store import (
    AlreadyExists,
    Created,
    CreateOutcome,
    Entry,
    FileMissing,
    FileTooLarge,
    Size,
    require_few,
)
from exactlyonce.errors import StoreUnreachable
from exactlyonce.schema.places import S3_PREFIX

_CONFLICT_TRIES, _CONFLICT_SECONDS = 6, 0.2
_PART_BYTES = 1 << 20
MOST_DELETED = 1000  # S3 takes no more keys in one DeleteObjects


class S3LogStore:
    """A `LogStore` over the objects of a bucket whose keys begin with a prefix.

    None of more than `most_bytes` is read: whoever reads for many tenants gives a limit.
    """

    def __init__(self, location: str, service: S3Service, most_bytes: int | None = None) -> None:
        self._location = location.rstrip("/")
        self._most_bytes = most_bytes
        self._bucket, _, prefix = self._location.removeprefix(S3_PREFIX).partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._service = service
        CLIENTS.get(service).api()  # made now, which takes longer than a request

    def _request(self, operation: str, parse: Callable[[Any], Any] = lambda answer: answer, **arguments: Any) -> Any:
        """Make a call of the bucket, and return what `parse` makes of the answer.

        Raises:
            AwsError: by situation.
        """
        return CLIENTS.get(self._service).call(Call(operation, {"Bucket": self._bucket, **arguments}), parse)

    @property
    def location(self) -> str:
        """The folder as the user named it."""
        return self._location

    def folders_above(self) -> tuple[S3LogStore, ...]:
        """Return the folders that this one is in, without the bucket itself."""
        names = self._location.removeprefix(S3_PREFIX).split("/")[:-1]
        places = ("/".join(names[:count]) for count in range(len(names), 1, -1))
        return tuple(S3LogStore(f"{S3_PREFIX}{place}", self._service, self._most_bytes) for place in places)

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder; none when no key begins with its name."""
        found: list[Entry] = []
        for entry in self.entries(folder):
            found.append(entry)
            require_few(len(found), self._where(folder))
        return tuple(sorted(found, key=lambda entry: entry.name))

    def entries(self, folder: str, is_enough: Callable[[], bool] = lambda: False) -> Iterator[Entry]:
        """Yield the entries of a folder, a page of 1,000 after another, until `is_enough` says so between two."""
        prefix = self._below(folder)
        with self._named("listed", folder):
            for page in self._pages(prefix, Delimiter="/"):
                files, folders = page.get("Contents", ()), page.get("CommonPrefixes", ())
                found = [Entry(item["Key"][len(prefix) :], item["Size"], is_folder=False) for item in files]
                found += [Entry(item["Prefix"][len(prefix) : -1], 0, is_folder=True) for item in folders]
                # An object with the folder's own name is the mark of a folder, as Hadoop makes them.
                yield from (entry for entry in found if entry.name and (folder or entry.name != PROBE))
                if page.get("IsTruncated") and is_enough():
                    return

    def sizes(self) -> Iterator[Size]:
        """Return how much is below the location, one answer of up to 1,000 objects after another; hidden ones count."""
        with self._named("measured", ""):
            for page in self._pages(self._prefix):
                found = page.get("Contents", ())
                yield Size(len(found), sum(item["Size"] for item in found))

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Return a file's content, or raise FileMissing."""
        return self._get(path, most_bytes or self._most_bytes)[0]

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken.

        A request whose answer was lost is sent again, and then finds what it has written: the outcome may be
        `AlreadyExists` with the very content that was given.
        """
        self._require_conditions()
        for _ in range(_CONFLICT_TRIES):
            if self._put(path, content, IfNoneMatch="*"):
                return Created()
            try:
                return AlreadyExists(self.read(path))
            except FileMissing:
                continue  # whoever had created it has removed it
        raise StoreUnreachable(f"{self._location}/{path} comes and goes; something else writes there.")

    def replace(self, path: str, expected: bytes, content: bytes) -> bool:
        """Replace a file that holds `expected`, if it is still the same object then."""
        try:
            found, version = self._get(path, self._most_bytes)
        except FileMissing:
            return False
        if found != expected:
            return False
        self._require_conditions()
        return self._put(path, content, IfMatch=version)

    def tree(self, folder: str) -> Mapping[str, int]:
        """Return every object below a folder with its size."""
        found: dict[str, int] = {}
        for path, size in self.walk(folder):
            found[path] = size
            require_few(len(found), self._where(folder))
        return found

    def walk(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield every object below a folder with its size, a page of 1,000 after another."""
        prefix = self._below(folder)
        with self._named("listed", folder):
            for page in self._pages(prefix):
                found = ((item["Key"][len(prefix) :], item["Size"]) for item in page.get("Contents", ()))
                # A key that ends with a slash is the mark of a folder, as Hadoop makes them.
                yield from ((path, size) for path, size in found if path and path[-1] != "/" and path != PROBE)

    def names_after(self, folder: str, after: str) -> tuple[str, ...]:
        """Return the names of a folder's objects that sort after `after`: one request where there are at most 1,000."""
        prefix = f"{self._prefix}{folder}/"
        found: list[str] = []
        with self._named("listed", folder):
            for page in self._pages(prefix, Delimiter="/", StartAfter=f"{prefix}{after}"):
                found += [item["Key"][len(prefix) :] for item in page.get("Contents", ())]
                require_few(len(found), self._where(folder))
        return tuple(sorted(name for name in found if name > after and not name.startswith(".")))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, 1,000 with each request."""
        for start in range(0, len(paths), MOST_DELETED):
            with self._named("removed", paths[start]):
                self._delete([self._prefix + path for path in paths[start : start + MOST_DELETED]])

    def copy(self, source: str, target: str) -> None:
        """Let the service copy an object; a large one in parts, which appear at once. Nothing passes through here."""
        with self._named("copied", source, may_be_missing=True):
            copy_object(self._request, self._bucket, self._prefix + source, self._prefix + target)

    @contextmanager
    def fetched(self, path: str) -> Iterator[Path]:
        """Bring an object here for as long as the block takes."""
        with scratch_folder() as folder:
            file = folder / "file"

            def written(answer: Any) -> None:
                with closing(answer["Body"]) as body, needing_room(), file.open("wb") as out:
                    while part := body.read(_PART_BYTES):
                        out.write(part)

            with self._named("read", path, may_be_missing=True):
                self._request("GetObject", written, Key=self._prefix + path)
            yield file

    def put(self, source: Path, path: str) -> None:
        """Write an object from a file of this machine; a large one in parts, which appear at once."""
        with self._named("written", path), source.open("rb") as content:
            write_object(self._request, self._prefix + path, content, source.stat().st_size)

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove a file, or a folder with all that is in it; with the last of them goes what proved the service."""
        with self._named("removed", path):
            self._delete([self._prefix + path])
            for page in self._pages(f"{self._prefix}{path}/"):
                self._delete([item["Key"] for item in page.get("Contents", ())])
                if page.get("IsTruncated") and is_enough():
                    return False
        with self._named("removed", PROBE):
            own = {self._prefix, self._prefix + PROBE}
            first = self._request("ListObjectsV2", Prefix=self._prefix, MaxKeys=len(own) + 1)
            if {item["Key"] for item in first.get("Contents", ())} <= own:
                self._delete([self._prefix + PROBE])
        return True

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete objects, at most as many as one answer lists."""
        if not keys:
            return
        objects = [{"Key": key} for key in keys]
        answer = self._request("DeleteObjects", Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", ()):
            raise error_in(error)

    def _below(self, folder: str) -> str:
        return f"{self._prefix}{folder}/" if folder else self._prefix

    def _where(self, path: str) -> str:
        return f"{self._location}/{path}".rstrip("/")

    def _pages(self, prefix: str, **more: str) -> Iterator[dict[str, Any]]:
        asked: dict[str, Any] = {"Prefix": prefix, **more}
        while True:
            page: dict[str, Any] = self._request("ListObjectsV2", **asked)
            yield page
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == asked.get("ContinuationToken"):
                raise errors.Foreign("its next page is the same one")
            asked["ContinuationToken"] = token

    def _get(self, path: str, most_bytes: int | None) -> tuple[bytes, str]:
        with self._named("read", path, may_be_missing=True):
            found: tuple[bytes, str] = self._request(
                "GetObject",
                lambda answer: (self._bounded(path, answer["Body"], most_bytes), str(answer["ETag"])),
                Key=self._prefix + path,
            )
            return found

    def _bounded(self, path: str, body: Any, most_bytes: int | None) -> bytes:
        """Read an answer to its end, and no further than the limit: what the service says of its length is not relied on."""
        content = bytearray()
        while part := body.read(_PART_BYTES):
            content += part
            if most_bytes is not None and len(content) > most_bytes:
                body.close()
                raise FileTooLarge(
                    f"{self._location}/{path} has more than the {most_bytes} bytes that such a file may have, so no driver "
                    "wrote it; remove it, or restore the original from a backup."
                )
        return bytes(content)

    def _put(self, path: str, content: bytes, **condition: str) -> bool:
        """Write an object on a condition; False when the condition does not hold."""
        written: dict[str, Any] = {"Key": self._prefix + path, "Body": content, **condition}
        with self._named("written", path):
            for waited in range(_CONFLICT_TRIES):
                try:
                    self._request("PutObject", **written)
                except errors.ConditionFailed:
                    return False
                except errors.Missing:
                    if "IfMatch" in condition:
                        return False
                    raise
                except errors.Refused as error:
                    if error.code in UNKNOWN_CONDITION:
                        raise conditions_ignored(self._service, self._location) from error
                    raise
                except errors.Conflict:
                    if waited == _CONFLICT_TRIES - 1:
                        raise
                    time.sleep(_CONFLICT_SECONDS)  # S3 asks for this when two conditional writes meet
                else:
                    return True
        raise AssertionError("the last try returns or raises")

    def _require_conditions(self) -> None:
        require_conditions(self._service, self._location, self._bucket, self._put)

    @contextmanager
    def _named(self, act: str, path: str, *, may_be_missing: bool = False) -> Iterator[None]:
        try:
            yield
        except (AwsError, *BROKEN_OFF) as problem:
            error = error_of(problem, has_statuses=True)
        else:
            return
        if may_be_missing and isinstance(error, errors.Missing):
            raise FileMissing(path)
        raise sentence_of(error, act, self._where(path), self._bucket, self._service.name) from error
