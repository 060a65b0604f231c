"""The folder in which rows wait for broker loads: files with whole contents, each written by one request. No pyspark here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from exactlyonce.checkpoint.locations import service_of
from exactlyonce.connectors.doris.staging import StagingLocation
from exactlyonce_spark.connectors.doris.exchange import Piece

if TYPE_CHECKING:
    from exactlyonce.checkpoint.s3 import S3LogStore

_READ_SECONDS = 60.0


class StagingFolder(Protocol):
    """Files by their paths below `location`. Each method raises StoreUnreachable where the storage does not answer."""

    @property
    def location(self) -> str:
        """The folder, as s3a://bucket/folder."""
        ...

    @property
    def service(self) -> str:
        """Which service has the folder: another one may have a folder of the same name."""
        ...

    def put(self, path: str, pieces: Iterable[Piece]) -> None:
        """Write a file, which appears as a whole; the request that makes it appear is sent once.

        Where this raises, it may appear later.
        """
        ...

    def holds(self, path: str) -> bool:
        """Whether there is such a file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        ...

    def paths_below(self, folder: str) -> Iterator[str]:
        """Yield the paths of the files of a folder."""
        ...


@dataclass(frozen=True)
class FolderOnS3:
    """A folder of a bucket, by a client that sends each request once. `secret` has the keys of its login."""

    staging: StagingLocation
    secret: Mapping[str, str] = field(repr=False)

    @property
    def location(self) -> str:
        """The folder."""
        return self.staging.place.location

    @property
    def service(self) -> str:
        """The service: Amazon has each bucket once, whatever its region."""
        return self.staging.endpoint or "Amazon S3"

    def put(self, path: str, pieces: Iterable[Piece]) -> None:
        """Write a file by way of the task's own disk; a large one in parts, which appear by one last request."""
        with tempfile.TemporaryDirectory(prefix="exactlyonce-staged-") as folder:
            file = Path(folder) / "rows"
            with file.open("wb") as out:
                out.writelines(pieces)
            self._store.put(file, path)

    def holds(self, path: str) -> bool:
        """List the file's folder, which has files of this stream alone."""
        return path in self.paths_below(path.rpartition("/")[0])

    def remove(self, path: str) -> None:
        """Remove the file; that it was not there is no error to S3."""
        self._store.delete([path])

    def paths_below(self, folder: str) -> Iterator[str]:
        """List the folder, a page after another."""
        for path, _ in self._store.walk(folder):
            yield f"{folder}/{path}"

    @cached_property
    def _store(self) -> S3LogStore:
        from exactlyonce.checkpoint.s3 import S3LogStore  # its client takes a third of a second to import

        service = replace(service_of(self.staging.place, self.secret), tries=1, read_seconds=_READ_SECONDS)
        return S3LogStore(self.location, service)
