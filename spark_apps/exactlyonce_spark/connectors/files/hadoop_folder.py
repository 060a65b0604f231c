"""A sink's folder in a bucket as Hadoop's file system has it, by the login that Spark has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from exactlyonce_spark.connectors.files.folders import FileFound, Footer, not_renamed
from exactlyonce_spark.connectors.files.footers import Footers


class HadoopFolder:
    """The files below one location."""

    def __init__(self, session: SparkSession, location: str, footers: Footers) -> None:
        self._path = session._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr] # a classic session has a JVM
        conf = session._jsc.hadoopConfiguration()
        self._root = self._path(location)
        self._files = self._root.getFileSystem(conf)
        self._prefix = str(self._files.makeQualified(self._root).toString())
        self._footers = footers

    def files_below(self, folder: str) -> Iterator[FileFound]:
        """Yield each file below a folder, by path; checksums are left out by Hadoop itself."""
        found, files = self._files.listFiles(self._below(folder), True), []
        while found.hasNext():
            files.append(self._found(found.next()))
        yield from sorted(files, key=lambda file: file.path)

    def footer(self, file: FileFound) -> Footer:
        """Return what a file says of itself."""
        return self._footers.read(file.status)

    def make_folder(self, folder: str) -> None:
        """S3 has no folders: making one would be several requests, and an object that no reader needs."""

    def move(self, source: str, target: str) -> FileFound:
        """Rename a file to a name that nobody else uses, and return it as it is there: on S3 it is a copy, made now."""
        final = self._below(target)
        if not self._files.rename(self._below(source), final):
            raise not_renamed(source, target)
        return self._found(self._files.getFileStatus(final))

    def remove(self, folder: str) -> None:
        """Remove a folder with what is left in it."""
        self._files.delete(self._below(folder), True)

    def _below(self, path: str) -> Any:
        return self._path(f"{self._prefix}/{path}")

    def _found(self, status: Any) -> FileFound:
        path = str(status.getPath().toString()).removeprefix(f"{self._prefix}/")
        return FileFound(path, int(status.getLen()), int(status.getModificationTime()), status)
