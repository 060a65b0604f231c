"""Read one generation's logs and name the state they are in.

Every row of the restart table in docs/checkpoint-states.md has a name here. Reading never changes a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from exactlyonce.checkpoint import checksums, files
from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.checkpoint.log_numbers import number_of, numbers_of
from exactlyonce.checkpoint.store import Entry, FileMissing, LogStore
from exactlyonce.positions.ranges import BatchNumber, Positions

Given = TypeVar("Given")
Parsed = TypeVar("Parsed")

_PARSED_AS_LONG = re.compile(r"[+-]?\d{1,19}")


class Damage(StrEnum):
    """What is wrong with a checkpoint that Spark could not, or must not, continue with."""

    METADATA_MISSING = "MetadataMissing"
    OFFSETS_MISSING = "OffsetsMissing"
    STATE_WITHOUT_OFFSETS = "StateWithoutOffsets"
    OFFSETS_GAP = "OffsetsGap"
    FOREIGN_NUMBER = "ForeignNumber"
    PREVIOUS_OFFSETS_MISSING = "PreviousOffsetsMissing"
    COMMITS_MISSING = "CommitsMissing"
    COMMITS_AHEAD = "CommitsAheadOfOffsets"
    FILE_EMPTY = "FileEmpty"
    FILE_TORN = "FileTorn"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    STRAY_CHECKSUM = "StrayChecksum"
    VERSION_UNSUPPORTED = "VersionUnsupported"


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no checkpoint: the folder is missing or empty."""

    highest_planned: None = None
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class Damaged:
    """There is a checkpoint, and it is unusable; `words` names the file and what is wrong.

    `has_run` is False for a seed that was cut short.
    """

    damage: Damage
    words: str
    highest_planned: BatchNumber | None
    has_run: bool


@dataclass(frozen=True, slots=True)
class Readable:
    """A checkpoint that Spark continues with.

    `planned` is the latest batch of the offset log, with its end and, where the logs hold it, its start (a partition
    that appeared in this very batch is not in the start). `checkpointed` is the latest batch of the commit log:
    `planned`, or the one before it, or None before the first commit of a query that was not seeded.
    """

    planned: BatchNumber
    planned_start: Positions | None
    planned_end: Positions
    checkpointed: BatchNumber | None
    first_checkpointed: BatchNumber | None
    commit_version: int = 1
    stateful: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def highest_planned(self) -> BatchNumber:
        """The latest batch of the offset log."""
        return self.planned

    @property
    def has_run(self) -> bool:
        """Whether more was planned than the seed: batch 0, or the first one committed."""
        return self.planned > (self.first_checkpointed or 0)

    @property
    def state_survives_two_writers(self) -> bool:
        """Whether state files have unique names, so that a predecessor still running cannot spoil them.

        The commit log's version tells: from v2 on it names each state file by its unique id. The offset log's settings
        do not hold stateStore.checkpointFormatVersion (OffsetSeqMetadata.relevantSQLConfs, Spark 4.2.0).
        """
        provider = self.conf.get("spark.sql.streaming.stateStore.providerClass", "")
        return provider.endswith("RocksDBStateStoreProvider") and self.commit_version >= 2


CheckpointState = Absent | Damaged | Readable


class _Found(Exception):
    """Carries a finding out of the reader's steps."""

    def __init__(self, damage: Damage, words: str) -> None:
        super().__init__(words)
        self.damage = damage
        self.words = words


def read_generation(store: LogStore, codec: PositionCodec, generation: str) -> CheckpointState:
    """Read the logs of one generation and name their state.

    Raises:
        StoreUnreachable: if the storage does not answer; that is not a state.
    """
    return _Reader(store, generation, codec).state()


