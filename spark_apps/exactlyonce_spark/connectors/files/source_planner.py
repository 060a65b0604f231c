"""Which files each batch of a folder reads: written down before the end of the batch is in any log. No pyspark here.

The planner lives in the one Python process that Spark's driver keeps for a query, and holds what has been read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from exactlyonce.connectors.files.source_lines import FileUnreadable, Line
from exactlyonce.connectors.files.source_lists import FileLists, Known, rebuilt
from exactlyonce.connectors.files.source_plan import FileLimit, Told, cut, late, names, settled, unread, waiting
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after, count_of
from exactlyonce.errors import Refused

log = logging.getLogger("exactlyonce.files")

_PAUSE_SECONDS = 0.25
"""How long a call waits at least that has found nothing, so that Spark does not list the folder a hundred times a second."""

_PAUSE_SHARE = 4
"""A folder that took long to list is left alone for that many times as long."""


class FilesUnknown(Refused):
    """Nothing says which files the stream has read."""


class FilesGone(Refused):
    """Files that were planned into a batch are gone, and the ledger does not say that they have landed."""


class Folder(Protocol):
    """The folder that is read (`exactlyonce.connectors.files.source_folder.LocalFolder`)."""

    @property
    def location(self) -> str:
        """The folder as the user names it."""
        ...

    def files(self) -> Sequence[SourceFile]:
        """Return the files that fit."""
        ...

    def lines(self, file: SourceFile) -> Iterator[Line]:
        """Yield the lines of a file that is still as it was listed."""
        ...

    def remove(self, files: Iterable[SourceFile]) -> None:
        """Remove files that are still as they were listed."""
        ...

    def archive(self, files: Iterable[SourceFile], into: str) -> None:
        """Move files that are still as they were listed into another folder."""
        ...


class Clock:
    """The time, and waiting."""

    def seconds(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def elapsed_seconds(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Ready:
    """When files may be read, in which order, and what becomes of them once they have landed.

    `archive` is the folder that they are moved into, where they are not deleted.
    """

    min_age: timedelta
    latest_first: bool
    delete: bool = False
    archive: str | None = None


class FolderPlanner:
    """Plans the batches of one query."""

    def __init__(
        self,
        folder: Folder,
        lists: FileLists,
        limit: FileLimit,
        ready: Ready,
        clock: Clock | None = None,
        records_in: Callable[[SourceFile], int] | None = None,
        left_out: Callable[[Folder], tuple[SourceFile, ...]] = lambda _folder: (),
        tell: Callable[[Told], None] = lambda _told: None,
    ) -> None:
        """`records_in` counts the records of a file, where they are not its lines.

        `left_out` returns what a new stream counts as read and never reads; it is asked until a file has been planned.
        `tell` is told what has not landed, each time that the folder was listed, and with a batch what is left after it.
        """
        self._tell = tell
        self._folder = folder
        self._count = records_in or self._lines_in
        self._left_out = left_out
        self._lists = lists
        self._limit = limit
        self._ready = ready
        self._clock = clock or Clock()
        self._at: int | None = None
        self._known = Known((), ())
        self._read: dict[str, SourceFile] = {}
        self._newest_milliseconds = 0
        self._only: frozenset[SourceFile] | None = None
        self._planned_beyond: dict[str, dict[str, SourceFile]] = {}

    def read_until_now(self) -> None:
        """Read the files that are there now, and no further, once those of now are old enough."""
        self._clock.sleep(self._ready.min_age.total_seconds())
        found = self._folder.files()
        old_enough = settled(found, self._settled_until())
        if young := set(found) - set(old_enough):
            log.warning("Left for the next run, since they are still written: %s.", names(young))
        self._only = frozenset(old_enough)

    def end(self, start: int) -> int:
        """Return where the batch ends that starts here, once its list is written; the start where there is nothing to read.

        Raises:
            FileChanged: if a file that was read has changed.
            FilesUnknown: if nothing says which files were read up to the start.
            FilesGone: if some that were planned behind the start are gone.
            OriginMissing, SourceRefused, SourceUnreachable, FileUnreadable: if the folder cannot be listed.
            StoreUnreachable: if the list cannot be written.
            ListUnfit: if something else is where a list belongs.
        """
        self._stand_at(start)
        if start == NOTHING_READ and (left_out := self._left_out(self._folder)):
            log.info("Left out of %s, since the stream starts behind them: %s.", self._folder.location, names(left_out))
            return self._plan(start, left_out)
        batch, took_seconds = self._next(start)
        if not batch:
            if self._only is None:
                self._clock.sleep(max(_PAUSE_SECONDS, _PAUSE_SHARE * took_seconds))
            return start
        self._tell_late(batch)
        return self._plan(start, batch)

    def _plan(self, start: int, batch: Sequence[SourceFile]) -> int:
        end = after(start, batch)
        self._stands(end, self._lists.record(self._known, start, batch), batch)
        return end

    def files(self, start: int, end: int) -> tuple[SourceFile, ...]:
        """Return the files between two positions.

        Raises:
            FilesUnknown: if nothing says which ones they are.
            StoreUnreachable, ListUnfit: if the lists cannot be read.
        """
        if self._at == end:
            part = self._known.files[count_of(start) :]
            if after(start, part) == end:
                return part
        found = self._lists.between(start, end)
        if found is None and (every := rebuilt(end, self._folder.files())) is not None:
            part = every[count_of(start) :]
            found = part if after(start, part) == end else None
        if found is None:
            raise self._unknown(end)
        return found

    def _next(self, start: int) -> tuple[tuple[SourceFile, ...], float]:
        """Return the files of the next batch, and how many seconds the folder took to list."""
        began = self._clock.elapsed_seconds()
        until = self._settled_until()
        listed = self._folder.files()
        took_seconds = self._clock.elapsed_seconds() - began
        every = unread(self._folder.location, listed, self._read)
        self._tell(Told(waiting(every)))  # what is planned next is among it: it has not landed either
        # Again each time: a driver that this one has superseded may still remove what had landed by its ledger.
        if self._planned_beyond:
            self._require_there({file.path for file in listed})
        self._clean([file for file in listed if (known := self._read.get(file.path)) and not known.is_left_out])
        only = self._only
        found = settled(every, until) if only is None else tuple(file for file in every if file in only)
        batch = cut(found, self._limit, self._records_in, latest_first=self._ready.latest_first)
        if batch:
            # Spark asks again at the next trigger, which may be an hour away: by then these have long landed.
            self._tell(Told(waiting(every), waiting(set(every).difference(batch)), after(start, batch)))
        return batch, took_seconds

    def _clean(self, landed: Sequence[SourceFile]) -> None:
        """Take away what has landed: a batch is planned where the one before it has landed, or where the ledger stands."""
        if landed and self._ready.delete:
            self._folder.remove(landed)
        if landed and self._ready.archive is not None:
            self._folder.archive(landed, self._ready.archive)

    def _settled_until(self) -> float:
        return (self._clock.seconds() - self._ready.min_age.total_seconds()) * 1000

    def _stand_at(self, position: int) -> None:
        """Know the files that were read up to a position: by the lists, or else by the folder itself."""
        if position == self._at:
            return
        known = self._lists.known(position) or self._lists.restore(self._proven(position))
        self._read, self._newest_milliseconds = {}, 0
        self._stands(position, known, known.files)
        self._require_planned(position)

    def _proven(self, position: int) -> tuple[SourceFile, ...]:
        """Return the files up to a position of which the lists are gone: by a list that goes further, or else by the folder.

        Lists that end before a compact one are removed; a ledger that was restored may stand in front of it.
        """
        found = self._lists.between(NOTHING_READ, position)
        if found is None:
            found = rebuilt(position, self._folder.files())
            if found is None:
                raise self._unknown(position)
            log.warning("The lists in %s are gone; the folder itself proves what has been read.", self._lists.location)
        return found

    def _require_planned(self, position: int) -> None:
        """Require that what was planned further than this is still there: a ledger that went back forgets what has landed."""
        beyond = self._lists.beyond(position)
        self._planned_beyond = {place: {file.path: file for file in files} for place, files in beyond.items()}
        if beyond:
            self._require_there({file.path for file in self._folder.files()})

    def _require_there(self, there: Collection[str]) -> None:
        gone: dict[str, SourceFile] = {}
        naming: list[str] = []
        for place, files in self._planned_beyond.items():
            absent = {
                path: file
                for path, file in files.items()
                if not file.is_left_out and path not in self._read and path not in there
            }
            gone |= absent
            naming += [place] if absent else []
        if gone:
            raise FilesGone(
                f"Planned into a batch and gone from {self._folder.location}: {names(gone.values())}. By the ledger their "
                "records have not landed: their batch never did, or the ledger was restored or reset to an earlier time. Put "
                "the files back; or, if the stream is to continue without their records, remove the lists that name them, "
                "which gives up every file in them that is gone (they hold each name, one per line): "
                f"{', '.join(naming)}."
            )

    def _stands(self, position: int, known: Known, added: Sequence[SourceFile]) -> None:
        self._at, self._known = position, known
        for file in added:
            self._read[file.path] = file
            self._newest_milliseconds = max(self._newest_milliseconds, file.modified_milliseconds)

    def _tell_late(self, batch: Sequence[SourceFile]) -> None:
        found = () if self._ready.latest_first else late(batch, self._newest_milliseconds)
        if found:
            log.warning(
                "Files with older times than those already read have appeared in %s and are read now: %s.",
                self._folder.location,
                names(found),
            )

    def _records_in(self, file: SourceFile) -> int:
        """Return how many records a file has. One that cannot be read is a batch of its own, which its tasks fail."""
        try:
            return self._count(file)
        except FileUnreadable as problem:
            log.warning("%s", problem)
            return self._limit.records or 0

    def _lines_in(self, file: SourceFile) -> int:
        return sum(1 for _ in self._folder.lines(file))

    def _unknown(self, position: int) -> FilesUnknown:
        count = count_of(position)
        return FilesUnknown(
            f"{count} files of {self._folder.location} have been read or planned, and nothing says which: the lists in "
            f"{self._lists.location} are gone, and the {count} oldest files in the folder are not these. Restore the lists; or "
            "move the files that have landed out of the folder and start a stream with another streamId over the others."
        )
