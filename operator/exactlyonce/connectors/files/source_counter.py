"""How many files of a folder have not landed, counted from outside while no driver does: the folder less what was read.

The operator counts for many tenants, so each count has an end: so many objects, so many bytes of lists, so many seconds. It
opens what it has a login for: the folder with the one in the stream's own secret, the lists with the one of its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from exactlyonce.checkpoint.folders import open_versions
from exactlyonce.checkpoint.generation import SOURCE_FOLDER
from exactlyonce.checkpoint.locations import StoreInPods, names_login
from exactlyonce.checkpoint.s3_versions import ObjectVersion
from exactlyonce.checkpoint.store import CreateOutcome, Entry, ErasableStore, FileTooLarge, FolderStore
from exactlyonce.connectors.files.source_lines import NameFilter
from exactlyonce.connectors.files.source_lists import FileLists, folder_of
from exactlyonce.connectors.files.source_position import NOTHING_READ, count_of
from exactlyonce.connectors.files.source_spec import KEY, FilesSource
from exactlyonce.errors import ExactlyOnceError, Refused, StoreUnreachable
from exactlyonce.positions.ranges import Partition
from exactlyonce.schema.places import S3Place
from exactlyonce.source.counted_files import FilesNotLanded

MOST_REQUESTS = 100
"""Where listing stops: a service takes money for each, and an answer may hold no file, such as one of folders alone."""

MOST_OBJECTS = 100_000
"""Where counting stops: what these answers hold, with 1,000 each."""

MOST_SECONDS = 10.0
"""Where a count stops; the request that is under way then is still awaited, which has an end of its own."""

MOST_LIST_BYTES = 16 * 1024 * 1024
"""How much is read of lists: some 140,000 files."""

MOST_LIST_LINES = 200_000
"""How many files lists may name: a short line takes as much memory and processor time as a long one."""

_MOST_BYTES = (1 << 63) // MOST_OBJECTS
"""Of an object: some 90 TiB, which S3 does not take, so that what a resource's status holds is never exceeded."""

_YEAR_10000 = 253_402_300_800_000
"""In milliseconds since 1970; Python has no later moments."""

_MOST_LISTS = 200
"""A driver keeps some twenty."""


class FilesUncounted(Refused):
    """How many files have not landed is not known from outside."""


@dataclass(frozen=True)
class FolderCounter:
    """A `FileCounter` of one folder; `secret` is what `source.files.secretRef` names, if anything."""

    spec: FilesSource
    secret: Mapping[str, str] = field(repr=False)
    checkpoints: ErasableStore
    clock: Callable[[], float] = time.monotonic

    @property
    def place(self) -> str:
        """The service and the bucket; of a path, which is never opened, the path."""
        found = self.spec.place_on_s3
        return self.spec.address if found is None else f"{found.endpoint or 'Amazon S3'} bucket {found.bucket}"

    def count(self, landed: Mapping[Partition, int]) -> FilesNotLanded:
        """List the folder and the lists.

        Raises:
            FilesUncounted: if the operator has no login for the folder, or what it may look at says nothing.
            SecretMissing: if the secret holds one half of a login.
            StoreForbidden, StoreUnreachable: if the folder cannot be listed.
        """
        place = self._place()
        end = _End(self.clock)
        position = landed.get(Partition(self.spec.folder, KEY), NOTHING_READ)
        read: Container[str] | None = frozenset()
        unread_because, starts_at = "", 0
        if position != NOTHING_READ:
            read, unread_because = self._read(position, end)
        elif self.spec.start.checkpoint is not None:
            raise FilesUncounted(
                f"How many files of {self.spec.address} are waiting is unknown until the first batch has landed, because "
                "the files that Spark's own query has read do not count."
            )
        else:
            starts_at = self.spec.start.milliseconds or 0
        listed = open_versions(place, self.secret).versions(recursive=self.spec.recursive, is_enough=end.is_enough)
        counted = self._counted(self._believed(listed), read, starts_at, end)
        if read is None:
            counted = FilesNotLanded(counted.files - count_of(position), None, None, unread_because)
        if counted.at_least_because is not None and counted.files <= 0:
            raise FilesUncounted(
                f"How many files of {self.spec.address} are waiting is unknown: {counted.at_least_because}"
            )
        return counted

    def _place(self) -> S3Place:
        place = self.spec.place_on_s3
        if place is None:
            raise FilesUncounted(
                f"{self.spec.address} is on a volume that only the stream's own pods mount; how many files are waiting is "
                "known only from the driver's metrics, while it runs."
            )
        if not names_login(place, self.secret):
            raise FilesUncounted(
                f"The operator has no login for {self.spec.address}, and never lists a stream's files with its own: name a "
                "secret with one in spec.source.files.secretRef, or read from the driver's metrics how many files are waiting, "
                "while it runs."
            )
        return place

    def _read(self, position: int, end: _End) -> tuple[Container[str] | None, str]:
        """Return the paths of the files up to a position; None where no lists say so, and why."""
        if isinstance(self.checkpoints, StoreInPods):
            return None, (
                f"which files were read is recorded in {self.checkpoints.location}, which only the stream's own pods can "
                f"reach: {self.checkpoints.why}."
            )
        store = _FewLists(cast("FolderStore", self.checkpoints), lambda: end.is_late)
        lists = FileLists(store, folder_of(self.spec.folder, SOURCE_FOLDER), life="")
        try:
            known = lists.known(position)
        except ExactlyOnceError as problem:
            return None, f"which files were read is unknown: {problem}"
        if known is None:
            return None, f"no list in {lists.location} says which files were read."
        return {file.path for file in known.files}, ""

    def _believed(self, listed: Iterable[ObjectVersion]) -> Iterator[ObjectVersion]:
        """Yield objects as long as a service may have them: a server of a tenant's may answer with 400 digits, or a text."""
        try:
            for found in listed:
                _require_believable(found)
                yield found
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            raise StoreUnreachable(
                f"{self.spec.address} could not be listed: what answers is not an S3 service; check endpoint."
            ) from None

    def _counted(
        self, objects: Iterable[ObjectVersion], read: Container[str] | None, starts_at: int, end: _End
    ) -> FilesNotLanded:
        """Count the objects that are none of those read; all that fit, where it is not known which those are.

        Those that are older than `starts_at`, in milliseconds since 1970, are left out.
        """
        names = NameFilter(self.spec.file_names, self.spec.recursive)
        files = size = 0
        oldest: int | None = None
        looked_at = 0
        for found in objects:
            if looked_at >= MOST_OBJECTS or end.is_late:
                end.came = True
                break
            looked_at += 1
            is_read = read is not None and found.path in read
            if found.modified_milliseconds >= starts_at and not is_read and names.fits(found.path):
                files, size = files + 1, size + found.size_bytes
                oldest = found.modified_milliseconds if oldest is None else min(oldest, found.modified_milliseconds)
        return FilesNotLanded(files, size, _seconds(oldest), _stopped(looked_at) if end.came else None)


