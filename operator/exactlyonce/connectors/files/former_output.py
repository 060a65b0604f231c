"""A folder that a query of Spark's own file sink has written, and that a stream continues.

Its files count by its entries of `_spark_metadata`, which stay; the stream adds entries with higher numbers. Spark's sink drops
a batch whose number is not above the latest one without a word, so a query that would be started again there loses rows: which
batch was the latest is written down in the resource, and a folder with any other is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files.manifest import MARKER, life_of
from exactlyonce.connectors.files.shown import latest_shown, names_shown, read_files
from exactlyonce.connectors.files.spark_log import FOLDER, batch_of, is_compaction, path_of
from exactlyonce.connectors.files.spec import FileFormat
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import BatchNumber

_PART = re.compile(r"part-[0-9]{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""How Spark's writers name files. Source: HadoopMapReduceCommitProtocol.getFilename."""

_ADDED = "add"
_WITHOUT_IT = "the rows of the former query are not known"


class OutputUnfit(Refused):
    """The folder is not what a query of Spark's own file sink leaves behind, as the resource says it."""


@dataclass(frozen=True, slots=True)
class FormerFile:
    """A file that an entry of the former query names; the path is relative to the folder."""

    path: str
    size_bytes: int


def require_continuable(store: OutputStore, latest: int, file_format: FileFormat, partition_by: Sequence[str]) -> None:
    """Require that a folder is the output of a query that ended with this batch, and that readers of it read all of its rows.

    Raises:
        OutputUnfit, LogUnfit: if it is anything else.
    """
    found = latest_shown(store)
    if found is None:
        raise OutputUnfit(
            f"The path {store.location} has no {FOLDER} with a batch, so there is nothing that continueAfterBatch could "
            "continue. Leave it out, with an empty path; or name the folder that the query has written."
        )
    if found != latest:
        raise OutputUnfit(
            f"{store.location}/{FOLDER} ends with batch {found}, and continueAfterBatch says {latest}. If the query is still "
            f"running, stop it for good; then look with `exactlyonce inspect {store.location}`, and name the batch that it "
            "shows."
        )
    _require_interval(store)
    sizes = dict(store.walk(""))
    if inside := [path.removesuffix(f"/{MARKER}") for path in sizes if path.endswith(f"/{MARKER}")]:
        raise OutputUnfit(
            f"Inside {store.location} is the folder of another stream ({sorted(inside)[0]}), and each could take the other's "
            "files for its own. Move one of them."
        )
    for file in former_files(store, found):
        _require_written_as(store, file, file_format)
        folders = [folder.partition("=")[0] for folder in file.path.split("/")[:-1]]
        if folders != list(partition_by):
            raise OutputUnfit(
                f"{store.location}/{file.path} is partitioned by {folders or 'nothing'}, and partitionBy says "
                f"{list(partition_by) or 'nothing'}. No reader could read both together; set partitionBy to what the query had."
            )
        if sizes.get(file.path) != file.size_bytes:
            raise OutputUnfit(
                f"{store.location}/{file.path}, which {FOLDER} names, is missing or has another size than {file.size_bytes} "
                "bytes: readers with Spark fail on it. Restore it from a backup."
            )


def require_numbered_behind(former: int | None, landed: BatchNumber | None, location: str) -> None:
    """Require that the stream's numbers are above those of the former query. Performs no I/O.

    Raises:
        OutputUnfit: if the resource named an earlier batch, or none, when the stream was started.
    """
    if former is not None and landed is not None and landed < former:
        raise OutputUnfit(
            f"The stream has numbered its batches up to {landed}, so it was started with another continueAfterBatch than "
            f"{former}, and readers of {location} would not be shown its next batches. Start it over: annotate it with "
            "exactlyonce.dev/fresh and its token, and its numbers begin behind that batch."
        )


def former_files(store: OutputStore, latest: BatchNumber | None) -> tuple[FormerFile, ...]:
    """Return the files of the former query that readers are shown, for whom `latest` is the latest entry.

    Raises:
        LogUnfit: if an entry is missing or unreadable.
        OutputUnfit: if one names a file elsewhere.
    """
    found = []
    for name in names_shown(latest):
        for address, size, action in read_files(store, store.location, name, _WITHOUT_IT, _file_of):
            if life_of(address) is not None:
                continue
            path = path_of(address, store.location)
            if action != _ADDED or path is None:
                what = f"{action}s {address}" if action != _ADDED else f"names {address}, which is elsewhere"
                raise OutputUnfit(
                    f"{store.location}/{FOLDER}/{name} {what}: the folder was moved or copied, or a release of Spark that is "
                    "not known wrote it. Start the stream with an empty path, and let readers read both."
                )
            found.append(FormerFile(path, size))
    return tuple(found)


def former_paths(shown: Iterable[str], location: str) -> Iterator[str]:
    """Yield the paths of the former query's files among the addresses that readers are shown. Performs no I/O."""
    for address in shown:
        path = path_of(address, location)
        if path is not None and life_of(path) is None:
            yield path


def is_part_file(path: str, partition_by: Sequence[str]) -> bool:
    """Whether a writer of Spark's own could have made the file at a path relative to the folder, or Hadoop its checksum."""
    *folders, name = path.split("/")
    in_partitions = [folder.partition("=")[0] for folder in folders] == list(partition_by)
    return in_partitions and _PART.match(name.removeprefix(".")) is not None


def _require_written_as(store: OutputStore, file: FormerFile, file_format: FileFormat) -> None:
    if file_format.spark_name not in file.path.rpartition("/")[2].split(".")[1:]:
        raise OutputUnfit(
            f"{store.location}/{file.path} is no {file_format} file by its name. No reader could read both together; set "
            "format to what the query had."
        )


def _require_interval(store: OutputStore) -> None:
    """Require that the log is put together as the stream continues it: with every tenth batch, which is Spark's default."""
    compacted = [entry.name for entry in store.list(FOLDER) if entry.name.endswith(".compact")]
    other = [name for name in compacted if (number := batch_of(name)) is not None and not is_compaction(number)]
    if other:
        raise OutputUnfit(
            f"{store.location}/{FOLDER} was put together at other batches than every tenth ({sorted(other)[0]}): the query had "
            "another spark.sql.streaming.fileSink.log.compactInterval. A stream continues a log with the default alone; start "
            "it with an empty path, and let readers read both."
        )


def _file_of(told: Any) -> tuple[str, int, str]:
    return str(told["path"]), int(told["size"]), str(told.get("action", _ADDED))
