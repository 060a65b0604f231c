"""A simulated folder on S3: files come, are written to, vanish and are put back; each call is a step in which others may run.

The product's own `S3Folder` asks it. It keeps every version that a file ever had, which is what the oracle counts by.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from exactlyonce.checkpoint.s3_versions import ObjectVersion, OtherVersion
from exactlyonce.checkpoint.store import FileMissing
from exactlyonce.connectors.files.source_codec import CODEC
from exactlyonce.connectors.files.source_position import SourceFile
from exactlyonce.connectors.files.source_spec import KEY
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID
from exactlyonce.positions.ranges import Partition
from tests.simulation.source import Record

FOLDER = "/incoming"
PARTITION = Partition(FOLDER, KEY)


@dataclass(frozen=True)
class Version:
    """What a file held at one time. `tag` is another one with each content, as an ETag is; a line is a record."""

    path: str
    records: tuple[Record, ...]
    modified_milliseconds: int
    tag: str

    @property
    def content(self) -> bytes:
        """Lines of equal length, so that other records of the same number have the same size."""
        return b"".join(f"{record[2]:06d}\n".encode() for record in self.records)

    @property
    def listed(self) -> SourceFile:
        """The file as a list has it."""
        return SourceFile(self.path, len(self.content), self.modified_milliseconds, self.tag)


@dataclass
class SimulatedBucket:
    """One folder. `version` grows with everything that happens to it, so that a query that waits knows of news.

    `taken` is told of each file that the product takes away, before it goes.
    """

    step: Callable[[str], None] = lambda label: None
    taken: Callable[[Version], None] = lambda version: None
    held: dict[str, Version] = field(default_factory=dict)
    former: dict[Partition, set[int]] = field(default_factory=dict)
    history: dict[str, list[Version]] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    up: bool = True
    version: int = 0

    location = FOLDER
    address = FOLDER
    codec = CODEC
    has_ids = False

    # What the model of topics has as well: the world, its hazards and the oracle ask by the number of records.

    @property
    def ends(self) -> dict[Partition, int]:
        """How many records were ever written."""
        return {PARTITION: len(self.records)}

    def record(self, key: Partition, number: int) -> Record:
        """Return a record by its number."""
        return ("record", 0, number)

    def earliest(self, key: Partition) -> int:
        """Nothing expires."""
        return 0

    def id_of(self, origin: str) -> str:
        """A folder has no id."""
        return ZERO_ORIGIN_ID

    # What happens to files.

    def put(self, path: str, records: Sequence[Record], milliseconds: int) -> Version:
        """Write a file, or write over one."""
        before = self.history.setdefault(path, [])
        version = Version(path, tuple(records), milliseconds, f"{path}@{len(before) + 1}")
        before.append(version)
        self.held[path] = version
        self.version += 1
        return version

    def made(self, count: int) -> list[Record]:
        """Return so many records that have never been written anywhere."""
        first = len(self.records)
        self.records += [("record", 0, first + number) for number in range(count)]
        return self.records[first:]

    def vanish(self, path: str) -> None:
        """Let somebody remove a file."""
        del self.held[path]
        self.version += 1

    def put_back(self, version: Version) -> None:
        """Let somebody restore a former version, with the time that it had."""
        self.held[version.path] = version
        self.version += 1

    # What the product asks: `S3Versions`.

    def versions(self, *, recursive: bool) -> Iterator[ObjectVersion]:
        """Yield what there is; a page has two files, so that a list may have some of the former and some of the later files."""
        self._request("list the folder")
        paths = sorted(self.held)
        for number, path in enumerate(paths):
            if number and number % 2 == 0:
                self._request("list more of the folder")
            held = self.held.get(path)
            if held is not None:
                yield ObjectVersion(path, len(held.content), held.modified_milliseconds, held.tag)

    @contextmanager
    def reading(self, path: str, tag: str | None) -> Iterator[BinaryIO]:
        """Open an object on the condition of its tag; None asks for whatever there is."""
        self._request(f"read {path}")
        held = self.held.get(path)
        if held is None:
            raise FileMissing(path)
        if tag is not None and held.tag != tag:
            raise OtherVersion(path)
        yield cast("BinaryIO", io.BytesIO(held.content))

    def delete_listed(self, objects: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Remove objects that have the tags that are given."""
        stay = []
        for path, tag in objects:
            self._request(f"remove {path}")
            held = self.held.get(path)
            if held is None or held.tag != tag:
                stay.append(path)
                continue
            self.taken(held)
            self.vanish(path)
        return tuple(stay)

    def _request(self, what: str) -> None:
        self.step(what)
        if not self.up:
            raise StoreUnreachable("the bucket does not answer")
