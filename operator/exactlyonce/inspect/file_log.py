"""Spark's logs of files, which are put together every few batches: `sources/N` of a file source, `_spark_metadata` of a sink.

Performs no I/O. Source: CompactibleFileStreamLog, FileStreamSourceLog and FileStreamSinkLog of Spark 4.2.0;
tests/integration/test_file_query_restarts.py starts Spark on each state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from exactlyonce.bounded_json import MALFORMED, JsonRefused, parse_json
from exactlyonce.checkpoint import checksums, files
from exactlyonce.inspect.facts import Listed, Log, Oddity
from exactlyonce.positions.ranges import BatchNumber

SUFFIX = ".compact"
DEFAULT_INTERVAL = 10
"""spark.sql.streaming.fileSource.log.compactInterval and that of fileSink."""

VERSIONS = (1,)


class FileLogDamage(StrEnum):
    """What is wrong with a log of files."""

    COMPACT_FILE_MISSING = "CompactFileMissing"
    ENTRY_MISSING = "EntryMissing"
    ENTRY_EMPTY = "EntryEmpty"
    ENTRY_TORN = "EntryTorn"
    ENTRY_ALTERED = "EntryAltered"
    VERSION_UNSUPPORTED = "LogVersionUnsupported"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A line of a log: a file that a batch read or wrote. Only a source's lines name their batch and a sink's a size."""

    path: str
    batch: BatchNumber | None
    size_bytes: int | None
    modified_milliseconds: int | None
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class FileLog:
    """A log of files: what each of its files says, those that Spark reads to know all of it, and what is wrong with these."""

    folder: str
    latest: BatchNumber | None
    interval: int
    entries: Mapping[BatchNumber, tuple[FileEntry, ...]]
    needed: tuple[BatchNumber, ...]
    damage: tuple[Oddity, ...]
    damaged: tuple[BatchNumber, ...]

    @property
    def next_compaction(self) -> int:
        """The next batch that Spark puts the log together at."""
        after = 0 if self.latest is None else self.latest + 1
        return after + (self.interval - 1 - after % self.interval)

    def all_entries(self) -> tuple[FileEntry, ...]:
        """Return every line of the files that Spark reads and that are whole, without those that another line deletes."""
        found = [entry for number in self.needed for entry in self.entries.get(number, ())]
        deleted = {entry.path for entry in found if entry.is_deleted}
        return tuple(entry for entry in found if not entry.is_deleted and entry.path not in deleted)

    def of_batches(self, after: int, until: int) -> tuple[FileEntry, ...] | None:
        """Return the files of a source's entries after one number up to another; None where an entry is not readable.

        A compact file holds every line before it too, each with its batch.
        """
        found: list[FileEntry] = []
        for number in range(after + 1, until + 1):
            holder = self._holder_of(number)
            if holder is None:
                return None
            found += [entry for entry in self.entries[holder] if entry.batch in (None, number)]
        return tuple(found)

    def _holder_of(self, number: int) -> BatchNumber | None:
        if number in self.entries:
            return BatchNumber(number)
        return next((held for held in sorted(self.entries) if held > number and is_compact(held, self.interval)), None)


def is_compact(number: int, interval: int) -> bool:
    """Return whether the file of this batch holds the lines of all before it."""
    return (number + 1) % interval == 0


def number_of_name(name: str) -> BatchNumber | None:
    """Return the batch of a log file, or None for a file that Spark does not list."""
    digits = name.removesuffix(SUFFIX)
    return BatchNumber(int(digits)) if digits.isascii() and digits.isdigit() else None


def interval_of(log: Log) -> int:
    """Return after how many batches the log is put together, as Spark derives it from the compact files that are there.

    Source: CompactibleFileStreamLog.compactInterval and deriveCompactInterval.
    """
    compact = sorted((file.number for file in log.files if file.name.endswith(SUFFIX)), reverse=True)
    if len(compact) > 1:
        return compact[0] - compact[1]
    if not compact:
        return DEFAULT_INTERVAL
    behind = compact[0] + 1
    if behind <= DEFAULT_INTERVAL:
        return behind
    candidates = range(DEFAULT_INTERVAL, behind // 2 + 1)
    return next((interval for interval in candidates if behind % interval == 0), behind)


def needed_files(latest: BatchNumber | None, interval: int) -> tuple[BatchNumber, ...]:
    """Return the batches whose files Spark reads to know all lines. Source: getAllValidBatches."""
    if latest is None:
        return ()
    first = max(0, (latest + 1) // interval * interval - 1)
    return tuple(BatchNumber(number) for number in range(first, latest + 1))


def read_log(folder: str, log: Log) -> FileLog:
    """Return what a log of files says and what is wrong with it; `folder` is how its files are called in sentences."""
    interval = interval_of(log)
    needed = needed_files(log.latest, interval)
    entries: dict[BatchNumber, tuple[FileEntry, ...]] = {}
    damage: list[Oddity] = []
    damaged: list[BatchNumber] = []
    by_number = {file.number: file for file in log.files}
    for number, file in by_number.items():
        if file.content is not None:
            found = _parsed(folder, file)
            if not isinstance(found, Oddity):
                entries[number] = found
            elif number in needed:
                damage.append(found)
                damaged.append(number)
    for number, name in _missing(needed, interval, {file.name for file in log.files}):
        kind = FileLogDamage.COMPACT_FILE_MISSING if name.endswith(SUFFIX) else FileLogDamage.ENTRY_MISSING
        what = "which holds the lines of all batches up to it, " if name.endswith(SUFFIX) else ""
        damage.append(Oddity(kind, f"{folder}/{name}, {what}is missing, and {folder} continues to {log.latest}"))
        damaged.append(number)
        entries.pop(number, None)
    return FileLog(folder, log.latest, interval, entries, needed, tuple(damage), tuple(sorted(damaged)))


def _missing(needed: tuple[BatchNumber, ...], interval: int, names: set[str]) -> Iterator[tuple[BatchNumber, str]]:
    for number in needed:
        name = f"{number}{SUFFIX}" if is_compact(number, interval) else str(number)
        if name not in names:
            yield number, name


def _parsed(folder: str, file: Listed) -> tuple[FileEntry, ...] | Oddity:
    where, content = f"{folder}/{file.name}", file.content or b""
    if file.checksums is not None and checksums.contradict(file.checksums, content):
        return Oddity(FileLogDamage.ENTRY_ALTERED, f"{where} is not what .{file.name}.crc was made from")
    try:
        version, *lines = files.text_of(content).split("\n")
        files.version_of(version, VERSIONS, "file log")
        return tuple(_entry(line) for line in lines if line)
    except files.FileEmpty as problem:
        return Oddity(FileLogDamage.ENTRY_EMPTY, f"{where}: {problem}")
    except files.VersionUnsupported as problem:
        return Oddity(FileLogDamage.VERSION_UNSUPPORTED, f"{where}: {problem}")
    except files.FileTorn as problem:
        return Oddity(FileLogDamage.ENTRY_TORN, f"{where}: {problem}")


def _entry(line: str) -> FileEntry:
    try:
        found = parse_json(line)
        modified = found.get("modificationTime", found.get("timestamp"))
        return FileEntry(
            path=str(found["path"]),
            batch=BatchNumber(int(found["batchId"])) if "batchId" in found else None,
            size_bytes=int(found["size"]) if "size" in found else None,
            modified_milliseconds=None if modified is None else int(modified),
            is_deleted=found.get("action") == "delete",
        )
    except (JsonRefused, *MALFORMED) as problem:
        raise files.FileTorn(f"its line {line[:40]!r} is not whole") from problem
