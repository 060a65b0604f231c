"""A sink's folder as Hadoop's file system has it: on a disk or on S3, by the login that Spark has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from exactlyonce.errors import ExactlyOnceError


class RowsMissing(ExactlyOnceError):
    """The files hold another number of rows than the query gave to their writer. Nothing has landed; the batch runs again."""


class HadoopFolder:
    """The files below one location."""

    def __init__(self, session: SparkSession, location: str) -> None:
        self._path = session._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr] # a classic session has a JVM
        conf = session._jsc.hadoopConfiguration()
        self._root = self._path(location)
        self._files = self._root.getFileSystem(conf)
        self._prefix = str(self._files.makeQualified(self._root).toString())

    def files_below(self, folder: str) -> Iterator[Any]:
        """Yield the status of each file below a folder, by path; checksums are left out by Hadoop itself."""
        found, statuses = self._files.listFiles(self._path(folder), True), []
        while found.hasNext():
            statuses.append(found.next())
        yield from sorted(statuses, key=lambda status: str(status.getPath().toString()))

    def relative(self, path: Any) -> str:
        """Return a path as it is below the location."""
        return str(path.toString()).removeprefix(f"{self._prefix}/")

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it."""
        self._files.mkdirs(self._path(f"{self._prefix}/{folder}"))

    def move(self, source: str, target: str) -> Any:
        """Rename a file to a name that nobody else uses, and return its status there: on S3 it is a copy, made now."""
        final = self._path(f"{self._prefix}/{target}")
        if not self._files.rename(self._path(f"{self._prefix}/{source}"), final):
            raise RowsMissing(
                f"{source} could not be renamed to {target}; nothing of its batch has landed and it runs again."
            )
        return self._files.getFileStatus(final)

    def remove(self, folder: str) -> None:
        """Remove a folder with what is left in it."""
        self._files.delete(self._path(folder), True)