class _Reader:
    """Lists the folders that are there once, then reads the few files that a restart depends on."""

    def __init__(self, store: LogStore, generation: str, codec: PositionCodec) -> None:
        self._store = store
        self._codec = codec
        self._generation = generation
        self._root = store.list(generation)
        self._listings = {log: self._list(log) for log in ("offsets", "commits")}
        self._offsets = numbers_of(self._listings["offsets"])
        self._commits = numbers_of(self._listings["commits"])
        self._stateful = any(entry.is_folder for entry in self._list("state"))

    def _list(self, folder: str) -> tuple[Entry, ...]:
        there = any(entry.name == folder for entry in self._root)
        return self._store.list(f"{self._generation}/{folder}") if there else ()

    def state(self) -> CheckpointState:
        try:
            if not self._offsets:
                return self._without_offsets()
            self._check_metadata()
            self._check_listings()
            return self._readable()
        except _Found as found:
            highest = max([*self._offsets, *self._commits], default=None)
            return Damaged(found.damage, found.words, highest, self._has_run())

    def _has_run(self) -> bool:
        """Whether the logs hold more than a seed: batch 0 alone, or `commits/N` and at most `offsets/N-1` and `offsets/N`."""
        if not self._commits:
            return any(number > 0 for number in self._offsets)
        seed = self._commits[0]
        return len(self._commits) > 1 or any(not seed - 1 <= number <= seed for number in self._offsets)

    def _without_offsets(self) -> CheckpointState:
        if self._commits:
            raise _Found(Damage.OFFSETS_MISSING, f"commits/{self._commits[-1]} exists and offsets/ is empty")
        if self._stateful:
            raise _Found(Damage.STATE_WITHOUT_OFFSETS, "state/ has content and offsets/ is empty")
        return Absent()

    def _check_metadata(self) -> None:
        try:
            content = self._store.read(f"{self._generation}/metadata")
        except FileMissing:
            raise _Found(Damage.METADATA_MISSING, "the file metadata is missing") from None
        self._checked("", "metadata", content)
        self._parsed("metadata", files.parse_metadata, content)

    def _check_listings(self) -> None:
        planned = self._offsets[-1]
        # A restart reads the latest two only, and a kill while Spark removes old ones leaves a gap further back.
        if len(self._offsets) > 1 and self._offsets[-2] != planned - 1:
            raise _Found(Damage.OFFSETS_GAP, f"offsets/{self._offsets[-2]} is followed by offsets/{planned}")
        if planned > 0 and len(self._offsets) == 1:
            raise _Found(
                Damage.PREVIOUS_OFFSETS_MISSING, f"offsets/{planned} exists and offsets/{planned - 1} does not"
            )
        if self._commits and self._commits[-1] > planned:
            raise _Found(Damage.COMMITS_AHEAD, f"commits/{self._commits[-1]} exists and offsets ends at {planned}")
        if planned > 0 and (not self._commits or self._commits[-1] < planned - 1):
            latest = f"commits ends at {self._commits[-1]}" if self._commits else "commits/ is empty"
            raise _Found(Damage.COMMITS_MISSING, f"{latest} and offsets/{planned} exists")
        for log, numbers in (("offsets", self._offsets), ("commits", self._commits)):
            self._check_foreign_numbers(log, numbers)
            self._check_stray_checksums(log, numbers)
            for entry in self._listings[log]:
                if number_of(entry) is not None and entry.size_bytes == 0:
                    raise _Found(Damage.FILE_EMPTY, f"{log}/{entry.name}: it has no bytes")

    def _check_foreign_numbers(self, log: str, numbers: list[BatchNumber]) -> None:
        """Spark parses every file's name (String.toLong), so `007` is batch 7 to it, and then there is no file `7`."""
        latest = numbers[-1] if numbers else -1
        for entry in self._listings[log]:
            foreign = not entry.is_folder and number_of(entry) is None and _PARSED_AS_LONG.fullmatch(entry.name)
            if foreign and int(entry.name) > latest:
                words = f"{log}/{entry.name} is not a log file, and Spark takes its name for batch {int(entry.name)}"
                raise _Found(Damage.FOREIGN_NUMBER, words)

    def _check_stray_checksums(self, log: str, numbers: list[BatchNumber]) -> None:
        latest = numbers[-1] if numbers else -1
        for entry in self._listings[log]:
            name = entry.name.removeprefix(".").removesuffix(".crc")
            if entry.name == f".{name}.crc" and name.isascii() and name.isdigit() and int(name) > latest:
                words = f"{log}/.{name}.crc exists and {log}/{name} does not, so Spark could not write {log}/{name}"
                raise _Found(Damage.STRAY_CHECKSUM, words)

    def _readable(self) -> Readable:
        planned = self._offsets[-1]
        latest = self._read_offsets(planned)
        commit_version = self._commit_version()
        end = self._end(planned, latest)
        if end is None:
            raise _Found(Damage.FILE_TORN, f"offsets/{planned}: it has no position for its source")
        return Readable(
            planned=planned,
            planned_start=self._start_of(planned),
            planned_end=end,
            checkpointed=self._commits[-1] if self._commits else None,
            first_checkpointed=self._commits[0] if self._commits else None,
            commit_version=commit_version,
            stateful=self._stateful,
            conf=latest.conf,
        )

    def _commit_version(self) -> int:
        if not self._commits:
            return 1
        latest = self._commits[-1]
        return self._parsed(f"commits/{latest}", files.parse_commit, self._read("commits", str(latest)))

    def _start_of(self, planned: BatchNumber) -> Positions | None:
        if planned > 0:
            previous = BatchNumber(planned - 1)
            return self._end(previous, self._read_offsets(previous))
        try:
            content = self._store.read(f"{self._generation}/sources/0/0")
        except FileMissing:
            return None
        self._checked("sources/0", "0", content)
        return self._parsed("sources/0/0", self._codec.parse_start, content)

    def _read_offsets(self, batch: BatchNumber) -> files.OffsetFile:
        return self._parsed(f"offsets/{batch}", files.parse_offsets, self._read("offsets", str(batch)))

    def _end(self, batch: BatchNumber, file: files.OffsetFile) -> Positions | None:
        return self._parsed(f"offsets/{batch}", self._positions, file)

    def _positions(self, file: files.OffsetFile) -> Positions | None:
        entry = file.only_end
        return None if entry is None else self._codec.parse_entry(entry)

    def _read(self, log: str, name: str) -> bytes:
        try:
            content = self._store.read(f"{self._generation}/{log}/{name}")
        except FileMissing:
            raise _Found(Damage.FILE_TORN, f"{log}/{name}: it went away while it was read") from None
        self._checked(log, name, content)
        return content

    def _checked(self, log: str, name: str, content: bytes) -> None:
        """Compare with the checksum file where there is one, which Spark itself does not."""
        if not self._may_have_checksums(log, name):
            return
        folder = f"{self._generation}/{log}" if log else self._generation
        try:
            known = self._store.read(f"{folder}/{checksums.name_of_checksums(name)}")
        except FileMissing:
            return
        if checksums.contradict(known, content):
            path = f"{log}/{name}" if log else name
            raise _Found(Damage.CHECKSUM_MISMATCH, f"{path}: its content is not what .{name}.crc was made from")

    def _may_have_checksums(self, log: str, name: str) -> bool:
        """Whether a listing shows the file's checksums, or, of a folder that was not listed, any of Spark's files has some."""
        listings = {"": self._root, **self._listings}
        if log in listings:
            return any(entry.name == checksums.name_of_checksums(name) for entry in listings[log])
        return any(entry.name.endswith(checksums.SUFFIX) for listing in listings.values() for entry in listing)

    def _parsed(self, path: str, parse: Callable[[Given], Parsed], content: Given) -> Parsed:
        try:
            return parse(content)
        except files.FileEmpty as problem:
            raise _Found(Damage.FILE_EMPTY, f"{path}: {problem}") from problem
        except files.FileTorn as problem:
            raise _Found(Damage.FILE_TORN, f"{path}: {problem}") from problem
        except files.VersionUnsupported as problem:
            raise _Found(Damage.VERSION_UNSUPPORTED, f"{path}: {problem}") from problem
