"""Which files of a folder a backfill of what was written between two moments reads, and which keep it from beginning."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from exactlyonce.connectors.files.source_between import (
    is_between,
    named_files,
    ranges_between,
    ranges_of,
    require_all_there,
)
from exactlyonce.connectors.files.source_position import LEFT_OUT, NOTHING_READ, SourceFile, after
from exactlyonce.errors import NotBackfilled
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange

MOMENTS = (datetime.fromtimestamp(2, UTC), datetime.fromtimestamp(4, UTC))


def file(seconds: float, name: str = "") -> SourceFile:
    """Return a file of that modification time."""
    return SourceFile(f"{name or seconds}.json", 10, int(seconds * 1000), "tag")


def ends(files: list[SourceFile]) -> list[int]:
    """Return the position behind each file, and the one before the first."""
    positions = [NOTHING_READ]
    for each in files:
        positions.append(after(positions[-1], [each]))
    return positions


@pytest.mark.parametrize(
    ("seconds", "spans"),
    [
        ([], []),
        ([1, 4, 5], []),
        ([1, 2, 3, 4], [(1, 3)]),
        ([2, 3.999], [(0, 2)]),
        ([2, 5, 3], [(0, 1), (2, 3)]),
        ([1, 3, 5, 2, 2, 1], [(1, 2), (3, 5)]),
    ],
)
def test_files_between_two_moments_make_a_range_each_time_that_they_were_read_one_behind_the_other(
    seconds: list[float], spans: list[tuple[int, int]]
) -> None:
    files = [file(at, str(number)) for number, at in enumerate(seconds)]
    at = ends(files)
    assert ranges_between(files, MOMENTS) == tuple(OffsetRange(at[begin], at[end]) for begin, end in spans)


@pytest.mark.parametrize(("seconds", "expected"), [(1.999, False), (2, True), (3.999, True), (4, False)])
def test_the_first_moment_is_in_and_the_last_one_is_not(seconds: float, expected: bool) -> None:
    assert is_between(file(seconds), MOMENTS) is expected


READ = [file(1), file(2), file(3), file(5)]


def test_files_that_are_there_as_they_were_read_are_backfilled_whatever_became_of_those_outside() -> None:
    require_all_there("lake", READ, READ, MOMENTS)
    require_all_there("lake", READ, [*READ[1:3], replace(READ[3], size_bytes=11), file(1.5, "new")], MOMENTS)


@pytest.mark.parametrize(
    ("read", "listed", "words"),
    [
        (
            [replace(READ[1], version=LEFT_OUT), *READ[2:]],
            READ[1:],
            r"the stream left out at its start: 2.json\. A backfill",
        ),
        (READ, [READ[0], READ[2], READ[3]], r"files are gone: 2.json\. Put them back"),
        (READ, [*READ, file(3, "late")], r"the stream has not landed yet: late.json\. Ask again"),
        (
            READ,
            [*READ[:2], replace(READ[2], size_bytes=11), READ[3]],
            "files have changed since the stream read them: 3.json",
        ),
        (
            READ,
            [replace(READ[0], modified_milliseconds=3000), *READ[1:]],
            "files have changed since the stream read them: 1.js",
        ),
        (
            READ,
            [*READ[:2], replace(READ[2], modified_milliseconds=9000), READ[3]],
            "files have changed since the stream read",
        ),
    ],
)
def test_a_backfill_of_which_a_file_is_missing_changed_or_has_not_landed_does_not_begin(
    read: list[SourceFile], listed: list[SourceFile], words: str
) -> None:
    with pytest.raises(NotBackfilled, match=words):
        require_all_there("lake", read, listed, MOMENTS)


def named(*spans: tuple[str, str], folder: str = "lake", partition: str = "0") -> list[NamedSpan]:
    return [NamedSpan(folder, partition, f"{begin}.json", f"{end}.json") for begin, end in spans]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([("1", "1")], [(0, 1)]),
        ([("2", "5")], [(1, 4)]),
        ([("5", "5"), ("1", "2")], [(0, 2), (3, 4)]),
        ([("1", "2"), ("3", "5")], [(0, 4)]),
    ],
)
def test_files_are_named_by_the_first_and_the_last_one_in_the_order_in_which_they_were_read(
    spans: list[tuple[str, str]], expected: list[tuple[int, int]]
) -> None:
    chosen, at = named_files("lake", READ, READ, named(*spans)), ends(READ)
    assert ranges_of(READ, chosen.__contains__) == tuple(OffsetRange(at[begin], at[end]) for begin, end in expected)


@pytest.mark.parametrize(
    ("given", "listed", "words"),
    [
        (
            named(("1", "9")),
            READ,
            r"The stream has landed no file '9.json' of lake; name files by their paths below it",
        ),
        (named(("3", "2")), READ, "The stream has read 2.json before 3.json; name the one first that was read first"),
        (named(("1", "2"), ("2", "3")), READ, r"Two ranges hold the same files: 2.json\. Name each file once"),
        (named(("1", "2"), folder="sea"), READ, "is of sea, and the source is the folder lake"),
        (
            named(("1", "2"), partition="1"),
            READ,
            r"lake-1 \[.*\) is of partition 1, and a folder has the partition 0 alone",
        ),
        (named(("1", "3")), READ[1:], r"Of the files that are named of lake, files are gone: 1.json\. Put them back"),
        (
            named(("1", "3")),
            [*READ[:2], replace(READ[2], size_bytes=11), READ[3]],
            r"files have changed since the stream read them: 3.json \(11 bytes, was 10\)",
        ),
    ],
)
def test_files_that_cannot_be_read_again_as_they_were_keep_a_backfill_by_their_names_from_beginning(
    given: list[NamedSpan], listed: list[SourceFile], words: str
) -> None:
    with pytest.raises(NotBackfilled, match=words):
        named_files("lake", READ, listed, given)


def test_a_file_that_was_left_out_at_the_start_is_not_backfilled_by_its_name() -> None:
    read = [replace(READ[0], version=LEFT_OUT), *READ[1:]]
    with pytest.raises(NotBackfilled, match=r"the stream left out at its start: 1.json\. A backfill"):
        named_files("lake", read, READ, named(("1", "2")))
    assert named_files("lake", read, READ[1:], named(("2", "2"))) == {READ[1]}
