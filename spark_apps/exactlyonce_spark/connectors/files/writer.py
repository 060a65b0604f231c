"""Write a batch with Spark's own DataFrameWriter, and move what it wrote to where readers of the manifest find it.

Files that a table's log names stay where they were written: such readers follow the log, and a move on S3 is a copy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession, functions

from exactlyonce.connectors.files.manifest import WRITING, DataFile, Manifest, ReplayWrite, Write
from exactlyonce.connectors.files.spec import FilesSink
from exactlyonce_spark.connectors.files.dictionaries import Dictionaries
from exactlyonce_spark.connectors.files.exact_values import OPTIONS, checked
from exactlyonce_spark.connectors.files.failures import FAILURES
from exactlyonce_spark.connectors.files.folders import Folder, RowsMissing, holds_rows, told_if_unwritable
from exactlyonce_spark.connectors.files.footers import Footers
from exactlyonce_spark.connectors.files.hadoop_folder import HadoopFolder
from exactlyonce_spark.connectors.files.local_folder import LocalFolder
from exactlyonce_spark.connectors.files.target import WrittenFiles
from exactlyonce_spark.crash_points import reached


@dataclass
class SparkFileWriter:
    """Writes the batches of one stream. No batch is shuffled: as many tasks write as read, or as many as there are cores."""

    sink: FilesSink
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The columns with a row's source position, by the names that the source gives them, and their names in files."""
    in_place: bool = False
    """Whether files stay in the folder of their attempt, which then has a name that is not hidden."""
    session_settings: Mapping[str, str] = field(default_factory=dict)
    """What Spark's writer is told by settings of the query's own session, and by no option."""
    bytes_per_row: float | None = None
    _dictionaries: Dictionaries = field(default_factory=Dictionaries)
    _folder: Folder | None = None
    """Where the files are, opened once: for a bucket the JVM is asked for its classes, which takes as long as a small file."""

    def write(self, write: Write | ReplayWrite, rows: DataFrame) -> WrittenFiles:
        """Write rows into a folder of this attempt alone, and move its files to where readers of the manifest find them.

        Spark reads an unpartitioned folder by the files in it alone, and wants all `column=value` folders below one base: so
        files stand directly below the sink's path, as those of Spark's own file sink do.

        Raises:
            RowsMissing: if the files do not hold what was given to their writer.
            FolderUnwritable: if the disk takes no files.
        """
        if self.renamed:
            rows = rows.withColumnsRenamed(dict(self.renamed))
        rows = checked(rows, self.sink.format, self.sink.partition_by)
        counted = Observation()
        place = write.name if self.in_place else f"{WRITING}/{write.name}"
        for name, value in self.session_settings.items():
            rows.sparkSession.conf.set(name, value)
        # A task makes a file at least: more tasks than cores make files smaller and the batch no faster.
        tasks = rows.sparkSession.sparkContext.defaultParallelism
        writer = rows.observe(counted, functions.count(functions.lit(1)).alias("rows")).coalesce(tasks).write
        writer = (
            writer.format(self.sink.format.spark_name).options(**self._options()).partitionBy(*self.sink.partition_by)
        )
        try:
            writer.mode("error").save(f"{self.sink.path}/{place}")
        except Exception as problem:
            self._remove_failed(rows.sparkSession, place, str(problem))
            raise
        reached("files.written", write.batch)
        count = int(counted.get["rows"])
        with told_if_unwritable():
            files = self._taken(write, self._opened(rows.sparkSession), place, count)
        return WrittenFiles(files, count)

    def _taken(self, write: Write | ReplayWrite, folder: Folder, place: str, count: int) -> tuple[DataFile, ...]:
        """Move what was written to where it stays; it is there when the machine crashes after this."""
        files = tuple(self._files(write, folder, place)) if count else ()
        held = [file.rows for file in files if file.rows is not None]
        if len(held) == len(files) and sum(held) != count:
            raise RowsMissing(
                f"Batch {write.batch} gave {count} rows to the writer and the files in {self.sink.path}/{place} hold "
                f"{sum(held)}; nothing of it has landed and it runs again."
            )
        if not self.in_place or not files:
            folder.remove(place)
        reached("files.folder-removed", write.batch)
        if not self.sink.is_on_s3:
            _flush(Path(self.sink.folder), [file.path for file in files])
        return files

    def _remove_failed(self, session: SparkSession, place: str, why: str) -> None:
        """Remove the folder of a job that failed: Spark removes its files alone, and `orphans` are found by their files.

        Nothing depends on it, so what fails here is not raised in place of what failed the job.
        """
        if FAILURES.outage(why) is None:  # a bucket that does not answer would only be asked at length once more
            with suppress(Exception):
                self._opened(session).remove(place)

    def learn(self, manifest: Manifest) -> None:
        """Take how many bytes a row takes."""
        if manifest.rows:
            self.bytes_per_row = sum(file.size_bytes for file in manifest.files) / manifest.rows

    def _options(self) -> dict[str, str]:
        options = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", **OPTIONS[self.sink.format]}
        if self.bytes_per_row:
            options["maxRecordsPerFile"] = str(max(1, math.ceil(self.sink.target_file_bytes / self.bytes_per_row)))
        return options | self._dictionaries.options()

    def _opened(self, session: SparkSession) -> Folder:
        if self._folder is None:
            given, spans = self.sink.format, self.sink.include_positions
            if self.sink.is_on_s3:
                self._folder = HadoopFolder(session, self.sink.path, Footers(session, given, with_spans=spans))
            else:
                self._folder = LocalFolder(self.sink.folder, given, with_spans=spans)
        return self._folder

    def _files(self, write: Write | ReplayWrite, folder: Folder, place: str) -> Iterator[DataFile]:
        made = {""}
        for file in folder.files_below(place):
            if not holds_rows(file.path.removeprefix(f"{place}/")):
                continue  # it goes with the attempt's folder
            footer = folder.footer(file)
            rows, spans = footer.rows, footer.spans
            if rows == 0:
                continue
            self._dictionaries.saw(footer)
            if self.in_place:
                yield DataFile(file.path, file.size_bytes, file.modified_milliseconds, rows, spans)
                continue
            final = _final(file.path, write)
            above = final.rpartition("/")[0]
            if above not in made:
                folder.make_folder(above)
                made.add(above)
            moved = folder.move(file.path, final)
            reached("files.moved", write.batch)
            if moved.size_bytes != file.size_bytes:
                raise RowsMissing(
                    f"{final} has {moved.size_bytes} bytes and {file.path} had {file.size_bytes}; nothing of batch "
                    f"{write.batch} has landed and it runs again."
                )
            yield DataFile(final, moved.size_bytes, moved.modified_milliseconds, rows, spans)


def _final(path: str, write: Write | ReplayWrite) -> str:
    """From _exactlyonce/writing/ATTEMPT/day=1/part-0 to day=1/ATTEMPT-part-0."""
    *folders, name = path.removeprefix(f"{WRITING}/{write.name}/").split("/")
    return "/".join([*folders, f"{write.name}-{name}"])


def _flush(root: Path, paths: Sequence[str]) -> None:
    """Wait for the disk: no crash of the machine may leave the ledger's entry without a file that it names, or its folder."""
    files = [root / path for path in paths]
    folders = {above for file in files for above in file.parents if above == root or root in above.parents}
    for place in (*files, *sorted(folders, reverse=True)):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
