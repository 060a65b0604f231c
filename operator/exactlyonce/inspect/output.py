"""An output folder of Spark's file sink: what its log shows readers, and what in the folder does not fit. Performs no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from exactlyonce.inspect.facts import Oddity, OutputFacts
from exactlyonce.inspect.file_log import FileEntry, FileLog, read_log
from exactlyonce.positions.ranges import BatchNumber

FOLDER = "_spark_metadata"
MARKER = "_exactlyonce/stream.json"
"""What a stream of this operator writes first to a folder that becomes its own."""


class OutputOddity(StrEnum):
    """What may be odd about an output folder, besides damage of its log."""

    PART_FILE_MISSING = "PartFileMissing"
    PART_FILE_ALTERED = "PartFileOfAnotherSize"
    NAMES_ELSEWHERE = "LogNamesAnotherFolder"
    ORPHANS = "PartFilesOfNoEntry"


@dataclass(frozen=True, slots=True)
class Output:
    """What a log shows.

    Paths are relative to the folder; `orphans` is None where the files or the whole log are not known.
    """

    location: str
    log: FileLog
    shown: tuple[FileEntry, ...]
    orphans: tuple[str, ...] | None
    missing: tuple[str, ...]
    oddities: tuple[Oddity, ...]
    is_of_stream: bool | None
    """Whether a stream of this operator writes here; None where the files are not known."""

    @property
    def is_whole(self) -> bool:
        """Whether Spark's readers can read the log."""
        return not self.log.damage


def read_output(facts: OutputFacts) -> Output:
    """Return what an output folder's log shows and what does not fit."""
    log = read_log(FOLDER, facts.log)
    shown = log.all_entries()
    named = {entry.path: relative_to(facts.location, entry.path) for entry in shown}
    elsewhere = sorted(path for path, own in named.items() if own is None)
    own = {path for path in named.values() if path is not None}
    missing: tuple[str, ...] = ()
    orphans: tuple[str, ...] | None = None
    if facts.files is not None:
        missing = tuple(sorted(own - facts.files.keys()))
        data = {path for path in facts.files if is_data(path)}
        if not log.damage and not elsewhere:
            orphans = tuple(sorted(data - own))
    oddities = [*log.damage, *_oddities(facts, shown, elsewhere, missing, orphans)]
    is_of_stream = None if facts.files is None else MARKER in facts.files
    return Output(facts.location, log, shown, orphans, missing, tuple(oddities), is_of_stream)


def is_data(path: str) -> bool:
    """Return whether a reader of files would take it for data: no part of its path begins with `_` or `.`."""
    return not any(part.startswith(("_", ".")) for part in path.split("/"))


def relative_to(location: str, address: str) -> str | None:
    """Return where a file is below a folder, or None if it is elsewhere; the log has URIs, percent-encoded."""
    path, folder = _plain(address), _plain(location).rstrip("/") + "/"
    return path.removeprefix(folder) if path.startswith(folder) else None


def files_of_batch(log: FileLog, number: BatchNumber) -> tuple[FileEntry, ...] | None:
    """Return what a batch wrote; None where only a compact file tells it, among the files of others."""
    if (number + 1) % log.interval == 0:
        return None
    return log.entries.get(number)


def _plain(address: str) -> str:
    scheme, colon, rest = address.partition(":/")
    if not colon or "/" in scheme:
        return address
    path = "/" + unquote(rest).lstrip("/")
    return path if scheme == "file" else f"{scheme.replace('s3n', 's3a').replace('s3a', 's3')}:/{path}"


def _oddities(
    facts: OutputFacts,
    shown: tuple[FileEntry, ...],
    elsewhere: list[str],
    missing: tuple[str, ...],
    orphans: tuple[str, ...] | None,
) -> Iterator[Oddity]:
    if elsewhere:
        words = (
            f"{FOLDER} names {len(elsewhere)} files elsewhere, such as {elsewhere[0]}: the folder was moved or copied"
        )
        yield Oddity(OutputOddity.NAMES_ELSEWHERE, words)
    if missing:
        words = f"{len(missing)} files that {FOLDER} names are not there, such as {missing[0]}: readers fail on them"
        yield Oddity(OutputOddity.PART_FILE_MISSING, words)
    sizes = facts.files or {}
    for entry in shown:
        path = relative_to(facts.location, entry.path)
        size = None if path is None else sizes.get(path)
        if size is not None and entry.size_bytes is not None and size != entry.size_bytes:
            words = f"{path} has {size} bytes, and {FOLDER} says {entry.size_bytes}"
            yield Oddity(OutputOddity.PART_FILE_ALTERED, words)
    if orphans:
        words = (
            f"{len(orphans)} files are in no entry, such as {orphans[0]}: readers with Spark do not see them, and anything "
            "that reads the folder itself does"
        )
        yield Oddity(OutputOddity.ORPHANS, words)