class _End:
    """Where a look ends, and whether it `came` there before all was seen."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = clock() + MOST_SECONDS
        self._requests = 0
        self.came = False

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self._clock() > self._until

    def is_enough(self) -> bool:
        """Whether nothing more is to be asked for, after an answer that was not the last."""
        self._requests += 1
        self.came = self._requests >= MOST_REQUESTS or self.is_late
        return self.came


class _FewLists:
    """The lists of a folder, of which no more is read than the operator has the time and the memory for.

    Whoever writes to the checkpoint's location chooses what is there.
    """

    def __init__(self, store: FolderStore, is_late: Callable[[], bool]) -> None:
        self._store = store
        self._is_late = is_late
        self._bytes_left, self._lines_left = MOST_LIST_BYTES, MOST_LIST_LINES

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        return self._store.location

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder, if they are few."""
        found: list[Entry] = []
        for entry in self._store.entries(folder, self._is_late):
            found.append(entry)
            if len(found) > _MOST_LISTS:
                raise FilesUncounted(f"{self.location}/{folder} holds more than {_MOST_LISTS} lists.")
        self._require_time()
        return tuple(sorted(found, key=lambda entry: entry.name))

    def read(self, path: str) -> bytes:
        """Return a list, if all of them together are not too large."""
        self._require_time()
        try:
            content = self._store.read(path, max(self._bytes_left, 1))
        except FileTooLarge:
            content = None
        # What a listing says of sizes is the tenant's word: what has come counts.
        self._bytes_left -= MOST_LIST_BYTES if content is None else len(content)
        if content is None or self._bytes_left < 0:
            raise FilesUncounted(
                f"the lists in {self.location} have more than {MOST_LIST_BYTES:,} bytes, the most that the operator reads."
            )
        self._lines_left -= content.count(b"\n")
        if self._lines_left < 0:
            raise FilesUncounted(f"the lists in {self.location} name more than {MOST_LIST_LINES:,} files.")
        return content

    def _require_time(self) -> None:
        if self._is_late():
            raise FilesUncounted(f"the lists in {self.location} were not read within {MOST_SECONDS:.0f} seconds.")

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Nobody who counts writes."""
        raise AssertionError(f"{path} is not written by whoever counts")

    def delete(self, paths: Sequence[str]) -> None:
        """Nobody who counts deletes."""
        raise AssertionError(f"{len(paths)} lists are not deleted by whoever counts")


def _require_believable(found: ObjectVersion) -> None:
    if not (0 <= found.size_bytes <= _MOST_BYTES and 0 <= found.modified_milliseconds < _YEAR_10000):
        raise ValueError(found.path)


def _stopped(looked_at: int) -> str:
    return (
        f"counting stopped after {looked_at:,} objects of the folder: the operator looks at no more than "
        f"{MOST_OBJECTS:,} objects, with no more than {MOST_REQUESTS} requests, and for no longer than "
        f"{MOST_SECONDS:.0f} seconds."
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
