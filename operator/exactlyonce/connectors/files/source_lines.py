"""Which files of a folder are read, and the lines of one, wherever the folder is."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import BinaryIO, NamedTuple, cast

from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.errors import ExactlyOnceError, Refused

MOST_LINE_BYTES = 64 * 1024 * 1024
"""No line is longer: a task holds one several times over."""

_GZIP = ".gz"

PLAN_AGAIN = (
    "Nothing of its batch has landed: put the file back as it was, or change maxFilesPerTrigger of the source, and the batch "
    "is planned again with the files as they are."
)
"""The ways out for a file that is not what its batch was planned with."""

_IF_IT_STAYS_AWAY = (
    "If the file stays away, the next driver names the list to remove, so that nobody misses its records unseen."
)


def without_ways_out(words: str) -> str:
    """Return what is wrong with a file without what helps its batch: a replay of it has other ways out."""
    return words.replace(_IF_IT_STAYS_AWAY, "").replace(PLAN_AGAIN, "").strip()


class FileVanished(Refused):
    """A file that a batch was planned with is gone."""


class NameUnreadable(Refused):
    """A file has a name that is not UTF-8."""


class FileUnreadable(ExactlyOnceError):
    """What is in a file cannot be read: its batch fails, and counts as failed, so that it can be put into quarantine."""


class Line(NamedTuple):
    """One line of a file, without its end; lines are numbered from 1 on."""

    number: int
    value: bytes


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Which files are read, by their paths below the folder: those whose last part fits, at any depth if `recursive`."""

    file_names: str = "*"
    recursive: bool = False

    def fits(self, path: str) -> bool:
        """Whether a file is read. Hidden ones, `.name` and `_name`, are left out, and what is in such folders, as by Spark.

        Source: HadoopFSUtils.shouldFilterOutPathName.
        """
        parts = path.split("/")
        if len(parts) > 1 and not self.recursive:
            return False
        return not any(is_hidden(part) for part in parts) and fnmatchcase(parts[-1], self.file_names)


def is_hidden(name: str) -> bool:
    """Whether a file or a folder of this name is left out."""
    return name.startswith((".", "_"))


def lines_of(named: str, name: str, opened: BinaryIO) -> Iterator[Line]:
    """Yield the lines of an open file. A name that ends with `.gz` means gzip.

    The last line counts whether or not a line break ends it. `named` is what the file is called in sentences.

    Raises:
        FileUnreadable: if it is not gzip, or a line is too long.
    """
    plain = cast("BinaryIO", gzip.GzipFile(fileobj=opened)) if name.endswith(_GZIP) else opened
    number = 0
    try:
        while line := plain.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(line) > MOST_LINE_BYTES:
                raise FileUnreadable(
                    f"Line {number} of {named} has more than {MOST_LINE_BYTES} bytes; it is not a file of lines. Leave it out "
                    f"by fileNames. {PLAN_AGAIN}"
                )
            yield Line(number, line.removesuffix(b"\n").removesuffix(b"\r"))
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise FileUnreadable(
            f"{named} is not a whole gzip file ({problem}); replace it by a whole one of another name. {PLAN_AGAIN}"
        ) from problem


def vanished(named: str) -> FileVanished:
    """Return the error for a file that was planned into a batch and is gone."""
    return FileVanished(f"{named} was planned into a batch and is gone. {PLAN_AGAIN} {_IF_IT_STAYS_AWAY}")


def changed(told: str) -> FileChanged:
    """Return the error for a file that is no longer the one that was planned; `told` names it and how it differs."""
    return FileChanged(f"{told} was written to after it had been planned into a batch. {PLAN_AGAIN}")
