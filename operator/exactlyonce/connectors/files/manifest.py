"""The manifest of a batch: the data files that it landed, as the ledger records them. Performs no I/O.

The entry of a batch is the only thing that makes its files count. What readers use (`_spark_metadata`) is
rendered from it and follows it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.errors import Refused
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.positions.spans import PositionSpan

VERSION = 1
"""The version of a manifest's form; one of any other is refused."""

WRITING = "_exactlyonce/writing"
"""Where attempts write, below the sink's path: no reader looks below a name that begins with an underscore."""

MARKER = "_exactlyonce/stream.json"
"""Says whose a folder is. Spark's readers leave out names that begin with an underscore."""

_WRITE = re.compile(r"([0-9]+)-([0-9]+)-([0-9a-f]{16})-([0-9a-f]{16})")
_OF_A_REPLAY = re.compile(r"replay-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{16})")


class ManifestUnreadable(Refused):
    """The ledger holds a manifest that this release cannot read."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes files: the driver of an epoch, in a life of its stream.

    A stream that was deleted, or whose ledger was lost, counts epochs and batches from the start again, so they alone do not
    say whose a file is. A life begins with the stream's row in the ledger and ends with its token: at the latest when the row
    is gone.
    """

    epoch: Epoch
    life: str

    @classmethod
    def of(cls, stream: StreamRow) -> Author:
        """Return the driver that has claimed a stream. Names of files are public."""
        return cls(stream.epoch, stream.life)


@dataclass(frozen=True, slots=True)
class Write:
    """One attempt to write the rows of a batch; its name is in the path of each file it makes.

    No two attempts share a name, not even two of one batch in one epoch, so no attempt ever touches another's files.
    """

    author: Author
    batch: BatchNumber
    random: str

    @classmethod
    def draw(cls, author: Author, batch: BatchNumber) -> Write:
        """Return a new attempt."""
        return cls(author, batch, secrets.token_hex(8))

    @property
    def name(self) -> str:
        """The name, such as 3-17-fedcba9876543210-0123456789abcdef: epoch, batch, life and the attempt's own number."""
        return f"{self.author.epoch}-{self.batch}-{self.author.life}-{self.random}"

    @classmethod
    def of_path(cls, path: str, partition_by: Sequence[str]) -> Write | None:
        """Return the attempt that made the file at a path relative to the sink's; None for a file that no attempt made.

        Its name begins the file's own name, in the folders of the stream's own partitions, or is that of the attempt's folder
        below WRITING.
        """
        found = _name_at(path, partition_by, _WRITE)
        if found is None:
            return None
        return cls(Author(Epoch(int(found[1])), found[3]), BatchNumber(int(found[2])), found[4])


@dataclass(frozen=True, slots=True)
class ReplayWrite:
    """One attempt of a replay to write the rows of a chunk. Its name has neither epoch nor batch: it is no driver's.

    `replay` is of the token under which the ranges are claimed. Once none is claimed by it, nothing of it can land any more.
    `batch` is the one of which the ranges are, for messages; it is not in the name.
    """

    life: str
    replay: str
    random: str
    batch: BatchNumber

    @classmethod
    def draw(cls, life: str, token: str, batch: BatchNumber) -> ReplayWrite:
        """Return a new attempt of the replay with this token."""
        return cls(life, digest_of(token), secrets.token_hex(8), batch)

    @property
    def name(self) -> str:
        """The name, such as replay-fedcba9876543210-0011223344556677-0123456789abcdef."""
        return f"replay-{self.life}-{self.replay}-{self.random}"

    @classmethod
    def of_path(cls, path: str, partition_by: Sequence[str]) -> ReplayWrite | None:
        """Return the attempt that made the file at a path, as `Write.of_path`; of which batch its ranges are is unknown: 0."""
        found = _name_at(path, partition_by, _OF_A_REPLAY)
        return None if found is None else cls(found[1], found[2], found[3], BatchNumber(0))


