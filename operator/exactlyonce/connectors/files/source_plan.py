"""What the next batch of a folder reads, by what the folder holds and what has been read. Performs no I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from exactlyonce.connectors.files.source_position import LEFT_OUT, SourceFile
from exactlyonce.errors import Refused

_SHOWN = 5


class FileChanged(Refused):
    """A file is not as it was when it was listed, so what was planned cannot be read, or what was added was never read."""


@dataclass(frozen=True, slots=True)
class FileLimit:
    """How much a batch may take; a single file may be more. Records are limited only where a batch was too large."""

    files: int
    size_bytes: int
    records: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What of a folder has not landed: how many files, their bytes as they are stored, when the oldest was last written to."""

    files: int
    size_bytes: int
    oldest_milliseconds: int | None


@dataclass(frozen=True, slots=True)
class Told:
    """What a planner tells of its folder: what has not landed, and what of it is left once the planned batch has landed.

    `until` is where that batch ends; both are None where none is planned yet.
    """

    waiting: Waiting
    left: Waiting | None = None
    until: int | None = None


def waiting(files: Collection[SourceFile]) -> Waiting:
    """Return what files that have not landed come to."""
    oldest = min((file.modified_milliseconds for file in files), default=None)
    return Waiting(len(files), sum(file.size_bytes for file in files), oldest)


def unread(folder: str, listed: Iterable[SourceFile], read: Mapping[str, SourceFile]) -> tuple[SourceFile, ...]:
    """Return the files that have not been read, the oldest first. Files that have been read may have gone since.

    Raises:
        FileChanged: if one was written to after it had been read: Spark's own source passes over it without a word.
    """
    found: list[SourceFile] = []
    changed: list[str] = []
    for file in listed:
        known = read.get(file.path)
        if known is None:
            found.append(file)
        elif not file.is_still(known):
            changed.append(difference(known, file))
    if changed:
        raise FileChanged(
            f"{a_few_of(changed)} in {folder} changed after they had been read, and what is new in them was not. Put what is "
            "new into files of other names, and remove these: a file that has landed may go."
        )
    return tuple(sorted(found, key=lambda file: file.order))


def left_out_before(files: Iterable[SourceFile], milliseconds: int) -> tuple[SourceFile, ...]:
    """Return the files that were last written to before a moment, as they are written down to be left out."""
    older = sorted((file for file in files if file.modified_milliseconds < milliseconds), key=lambda file: file.order)
    return tuple(SourceFile(file.path, file.size_bytes, file.modified_milliseconds, LEFT_OUT) for file in older)


def settled(files: Iterable[SourceFile], until_milliseconds: float) -> tuple[SourceFile, ...]:
    """Return the files that were last written to by a moment: a younger one may still be written."""
    return tuple(file for file in files if file.modified_milliseconds <= until_milliseconds)


def cut(
    files: Iterable[SourceFile], limit: FileLimit, records_in: Callable[[SourceFile], int], *, latest_first: bool
) -> tuple[SourceFile, ...]:
    """Return the files of the next batch: as many as the limit allows, and at least one of those given.

    `records_in` counts the records of a file, and is asked only where they are limited.
    """
    taken: list[SourceFile] = []
    size = records = 0
    for file in sorted(files, key=lambda file: file.order, reverse=latest_first):
        size += file.size_bytes
        records += 0 if limit.records is None else records_in(file)
        too_many = limit.records is not None and records > limit.records
        if taken and (len(taken) == limit.files or size > limit.size_bytes or too_many):
            break
        taken.append(file)
    return tuple(taken)


def late(files: Iterable[SourceFile], newest_read_milliseconds: int) -> tuple[SourceFile, ...]:
    """Return the files that are older than one that has been read: they came with an old time."""
    return tuple(file for file in files if file.modified_milliseconds < newest_read_milliseconds)


def difference(known: SourceFile, found: SourceFile) -> str:
    """Return how a file differs from what it was, in words."""
    if known.is_left_out:
        return f"{known.path} (left out at the start, and written to since)"
    if known.size_bytes != found.size_bytes:
        return f"{known.path} ({found.size_bytes} bytes, was {known.size_bytes})"
    return f"{known.path} (of {found.size_bytes} bytes as before, but written to since)"


def names(files: Iterable[SourceFile]) -> str:
    """Return the paths of files in words, not more than a few."""
    return a_few_of([file.path for file in files])


def a_few_of(told: list[str]) -> str:
    """Return what is told of files, of not more than a few, and how many more there are."""
    more = len(told) - _SHOWN
    return ", ".join(told[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
