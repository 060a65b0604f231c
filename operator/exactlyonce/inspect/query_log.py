"""What the offset log and the commit log say of each batch. Performs no I/O.

Every version since Spark 2.1 is read. 2.1 has no commit log, and no settings in its offset log; from 2.4 on a commit names the
next batch's watermark. Source: OffsetSeqLog and CommitLog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.checkpoint import checksums, files
from exactlyonce.checkpoint.state import Damage
from exactlyonce.inspect.facts import Listed, Log, Oddity
from exactlyonce.positions.ranges import BatchNumber

COMMIT_VERSIONS = (1, 2, 3)
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Planned:
    """`offsets/N`: an entry for each source, None where it has no offset; `names` are those of version 2."""

    version: int
    ends: tuple[str | None, ...]
    names: tuple[str, ...] = ()
    planned_milliseconds: int | None = None
    watermark_milliseconds: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """`commits/N`."""

    version: int
    next_watermark_milliseconds: int | None = None


def read_planned(log: Log) -> tuple[dict[BatchNumber, Planned], dict[BatchNumber, Oddity]]:
    """Return what the files of `offsets/` say that were read, and what is wrong with the others."""
    return _read("offsets", log, _planned)


def read_committed(log: Log) -> tuple[dict[BatchNumber, Committed], dict[BatchNumber, Oddity]]:
    """Return what the files of `commits/` say that were read, and what is wrong with the others."""
    return _read("commits", log, _committed)


def _read(
    folder: str, log: Log, parsed: Callable[[bytes], Entry]
) -> tuple[dict[BatchNumber, Entry], dict[BatchNumber, Oddity]]:
    entries: dict[BatchNumber, Entry] = {}
    wrong: dict[BatchNumber, Oddity] = {}
    for file in log.files:
        if file.content is not None:
            try:
                entries[file.number] = parsed(file.content)
            except ValueError as problem:
                wrong[file.number] = _damage(folder, file, problem)
    return entries, {**wrong, **_altered(folder, log)}


def _planned(content: bytes) -> Planned:
    found = files.parse_offsets(content)
    lines = content.decode().split("\n")
    metadata = parse_json(lines[1])
    names = tuple(line.partition(":")[0] for line in lines[2:]) if found.version > 1 else ()
    return Planned(
        found.version,
        found.ends,
        names,
        found.planned_milliseconds,
        files.milliseconds_of(metadata.get("batchWatermarkMs")),
        found.conf,
    )


def _committed(content: bytes) -> Committed:
    lines = files.text_of(content).split("\n", 2)
    version = files.version_of(lines[0], COMMIT_VERSIONS, "commit log")
    if len(lines) < 2 or not lines[1]:
        raise files.FileTorn("its metadata line is missing")
    try:
        metadata = parse_json(lines[1])
    except JsonRefused as problem:
        raise files.FileTorn(f"{lines[1][:40]!r} is {problem}") from problem
    if not isinstance(metadata, dict):
        raise files.FileTorn(f"{lines[1][:40]!r} is not a JSON object")
    return Committed(version, files.milliseconds_of(metadata.get("nextBatchWatermarkMs")))


def _altered(log: str, found: Log) -> dict[BatchNumber, Oddity]:
    return {
        file.number: Oddity(
            Damage.CHECKSUM_MISMATCH, f"{log}/{file.name}: its content is not what .{file.name}.crc was made from"
        )
        for file in found.files
        if file.content and file.checksums is not None and checksums.contradict(file.checksums, file.content)
    }


def _damage(log: str, file: Listed, problem: ValueError) -> Oddity:
    kinds: dict[type[ValueError], Damage] = {
        files.FileEmpty: Damage.FILE_EMPTY,
        files.VersionUnsupported: Damage.VERSION_UNSUPPORTED,
    }
    return Oddity(kinds.get(type(problem), Damage.FILE_TORN), f"{log}/{file.name}: {problem}")
