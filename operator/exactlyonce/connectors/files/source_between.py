"""Which files of a folder a backfill of what was written between two moments reads. Performs no I/O.

A position counts files in the order in which they were read, and a file may come late with an old time. So what was written
between two moments is any number of ranges of positions, each of files that were read one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from exactlyonce.connectors.files.source_plan import a_few_of, difference, names
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.errors import NotBackfilled
from exactlyonce.positions.ranges import OffsetRange
from exactlyonce.schema.moment import Moments, first_milliseconds


def ranges_between(read: Iterable[SourceFile], moments: Moments) -> tuple[OffsetRange, ...]:
    """Return the ranges of the files that were last written to between two moments, of all that were read, in their order."""
    found: list[OffsetRange] = []
    position = begin = NOTHING_READ
    for file in read:
        end = after(position, [file])
        if not is_between(file, moments):
            begin = end
        elif found and found[-1].from_offset == begin:
            found[-1] = OffsetRange(begin, end)
        else:
            found.append(OffsetRange(begin, end))
        position = end
    return tuple(found)


def is_between(file: SourceFile, moments: Moments) -> bool:
    """Whether a file was last written to at the first moment or after it, and before the second one."""
    begin, until = (first_milliseconds(moment) for moment in moments)
    return begin <= file.modified_milliseconds < until


def require_all_there(folder: str, read: Sequence[SourceFile], listed: Iterable[SourceFile], moments: Moments) -> None:
    """Require that each file that was written between two moments was read by the stream, and can be read again.

    `read` are the files that the stream has landed, `listed` those that are there now.

    Raises:
        NotBackfilled: naming those that were left out at the start, have not landed, or have changed or gone since.
    """
    between = [file for file in read if is_between(file, moments)]
    there = {file.path: file for file in listed}
    known = {file.path: file for file in read}
    if left_out := [file for file in between if file.is_left_out]:
        raise NotBackfilled(
            f"Of what was written to {folder} between these two moments, the stream left out at its start: {names(left_out)}. "
            "A backfill reads what the stream has read: name moments without these files, or read them with another stream"
        )
    if waiting := [file for path, file in there.items() if path not in known and is_between(file, moments)]:
        raise NotBackfilled(
            f"Of what was written to {folder} between these two moments, the stream has not landed yet: {names(waiting)}. Ask "
            "again once it has, or end before these files"
        )
    changed = [
        difference(known[path], file)
        for path, file in there.items()
        if path in known
        and not file.is_still(known[path])
        and (is_between(file, moments) or is_between(known[path], moments))
    ]
    if changed:
        raise NotBackfilled(
            f"Of what was written to {folder} between these two moments, files have changed since the stream read them: "
            f"{a_few_of(changed)}. Put them back as they were, with their modification times, or name moments without them"
        )
    if gone := [file for file in between if file.path not in there]:
        raise NotBackfilled(
            f"Of what was written to {folder} between these two moments, files are gone: {names(gone)}. Put them back with "
            "their modification times, or name moments without them"
        )
