"""Ranges of a folder in parts of whole files, for a replay: which files a part has, and how many records are in them.

A position proves which files lie before it, so the lists beside the generations, or the folder itself, say which files a range
has. Each file is read once to count its records, and the read proves that it still is the one that was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from exactlyonce.connectors.files.source_lines import FileUnreadable, FileVanished, without_ways_out
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.connectors.files.source_position import SourceFile, after, shown
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce_spark.connectors.files.source_rows import PlacedFile, placed
from exactlyonce_spark.replay_parts import PART_BYTES, Divided, Part, Unfit

_OTHERWISE = (
    "give the range up (exactlyonce failures give-up), and put the records into a file of another name: the stream reads that "
    "one itself."
)
_PUT_BACK = (
    f"Put it back as it was, with its modification time, and replay again. Where it cannot be, as on S3, {_OTHERWISE}"
)
"""With another time it would be a file that changed after it was read, and the stream would halt (`source_plan.unread`)."""

_UNREADABLE = f"Or {_OTHERWISE}"

_OF_BACKFILL = (
    "Put it back as it was, with its modification time, and continue the backfill. Do not put its records into a file of "
    "another name, which the stream would land once more into its own table."
)


def _words(problem: FileUnreadable | FileVanished | FileChanged, *, of_backfill: bool) -> str:
    """Return what is wrong with a file, and what helps: the stream has continued behind it, and plans it in no batch again."""
    helps = _UNREADABLE if isinstance(problem, FileUnreadable) else _PUT_BACK
    return f"{without_ways_out(str(problem))} {_OF_BACKFILL if of_backfill else helps}"


@dataclass
class FolderDivider:
    """A `RangeDivider` of one folder.

    `files` returns the files between two positions, and `counts_in` the numbers of records of one, part by part as tasks read
    them.
    """

    location: str
    files: Callable[[int, int], tuple[SourceFile, ...]]
    counts_in: Callable[[PlacedFile], Iterable[int]]
    of_backfill: bool = False
    looked_at: int = 0
    _until: int | None = None
    _placed: list[PlacedFile] = field(default_factory=list)
    _counted: dict[SourceFile, int] = field(default_factory=dict)

    def first(self, partition: Partition, offsets: OffsetRange, most: int) -> Divided:
        """Return the first files of a range: as many as have so many records, and at least one.

        A file that is gone, was written to or cannot be read is Unfit: somebody may put it back.

        Raises:
            FilesUnknown: if nothing says which files a range has.
            OriginMissing, SourceRefused, SourceUnreachable, StoreUnreachable, ListUnfit: by situation.
        """
        taken: list[PlacedFile] = []
        records = weight = size = 0
        for each in self._from(offsets):
            try:
                count = self._count(each)
            except (FileUnreadable, FileVanished, FileChanged) as problem:
                if taken:
                    break
                return Unfit(
                    after(each.position, [each.file]), _words(problem, of_backfill=self.of_backfill), self._named(each)
                )
            size += each.file.size_bytes
            if taken and (weight + max(1, count) > most or size > PART_BYTES):
                break
            taken.append(each)
            records, weight = records + count, weight + max(1, count)
        last = taken[-1]  # a range that is not empty has files
        return Part(
            after(last.position, [last.file]),
            records,
            weight,
            len(taken) == 1,
            self._named(taken[0], f" ({records} records)"),
        )

    def forget(self) -> None:
        """Count again: a file that was counted has gone since, or was written to."""
        self._until = None
        self._counted.clear()

    def text(self, offsets: OffsetRange) -> str:
        """Return a range as counts of files."""
        return offsets.text(shown)

    def _from(self, offsets: OffsetRange) -> Iterator[PlacedFile]:
        if self._until != offsets.until_offset or not any(it.position == offsets.from_offset for it in self._placed):
            files = self.files(offsets.from_offset, offsets.until_offset)
            self._until, self._placed = offsets.until_offset, placed(offsets.from_offset, files)
        return (it for it in self._placed if it.position >= offsets.from_offset)

    def _count(self, each: PlacedFile) -> int:
        if each.file.is_left_out:
            return 0  # no task is given it
        if each.file not in self._counted:
            found = 0
            for count in self.counts_in(each):
                found += count
                self.looked_at += count
            self._counted[each.file] = found
        return self._counted[each.file]

    def _named(self, each: PlacedFile, count: str = "") -> str:
        return f"The file {self.location.rstrip('/')}/{each.file.path}{count} of the range"
