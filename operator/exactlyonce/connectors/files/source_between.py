"""Which files of a folder a backfill reads, of what was written between two moments or by their names. Performs no I/O.

A position counts files in the order in which they were read, and a file may come late with an old time. So what was written
between two moments is any number of ranges of positions, each of files that were read one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from exactlyonce.connectors.files.source_plan import a_few_of, difference, names
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.errors import NotBackfilled
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange
from exactlyonce.schema.moment import Moments, first_milliseconds

_ONLY_PARTITION = "0"


def ranges_between(read: Iterable[SourceFile], moments: Moments) -> tuple[OffsetRange, ...]:
    """Return the ranges of the files that were last written to between two moments, of all that were read, in their order."""
    return ranges_of(read, lambda file: is_between(file, moments))


def ranges_of(read: Iterable[SourceFile], is_chosen: Callable[[SourceFile], bool]) -> tuple[OffsetRange, ...]:
    """Return the ranges of some of the files that were read, in their order."""
    found: list[OffsetRange] = []
    position = begin = NOTHING_READ
    for file in read:
        end = after(position, [file])
        if not is_chosen(file):
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
    what = f"what was written to {folder} between these two moments"
    between = [file for file in read if is_between(file, moments)]
    there = {file.path: file for file in listed}
    known = {file.path: file for file in read}
    _require_read(what, between)
    if waiting := [file for path, file in there.items() if path not in known and is_between(file, moments)]:
        raise NotBackfilled(
            f"Of {what}, the stream has not landed yet: {names(waiting)}. Ask again once it has, or end before these files"
        )
    paths = {file.path for file in between}
    in_or_were = [file for file in there.values() if file.path in paths or is_between(file, moments)]
    _require_unchanged(what, in_or_were, known)
    _require_left(what, between, there)


def named_files(
    folder: str, read: Sequence[SourceFile], listed: Iterable[SourceFile], given: Sequence[NamedSpan]
) -> frozenset[SourceFile]:
    """Return the files from one that a person names to another, both included, in the order in which they were read.

    Raises:
        NotBackfilled: naming a file that the stream has not read, or that cannot be read again.
    """
    places = {file.path: place for place, file in enumerate(read)}
    found: set[SourceFile] = set()
    for span in given:
        if span.origin != folder:
            raise NotBackfilled(f"The range {span} is of {span.origin}, and the source is the folder {folder}")
        if span.partition != _ONLY_PARTITION:
            raise NotBackfilled(
                f"The range {span} is of partition {span.partition}, and a folder has the partition {_ONLY_PARTITION} alone"
            )
        if unknown := [name for name in (span.begin, span.end) if name not in places]:
            raise NotBackfilled(
                f"The stream has landed no file {unknown[0]!r:.200} of {folder}; name files by their paths below it, as the "
                "column _file has them"
            )
        first, last = places[span.begin], places[span.end]
        if first > last:
            raise NotBackfilled(
                f"The stream has read {span.end} before {span.begin}; name the one first that was read first"
            )
        chosen = set(read[first : last + 1])
        if twice := found & chosen:
            raise NotBackfilled(f"Two ranges hold the same files: {names(twice)}. Name each file once")
        found |= chosen
    what = f"the files that are named of {folder}"
    in_order = [file for file in read if file in found]
    there = {file.path: file for file in listed}
    _require_read(what, in_order)
    _require_unchanged(what, [there[it.path] for it in in_order if it.path in there], {it.path: it for it in read})
    _require_left(what, in_order, there)
    return frozenset(found)


def _require_read(what: str, chosen: Sequence[SourceFile]) -> None:
    if left_out := [file for file in chosen if file.is_left_out]:
        raise NotBackfilled(
            f"Of {what}, the stream left out at its start: {names(left_out)}. A backfill reads what the stream has read: name "
            "others, or read these with another stream"
        )


def _require_unchanged(what: str, there: Iterable[SourceFile], known: Mapping[str, SourceFile]) -> None:
    changed = [
        difference(known[file.path], file)
        for file in there
        if file.path in known and not file.is_still(known[file.path])
    ]
    if changed:
        raise NotBackfilled(
            f"Of {what}, files have changed since the stream read them: {a_few_of(changed)}. Put them back as they were, with "
            "their modification times, or leave them out"
        )


def _require_left(what: str, chosen: Sequence[SourceFile], there: Mapping[str, SourceFile]) -> None:
    if gone := [file for file in chosen if file.path not in there]:
        raise NotBackfilled(
            f"Of {what}, files are gone: {names(gone)}. Put them back with their modification times, or leave them out"
        )
