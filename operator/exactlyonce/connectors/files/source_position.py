"""How far a folder has been read, as one integer: how many files, and which. Performs no I/O.

A position is the number of files that have been read, shifted by 224 bits, and a digest of these files below it. The digest of
n files is made of that of the first n - 1 and of the last one's name, size and time. So positions are ordered as they were
reached, and one stands for exactly one sequence of files: whoever knows a position can tell whether a list is the right one
(docs/adr/0042).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from exactlyonce.positions.ranges import PARTITION_END

DIGEST_BITS = 224
_DIGEST_BYTES = DIGEST_BITS // 8
_DIGEST_DIGITS = DIGEST_BITS // 4
_SHOWN_DIGITS = 8

MOST_FILES = (1 << 63) - 1
"""With more, a position would not be below `PARTITION_END`, which has 288 bits."""

NOTHING_READ = 0
"""The position in front of the first file."""

LEFT_OUT = "left out"
"""The version of a file that a position counts and that the stream never reads: no storage has such a one."""

_TEXT = re.compile(rf"0|[1-9][0-9]{{0,18}}:[0-9a-f]{{{_DIGEST_DIGITS}}}")


class MalformedPosition(ValueError):
    """A text is not a position in a folder."""


@dataclass(frozen=True, slots=True)
class FilesRead:
    """What a position says: how many files have been read, and the digest of which."""

    count: int
    digest: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as it was listed: its path below the folder, and what changes when it is written to.

    `version` is whatever else the storage tells of its content: nanoseconds of the modification time on a disk.
    """

    path: str
    size_bytes: int
    modified_milliseconds: int
    version: str = ""

    @property
    def order(self) -> tuple[int, str]:
        """What files are read by: the oldest first, and of equal ones by their paths."""
        return self.modified_milliseconds, self.path

    @property
    def is_left_out(self) -> bool:
        """Whether it is counted and never read."""
        return self.version == LEFT_OUT

    def is_still(self, known: SourceFile) -> bool:
        """Whether it is what is known of it: of a file that was left out, the time alone is."""
        if known.is_left_out:
            return self.modified_milliseconds == known.modified_milliseconds
        return self == known

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.path).name


def read_from(position: int) -> FilesRead:
    """Return what a position says."""
    return FilesRead(position >> DIGEST_BITS, position & ((1 << DIGEST_BITS) - 1))


def count_of(position: int) -> int:
    """Return how many files have been read."""
    return position >> DIGEST_BITS


def after(position: int, files: Iterable[SourceFile]) -> int:
    """Return the position behind these files, read in this order from a position on."""
    read = read_from(position)
    count, state = read.count, read.digest.to_bytes(_DIGEST_BYTES)
    for file in files:
        entry = json.dumps([file.path, file.size_bytes, file.modified_milliseconds, file.version])
        state = hashlib.sha256(state + entry.encode()).digest()[:_DIGEST_BYTES]
        count += 1
    assert count <= MOST_FILES, "no stream reads 9 quintillion files"
    return (count << DIGEST_BITS) | int.from_bytes(state)


def to_text(position: int) -> str:
    """Return a position as a person reads it: `0`, or the number of files and the digest, `12:9f3a…`."""
    if position == NOTHING_READ:
        return "0"
    read = read_from(position)
    return f"{read.count}:{read.digest:0{_DIGEST_DIGITS}x}"


def shown(position: int) -> str:
    """Return a position in words: the number of files, and as much of the digest as tells two positions apart at a glance."""
    if position == PARTITION_END:
        return "its end"
    return "0" if position == NOTHING_READ else f"{to_text(position)[: -_DIGEST_DIGITS + _SHOWN_DIGITS]}…"


def from_text(text: str) -> int:
    """Return the position that a text stands for; each has one text.

    Raises:
        MalformedPosition: if the text is not a position.
    """
    if _TEXT.fullmatch(text) is None:
        raise MalformedPosition(
            f"{text[:90]!r} is not a position in a folder: 0, or <files read>:<{_DIGEST_DIGITS} hexadecimal digits>"
        )
    if text == "0":
        return NOTHING_READ
    count, _, digest = text.partition(":")
    if int(count) > MOST_FILES:
        raise MalformedPosition(f"{text[:90]!r} counts more files than any folder has")
    return (int(count) << DIGEST_BITS) | int(digest, 16)
