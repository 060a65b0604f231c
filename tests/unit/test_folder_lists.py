"""The lists that say which files have been read: whatever a process dies after, they lead to where the stream stands."""

from __future__ import annotations

from itertools import count

import pytest

from exactlyonce.connectors.files.source_lists import (
    COMPACT_EACH,
    FileList,
    FileLists,
    Known,
    ListUnfit,
    MalformedList,
    name_of,
    parse,
    rebuilt,
    render,
)
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.launch.last_message import Ending
from exactlyonce_spark.failures import ending_of
from tests.folder_in_memory import source_file
from tests.simulation.files import MemoryStore

FOLDER = "source"
LIFE = "life-1"
NOTHING = Known((), ())


def batches(number: int, files_each: int = 2) -> list[list[SourceFile]]:
    numbers = count()
    return [
        [source_file(f"{each:06}", each) for each, _ in zip(numbers, range(files_each), strict=False)]
        for _ in range(number)
    ]


def recorded(lists: FileLists, planned: list[list[SourceFile]]) -> tuple[int, Known]:
    """Record batch after batch, as one planner does."""
    at, known = NOTHING_READ, NOTHING
    for files in planned:
        known = lists.record(known, at, files)
        at = after(at, files)
    return at, known


def test_lists_say_which_files_were_read_to_a_process_that_knows_only_the_position() -> None:
    store = MemoryStore()
    for number in (0, 1, 3, COMPACT_EACH - 1, COMPACT_EACH, COMPACT_EACH + 1, 25, 101):
        store.files.clear()
        planned = batches(number)
        at, _ = recorded(FileLists(store, FOLDER, LIFE), planned)

        known = FileLists(store, FOLDER, LIFE).known(at)

        assert known is not None
        assert list(known.files) == [file for files in planned for file in files], number
        assert FileLists(store, FOLDER, LIFE).known(after(at, [source_file("x")])) is None, (
            "no other position has lists"
        )


def test_two_weeks_of_batches_leave_a_bounded_number_of_lists() -> None:
    store = MemoryStore()
    lists = FileLists(store, FOLDER, LIFE)
    at, known, most = NOTHING_READ, NOTHING, 0
    for files in batches(1000, files_each=1):
        known = lists.record(known, at, files)
        at = after(at, files)
        most = max(most, len(store.files))

    assert most <= 2 * COMPACT_EACH + 1
    found = FileLists(store, FOLDER, LIFE).known(at)
    assert found is not None
    assert len(found.files) == 1000


class DiedError(Exception):
    """The process ended."""


@pytest.mark.parametrize("dies_after", range(60))
def test_whatever_a_process_dies_after_the_landed_position_has_its_lists(dies_after: int) -> None:
    steps = count()

    def step(_label: str) -> None:
        if next(steps) == dies_after:
            raise DiedError

    store = MemoryStore(step)
    lists = FileLists(store, FOLDER, LIFE)
    read: list[SourceFile] = []
    landed, known = NOTHING_READ, NOTHING
    try:
        for files in batches(40):
            known = lists.record(known, landed, files)
            landed, read = after(landed, files), [*read, *files]
    except DiedError:
        pass

    successor = FileLists(MemoryStore(), FOLDER, LIFE)
    successor._store.files = store.files  # type: ignore[attr-defined] # the same storage, with nothing that dies
    found = successor.known(landed)
    assert found is not None
    assert list(found.files) == read
    again = successor.record(found, landed, [source_file("other", 9_999)])
    assert successor.known(after(landed, [source_file("other", 9_999)])) is not None
    assert again.files[-1].path == "other"


def test_plans_that_never_landed_do_not_count() -> None:
    store = MemoryStore()
    at, known = recorded(FileLists(store, FOLDER, LIFE), batches(COMPACT_EACH + 3))
    other = [source_file("other", 5_000)]
    FileLists(store, FOLDER, LIFE).record(known, at, [source_file("never landed", 5_000)])

    FileLists(store, FOLDER, LIFE).record(known, at, other)

    found = FileLists(store, FOLDER, LIFE).known(after(at, other))
    assert found is not None
    assert [file.path for file in found.files[-1:]] == ["other"]
    assert all(file.path != "never landed" for file in found.files)


def test_a_range_that_landed_long_ago_is_found_in_lists_that_go_further() -> None:
    store = MemoryStore()
    planned = batches(45)
    recorded(FileLists(store, FOLDER, LIFE), planned)
    start = after(NOTHING_READ, [file for files in planned[:7] for file in files])
    end = after(start, planned[7])

    assert FileLists(store, FOLDER, LIFE).between(start, end) == tuple(planned[7])
    assert FileLists(store, FOLDER, LIFE).between(start, after(start, [source_file("other")])) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"v2\n{}\n",
        b"v1\n[]\n",
        b"\xff",
        b'v1\n{"after": "0", "until": "0"}\n["a", 1, 2]\n',
        b'v1\n{"after": "0", "until": "0"}\n["a", 1, 2, "3"]\n',
    ],
)
def test_what_is_not_a_list_is_named_and_never_read_as_one(content: bytes) -> None:
    with pytest.raises(MalformedList):
        parse(content)
    store = MemoryStore()
    at = after(NOTHING_READ, [source_file("a")])
    store.files[f"{FOLDER}/{name_of(NOTHING_READ, at, LIFE)}"] = content
    with pytest.raises(ListUnfit, match="is not a list of files") as problem:
        FileLists(store, FOLDER, LIFE).known(at)
    assert ending_of(problem.value, in_batch=False)[0] is Ending.REFUSED, "waiting mends nothing"


def test_a_list_without_files_says_nothing_and_is_not_followed_to_itself_for_ever() -> None:
    store = MemoryStore()
    at = after(NOTHING_READ, [source_file("a")])
    store.files[f"{FOLDER}/{name_of(at, at, LIFE)}"] = render(FileList(at, at, ()))
    assert FileLists(store, FOLDER, LIFE).known(at) is None


def test_a_list_that_was_changed_is_noticed_by_its_position() -> None:
    files = tuple(source_file(f"{number}", number) for number in range(3))
    content = render(FileList(NOTHING_READ, after(NOTHING_READ, files), files))

    assert parse(content).files == files
    with pytest.raises(MalformedList, match="do not lead"):
        parse(content.replace(b'["1", 10', b'["1", 11'))


def test_a_folder_proves_what_was_read_only_while_all_of_it_is_there() -> None:
    files = [source_file(f"{number}", number) for number in range(6)]
    position = after(NOTHING_READ, files[:4])

    assert rebuilt(position, reversed(files)) == tuple(files[:4])
    assert rebuilt(position, files[1:]) is None, "one has gone"
    assert rebuilt(position, [source_file("late", 1), *files]) is None, "one has come with an old time"
    assert rebuilt(position, files[:3]) is None
