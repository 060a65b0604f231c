"""Write a batch with Spark's own DataFrameWriter, and list what it wrote with Hadoop's file systems."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession, functions

from exactlyonce.connectors.files.manifest import WRITING, DataFile, Manifest, Write
from exactlyonce.connectors.files.spec import FileFormat, FilesSink
from exactlyonce_spark.connectors.files.footers import Footers
from exactlyonce_spark.connectors.files.hadoop_folder import HadoopFolder, RowsMissing
from exactlyonce_spark.connectors.files.target import WrittenFiles


@dataclass
class SparkFileWriter:
    """Writes the batches of one stream. No batch is shuffled: as many tasks write as read, or as many as there are cores."""

    sink: FilesSink
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The columns with a row's source position, by the names that the source gives them, and their names in files."""
    bytes_per_row: float | None = None
    _tools: tuple[HadoopFolder, Footers] | None = None
    """What a batch needs of the JVM, looked up once: each lookup takes as long as writing a small file."""

    def write(self, write: Write, rows: DataFrame) -> WrittenFiles:
        """Write rows into a folder of this attempt alone, and move its files to where readers of the manifest find them.

        Spark reads an unpartitioned folder by the files in it alone, and wants all `column=value` folders below one base: so
        files stand directly below the sink's path, as those of Spark's own file sink do.

        Raises:
            RowsMissing: if the files do not hold what was given to their writer.
        """
        rows = rows.withColumnsRenamed(dict(self.renamed))
        counted = Observation()
        folder = f"{self.sink.path}/{WRITING}/{write.name}"
        # A task makes a file at least: more tasks than cores make files smaller and the batch no faster.
        tasks = rows.sparkSession.sparkContext.defaultParallelism
        writer = rows.observe(counted, functions.count(functions.lit(1)).alias("rows")).coalesce(tasks).write
        writer = (
            writer.format(self.sink.format.spark_name).options(**self._options()).partitionBy(*self.sink.partition_by)
        )
        writer.mode("error").save(folder)
        count = int(counted.get["rows"])
        hadoop, footers = self._tools_of(rows.sparkSession)
        files = tuple(self._files(write, folder, hadoop, footers)) if count else ()
        held = [file.rows for file in files if file.rows is not None]
        if len(held) == len(files) and sum(held) != count:
            raise RowsMissing(
                f"Batch {write.batch} gave {count} rows to the writer and the files in {folder} hold {sum(held)}; nothing of "
                "it has landed and it runs again."
            )
        hadoop.remove(folder)
        if not self.sink.is_on_s3:
            _flush(Path(self.sink.folder), [file.path for file in files])
        return WrittenFiles(files, count)

    def learn(self, manifest: Manifest) -> None:
        """Take how many bytes a row takes."""
        if manifest.rows:
            self.bytes_per_row = sum(file.size_bytes for file in manifest.files) / manifest.rows

    def _options(self) -> dict[str, str]:
        options = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
        if self.sink.format is FileFormat.CSV:
            options["header"] = "true"
        if self.bytes_per_row:
            options["maxRecordsPerFile"] = str(max(1, math.ceil(self.sink.target_file_bytes / self.bytes_per_row)))
        return options

    def _tools_of(self, session: SparkSession) -> tuple[HadoopFolder, Footers]:
        if self._tools is None:
            footers = Footers(session, self.sink.format, with_spans=self.sink.include_positions)
            self._tools = HadoopFolder(session, self.sink.path), footers
        return self._tools

    def _files(self, write: Write, folder: str, hadoop: HadoopFolder, footers: Footers) -> Iterator[DataFile]:
        # S3 has no folders: making one would be several requests, and an object that no reader needs.
        made = {""}
        for status in hadoop.files_below(folder):
            rows, spans = footers.read(status)
            path = hadoop.relative(status.getPath())
            if rows == 0:
                continue
            final = _final(path, write)
            above = final.rpartition("/")[0]
            if above not in made and not self.sink.is_on_s3:
                hadoop.make_folder(above)
                made.add(above)
            moved = hadoop.move(path, final)
            if moved.getLen() != status.getLen():
                raise RowsMissing(
                    f"{final} has {moved.getLen()} bytes and {path} had {status.getLen()}; nothing of batch {write.batch} has "
                    "landed and it runs again."
                )
            yield DataFile(final, int(moved.getLen()), int(moved.getModificationTime()), rows, spans)


def _final(path: str, write: Write) -> str:
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