def digest_of(token: str) -> str:
    """Return what names of files have of a replay's token."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def _name_at(path: str, partition_by: Sequence[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    *folders, name = path.split("/")
    if path.startswith(f"{WRITING}/"):
        return pattern.fullmatch(path.removeprefix(f"{WRITING}/").split("/")[0])
    if len(folders) != len(partition_by) or not all(map(str.startswith, folders, (f"{it}=" for it in partition_by))):
        return None
    name = name.removeprefix(".")
    found = pattern.match(name)
    return found if found is not None and name[found.end() :][:1] == "-" else None


def life_of(path: str) -> str | None:
    """Return the life of the stream in which an attempt made the file at a path or a URI; None for a file without its name."""
    name = path.rpartition("/")[2]
    if (found := _WRITE.match(name)) is not None:
        return found[3]
    found = _OF_A_REPLAY.match(name)
    return None if found is None else found[1]


def is_of_replay(path: str) -> bool:
    """Whether a replay wrote the file at a path."""
    return _OF_A_REPLAY.match(path.rpartition("/")[2]) is not None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file: its path relative to the sink's path, and what it holds.

    `rows` is None where the format does not say it. `spans` are known where the rows carry positions and the file's own
    statistics give them. `schema` is the digest of its columns where they are others than those of its batch.
    """

    path: str
    size_bytes: int
    modified_milliseconds: int
    rows: int | None = None
    spans: tuple[PositionSpan, ...] = ()
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """Files whose rows have been in the file at `by` since that moment; who listed them before may still read them."""

    by: str
    since_milliseconds: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one batch landed. `rows` counts the rows of all files, and `schema` is the digest of their columns.

    A file that a compaction has merged belongs to the latest of the batches whose rows it holds. `replaced` are those files of
    which something may be left, and `merging` is the name of the attempt to merge files that may be under way.
    """

    batch: BatchNumber
    rows: int
    files: tuple[DataFile, ...]
    schema: str
    replaced: tuple[Replaced, ...] = ()
    merging: str | None = None

    def to_json(self) -> str:
        """Render it; equal manifests give equal texts."""
        document: dict[str, Any] = {
            "version": VERSION,
            "rows": self.rows,
            "schema": self.schema,
            "files": [_file_document(file) for file in self.files],
        }
        if self.replaced or self.merging is not None:
            told = [{"by": it.by, "since": it.since_milliseconds, "paths": list(it.paths)} for it in self.replaced]
            document |= {"replaced": told, "merging": self.merging}
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, batch: BatchNumber, text: str) -> Manifest:
        """Parse what `to_json` renders.

        Raises:
            ManifestUnreadable: if it is anything else.
        """
        try:
            document = json.loads(text)
            version = _whole(document, "version")
            if version != VERSION:
                raise ManifestUnreadable(
                    f"The manifest of batch {batch} has version {version}, and this release reads version {VERSION}; use the "
                    "release that wrote it."
                )
            files = tuple(_file_from(file) for file in _list(document, "files"))
            found = cls(batch, _whole(document, "rows"), files, _text(document, "schema"))
            if "replaced" not in document:
                return found  # nothing was merged
            replaced = tuple(_replaced_from(it) for it in _list(document, "replaced"))
            merging = None if _value(document, "merging") is None else _text(document, "merging")
            return replace(found, replaced=replaced, merging=merging)
        except (ValueError, RecursionError) as problem:
            raise ManifestUnreadable(
                f"The manifest of batch {batch} in the ledger cannot be read ({problem}); restore it from a backup."
            ) from problem


def _file_document(file: DataFile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "path": file.path,
        "size": file.size_bytes,
        "modified": file.modified_milliseconds,
        "rows": file.rows,
    }
    if file.spans:
        document["spans"] = [[span.origin, span.partition, span.first, span.last] for span in file.spans]
    if file.schema is not None:
        document["schema"] = file.schema
    return document


def _replaced_from(document: Any) -> Replaced:
    paths = tuple(_path(path) for path in _list(document, "paths"))
    return Replaced(_path(_text(document, "by")), _whole(document, "since"), paths)


def _path(found: Any) -> str:
    if not isinstance(found, str) or {"", ".", ".."} & set(found.split("/")):
        raise ValueError(f"{found!r} is not a path below the sink's")
    return found


def _file_from(document: Any) -> DataFile:
    path = _path(_text(document, "path"))
    rows = None if _value(document, "rows") is None else _whole(document, "rows")
    spans = tuple(_span_from(span) for span in (_list(document, "spans") if "spans" in document else ()))
    schema = _text(document, "schema") if "schema" in document else None
    return DataFile(path, _whole(document, "size"), _whole(document, "modified"), rows, spans, schema)


def _span_from(found: Any) -> PositionSpan:
    match found:
        case [str(origin), int(partition) | str(partition), int(first), int(last)] if first <= last:
            return PositionSpan(origin, partition, first, last)
        case _:
            raise ValueError(f"{found!r} is not a span of positions")


def _value(document: Any, name: str) -> Any:
    if not isinstance(document, dict) or name not in document:
        raise ValueError(f"{name} is missing")
    return document[name]


def _text(document: Any, name: str) -> str:
    match _value(document, name):
        case str(found):
            return found
        case _:
            raise ValueError(f"{name} is not a string")


def _whole(document: Any, name: str) -> int:
    match _value(document, name):
        case int(found) if not isinstance(found, bool) and found >= 0:
            return found
        case _:
            raise ValueError(f"{name} is not a whole number from 0 on")


def _list(document: Any, name: str) -> list[Any]:
    match _value(document, name):
        case [*found]:
            return found
        case _:
            raise ValueError(f"{name} is not a list")
