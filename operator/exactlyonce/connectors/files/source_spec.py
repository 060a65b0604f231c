"""What a stream says of a folder whose files it reads: which files, and how many at a time."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from exactlyonce.connectors.files.source_position import count_of, shown
from exactlyonce.connectors.files.source_rules import STREAM_RULES, apart_cel, are_apart, plain_cel
from exactlyonce.connectors.files.source_start import FolderStart, SourcePath
from exactlyonce.connectors.specs import Origins
from exactlyonce.positions.ranges import Partition, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Duration, Flag, Model, SecretRef, Whole, within
from exactlyonce.schema.places import (
    S3_PREFIX,
    S3_SECRET_KEYS,
    PathStyle,
    S3Endpoint,
    S3Place,
    S3Region,
    is_on_s3,
    only_on_s3,
    place_on_s3,
    plain_path,
)

KEY = 0
"""A folder is one partition: its files are read one after another."""

DEFAULT_BATCH_FILES = 1000
"""The most files of a batch where the resource sets no limit."""

DEFAULT_BATCH_BYTES = 1024 * 1024 * 1024
"""The most bytes of a batch where the resource sets no limit."""

FileNames = Annotated[
    str,
    Field(min_length=1, max_length=200),
    matches(r"[A-Za-z0-9!_.()=@+,* -]+", "write names with * for any characters, such as *.json"),
    Rule(
        "self.split('*').size() <= 5",
        lambda given: given.count("*") <= 4,
        "write at most four asterisks",
    ),
]


class CleanSource(StrEnum):
    """What becomes of files that have landed."""

    OFF = "Off"
    ARCHIVE = "Archive"
    DELETE = "Delete"


class FilesSource(Model):
    """Lines or rows of files in a folder."""

    stream_rules: ClassVar[tuple[Rule, ...]] = STREAM_RULES
    own_fields: ClassVar[tuple[str, ...]] = ()
    folder_fields: ClassVar[tuple[str, ...]] = ("path", "archive_path")
    origin_noun: ClassVar[str] = "folder"
    positions_count_records: ClassVar[bool] = False
    positions_can_be_chosen: ClassVar[bool] = False
    backfilled_by: ClassVar[str] = "the modification times of the files"
    ranges_named_by: ClassVar[str] = "the paths of files"
    tasks_show_ranges: ClassVar[bool] = False

    path: SourcePath = Field(
        description="The folder: s3a://bucket/folder, an absolute path, or file:///path. In a cluster a path is on a volume "
        "that driver and executors mount and the operator does not. Each file is read once, as a whole, line by "
        "line, or row by row with format.type: Parquet and Orc; lines of one whose name ends with .gz are decompressed. "
        "Files whose names begin with . or _ are left out. A file may be removed once it has landed; one that is written to "
        "after it was read halts the stream, which names it."
    )
    endpoint: S3Endpoint = None
    region: S3Region = None
    path_style: PathStyle = False
    secret_ref: SecretRef | None = Field(
        None,
        description=f"The login to S3, which lists and reads; the keys read are {', '.join(S3_SECRET_KEYS)}. Without it, "
        "driver and executors use what their service account and their node are given, such as a web identity, and the "
        "operator cannot count the files that are waiting while no driver runs.",
    )
    file_names: FileNames = Field(
        "*", description="Which files are read, by the last part of their path; * stands for any characters."
    )
    recursive: Flag = Field(False, description="Whether files of folders below are read as well, at any depth.")
    header_lines: Whole = Field(
        0,
        ge=0,
        le=100,
        description="How many lines at the beginning of each file are no records, such as the header of CSV.",
    )
    min_file_age: Annotated[Duration, within("0s", "24h")] = Field(
        timedelta(seconds=2),
        description="How long ago a file must have been written to before it is read. Write 0s where writers rename finished "
        "files into the folder, and else more than the longest pause in their writing.",
    )
    start: FolderStart = Field(FolderStart(), description="Where a new stream starts.")
    latest_first: Flag = Field(
        False,
        description="Whether the newest files of those that wait are read first. Without it files are read in the order of "
        "their modification times.",
    )
    clean_source: CleanSource = Field(
        CleanSource.OFF,
        description="What becomes of files that have landed. Delete removes them. Archive moves them into archivePath, under "
        "the same path below it. A database that is restored to an earlier time then lacks rows whose files are gone: the "
        "stream halts and names them. Without the files, what was read is known by the checkpoint's location alone.",
    )
    archive_path: SourcePath | None = Field(
        None,
        description="With cleanSource: Archive, the folder that files are moved into: on the volume of path, or on S3 as path "
        "is, with a login that may write there; an object of more than 5 GiB stays.",
    )
    max_files_per_trigger: Whole | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description=f"The maximum number of files per batch. Without it a batch has at most {DEFAULT_BATCH_FILES:,}.",
    )
    max_bytes_per_trigger: Whole | None = Field(
        None,
        ge=1,
        le=1 << 40,
        description="The maximum number of bytes of files per batch, as they are stored; a single file may exceed it. Without "
        f"it a batch has at most {DEFAULT_BATCH_BYTES:,}.",
    )

    rules = (
        only_on_s3("path"),
        Rule(
            f"!has(self.start) || !has(self.start.checkpoint) || !self.start.checkpoint.startsWith('{S3_PREFIX}') || "
            f"self.path.startsWith('{S3_PREFIX}')",
            lambda it: it.start.checkpoint is None or not is_on_s3(it.start.checkpoint) or is_on_s3(it.path),
            "start.checkpoint may be on S3 only where path is, whose login is used",
        ),
        Rule(
            "(self.cleanSource == 'Archive') == has(self.archivePath)",
            lambda it: (it.clean_source is CleanSource.ARCHIVE) == (it.archive_path is not None),
            "archivePath belongs to cleanSource: Archive, and cleanSource: Archive needs it",
        ),
        Rule(
            f"!has(self.archivePath) || self.path.startsWith('{S3_PREFIX}') == self.archivePath.startsWith('{S3_PREFIX}')",
            lambda it: it.archive_path is None or is_on_s3(it.path) == is_on_s3(it.archive_path),
            "archivePath and path have to be both on S3, or both on one volume",
        ),
        Rule(
            f"!has(self.archivePath) || {apart_cel(plain_cel('self.path'), plain_cel('self.archivePath'))}",
            lambda it: it.archive_path is None or are_apart(it.path, it.archive_path),
            "archivePath and path have to be different folders, neither of them in the other",
        ),
    )

    @property
    def place_on_s3(self) -> S3Place | None:
        """The folder, where it is in a bucket."""
        return place_on_s3(self.path, self)

    @property
    def folder(self) -> str:
        """The path as the file system names it."""
        return plain_path(self.path)

    @property
    def address(self) -> str:
        """The folder."""
        return self.folder

    @property
    def shown_in(self) -> str | None:
        """Nowhere."""
        return None

    @property
    def takes_over(self) -> str | None:
        """Nothing."""
        return None

    @property
    def committed_only(self) -> bool:
        """Files have no transactions."""
        return False

    @property
    def batch_files(self) -> int:
        """The maximum number of files of a batch."""
        return self.max_files_per_trigger or DEFAULT_BATCH_FILES

    @property
    def batch_bytes(self) -> int:
        """The maximum number of bytes of a batch."""
        return self.max_bytes_per_trigger or DEFAULT_BATCH_BYTES

    def selection(self) -> Selection:
        """Return the folder."""
        return Selection(frozenset({self.folder}))

    def selected(self, origins: Origins) -> tuple[frozenset[Partition], tuple[str, ...]]:
        """Return the folder's one partition; nobody but its driver knows whether the folder is there."""
        return frozenset({Partition(self.folder, KEY)}), ()

    def batch_limit(self, interval: timedelta | None) -> str:
        """Return how large a batch may be, in words that are the same as long as the limit is."""
        return f"{self.batch_files} files or {self.batch_bytes} bytes"

    def most_records(self, ranges: Ranges) -> int:
        """Return the number of files of a batch: a batch that was too large is halved by them."""
        return sum(count_of(span.until_offset) - count_of(span.from_offset) for span in ranges.values())

    @staticmethod
    def position_text(position: int) -> str:
        """Return how many files have been read, and the beginning of the digest of which."""
        return shown(position)
