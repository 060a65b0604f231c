"""What each batch of a folder reads: the oldest files that nobody has read, within the limit, and nothing that changed."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest

from exactlyonce.connectors.files.source_lines import FileUnreadable
from exactlyonce.connectors.files.source_lists import COMPACT_EACH, FileLists
from exactlyonce.connectors.files.source_plan import FileChanged, FileLimit
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, count_of
from exactlyonce_spark.connectors.files.source_planner import FilesGone, FilesUnknown, FolderPlanner, Ready
from tests.folder_in_memory import MemoryFolder, SetClock, source_file
from tests.simulation.files import MemoryStore

NO_AGE = timedelta(0)


class Query:
    """A folder, the lists of its stream, and planners over them, one for each life of a driver."""

    def __init__(self) -> None:
        self.folder = MemoryFolder()
        self.store = MemoryStore()
        self.clock = SetClock()

    def planner(
        self,
        files: int = 2,
        size_bytes: int = 1000,
        records: int | None = None,
        *,
        min_age: timedelta = NO_AGE,
        latest_first: bool = False,
        delete: bool = False,
        archive: str | None = None,
        life: str = "life-1",
    ) -> FolderPlanner:
        limit = FileLimit(files, size_bytes, records)
        return FolderPlanner(
            self.folder,
            FileLists(self.store, "source", life),
            limit,
            Ready(min_age, latest_first, delete, archive),
            self.clock,
        )


def planned(planner: FolderPlanner, start: int) -> tuple[int, list[str]]:
    """Return where the next batch ends, and its files."""
    end = planner.end(start)
    return end, [file.path for file in planner.files(start, end)]


def all_planned(planner: FolderPlanner, start: int = NOTHING_READ) -> list[list[str]]:
    """Return the files of each batch until there are no more."""
    found = []
    while (batch := planned(planner, start))[0] != start:
        start, files = batch
        found.append(files)
    return found


@pytest.fixture
def query() -> Query:
    return Query()


def test_the_oldest_files_come_first_and_of_equal_ones_by_their_paths(query: Query) -> None:
    query.folder.put(*(source_file(path, seconds) for path, seconds in [("d", 1), ("b", 5), ("a", 5), ("c", 9)]))

    assert all_planned(query.planner()) == [["d", "a"], ["b", "c"]]
    assert all_planned(query.planner(latest_first=True)) == [["c", "b"], ["a", "d"]]


def test_bytes_limit_a_batch_of_more_than_one_file_and_records_where_a_batch_was_too_large(query: Query) -> None:
    query.folder.put(*(source_file(f"{number}", number, size) for number, size in enumerate([400, 700, 100, 5000, 1])))

    assert all_planned(query.planner(files=9)) == [["0"], ["1", "2"], ["3"], ["4"]]
    assert all_planned(query.planner(files=9, size_bytes=10_000, records=5)) == [["0", "1"], ["2", "3"], ["4"]]
    assert all_planned(query.planner(files=9, size_bytes=10_000, records=1)) == [["0"], ["1"], ["2"], ["3"], ["4"]]


def test_a_driver_that_starts_again_reads_what_its_predecessor_planned_and_then_what_follows(query: Query) -> None:
    query.folder.put(*(source_file(f"{number}", number) for number in range(5)))
    first, _ = planned(query.planner(), NOTHING_READ)
    second, files = planned(query.planner(), first)

    assert files == ["2", "3"]
    query.folder.put(source_file("late", 1))
    assert [file.path for file in query.planner().files(first, second)] == ["2", "3"], "a replay has exactly its files"
    assert planned(query.planner(), second)[1] == ["late", "4"]
    assert planned(query.planner(), first)[1] == ["late", "2"], "a plan that did not land is made again"


def test_a_file_that_comes_with_an_old_time_is_read_and_named(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    query.folder.put(source_file("new", 100))
    planner = query.planner()
    at, _ = planned(planner, NOTHING_READ)
    query.folder.put(source_file("newer", 200), source_file("old", 5))

    with caplog.at_level(logging.WARNING, "exactlyonce.files"):
        assert planned(planner, at)[1] == ["old", "newer"]

    assert [record.getMessage() for record in caplog.records] == [
        "Files with older times than those already read have appeared in /incoming and are read now: old."
    ]


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (source_file("0", 0, 25), r"0 \(25 bytes, was 10\) in /incoming changed after they had been read"),
        (source_file("0", 7), r"0 \(of 10 bytes as before, but written to since\) in /incoming changed"),
    ],
)
@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_file_that_changes_after_it_was_read_is_named_and_never_passed_over(
    query: Query, file: SourceFile, sentence: str, is_same_process: bool
) -> None:
    query.folder.put(source_file("0", 0), source_file("1", 1))
    planner = query.planner()
    at, _ = planned(planner, NOTHING_READ)
    query.folder.put(file, source_file("2", 2))

    with pytest.raises(FileChanged, match=f"{sentence}.*into files of other names, and remove these"):
        (planner if is_same_process else query.planner()).end(at)

    del query.folder.held["0"]
    assert planned(query.planner(), at)[1] == ["2"], "it was removed, as the sentence says"


def test_files_that_were_read_may_go_and_come_back(query: Query) -> None:
    query.folder.put(source_file("0", 0), source_file("1", 1))
    planner = query.planner()
    at, _ = planned(planner, NOTHING_READ)
    query.folder.held.clear()
    assert planner.end(at) == at
    query.folder.put(source_file("0", 0))

    assert planner.end(at) == at
    assert query.planner().end(at) == at


def test_a_young_file_is_left_until_it_is_old_enough(query: Query) -> None:
    query.folder.put(source_file("young", 999_998), source_file("old", 999_990))
    planner = query.planner(min_age=timedelta(seconds=5))

    at, files = planned(planner, NOTHING_READ)
    assert files == ["old"]
    assert planner.end(at) == at
    query.clock.now += 3

    assert planned(planner, at)[1] == ["young"]


def test_a_query_that_ends_reads_what_there_was_when_it_began_young_files_too(query: Query) -> None:
    query.folder.put(source_file("young", 999_998), source_file("old", 999_990))
    planner = query.planner(min_age=timedelta(seconds=5))
    planner.read_until_now()
    query.folder.put(source_file("later", 999_991))

    assert all_planned(planner) == [["old", "young"]]
    assert all_planned(query.planner()) == [["old", "later"], ["young"]]


def test_a_folder_in_which_nothing_is_new_is_left_alone_for_a_while(query: Query) -> None:
    assert query.planner().end(NOTHING_READ) == NOTHING_READ

    assert query.clock.slept == [0.25]


def test_lists_that_are_gone_are_written_again_where_the_folder_proves_what_was_read(query: Query) -> None:
    query.folder.put(*(source_file(f"{number}", number) for number in range(5)))
    at, _ = planned(query.planner(files=3), NOTHING_READ)
    query.store.files.clear()

    assert [file.path for file in query.planner().files(NOTHING_READ, at)] == ["0", "1", "2"]
    assert planned(query.planner(), at)[1] == ["3", "4"]
    del query.folder.held["0"]
    assert planned(query.planner(), at)[1] == ["3", "4"], "the lists are there again"


def test_without_lists_and_without_proof_nothing_is_read_and_the_sentence_says_what_to_do(query: Query) -> None:
    query.folder.put(*(source_file(f"{number}", number) for number in range(5)))
    at, _ = planned(query.planner(files=3), NOTHING_READ)
    query.store.files.clear()
    del query.folder.held["1"]

    for ask in (lambda: query.planner().end(at), lambda: query.planner().files(NOTHING_READ, at)):
        with pytest.raises(
            FilesUnknown, match=r"3 files of /incoming .* nothing says which.*Restore the lists; or move"
        ):
            ask()
    assert count_of(at) == 3


def test_files_are_taken_away_once_the_batch_behind_them_is_planned_and_not_before(query: Query) -> None:
    for archive in (None, "/archive"):
        query.folder.put(*(source_file(f"{number}", number) for number in range(4)))
        query.store.files.clear()
        planner = query.planner(delete=archive is None, archive=archive)

        first, _ = planned(planner, NOTHING_READ)
        assert set(query.folder.held) == {"0", "1", "2", "3"}, "nothing has landed"
        query.planner(delete=archive is None, archive=archive).files(NOTHING_READ, first)
        assert set(query.folder.held) == {"0", "1", "2", "3"}, "a replay takes nothing away"
        second, _ = planned(planner, first)
        assert set(query.folder.held) == {"2", "3"}
        assert planner.end(second) == second
        assert query.folder.held == {}
    assert set(query.folder.archived) == {f"/archive/{number}" for number in range(4)}


def test_what_a_restored_ledger_has_forgotten_is_named_where_its_files_are_gone(query: Query) -> None:
    query.folder.put(*(source_file(f"{number}", number) for number in range(6)))
    planner = query.planner()
    first, _ = planned(planner, NOTHING_READ)
    second, _ = planned(planner, first)
    planned(planner, second)
    del query.folder.held["1"], query.folder.held["3"]

    with pytest.raises(
        FilesGone,
        match=r"^Planned into a batch and gone from /incoming: 3\. .* reset to an earlier time\. Put the files",
    ):
        query.planner().end(first)
    with pytest.raises(FilesGone, match=r"gone from /incoming: 1, 3\.") as told:
        query.planner().end(NOTHING_READ)

    query.folder.put(source_file("3", 3))
    assert planned(query.planner(), first)[1] == ["2", "3"], "it was put back"
    del query.folder.held["3"]
    for name in list(query.store.files):
        if name.rpartition("/")[2] in str(told.value):
            del query.store.files[name]
    assert planned(query.planner(), NOTHING_READ)[1] == ["0", "2"], "the lists were removed, as the sentence says"


def test_a_stream_that_starts_over_misses_no_file_that_its_former_life_has_planned(query: Query) -> None:
    query.folder.put(*(source_file(f"{number}", number) for number in range(6)))
    former = query.planner(delete=True)
    assert all_planned(former) == [["0", "1"], ["2", "3"], ["4", "5"]]
    query.folder.put(source_file("new", 9))

    started_over = query.planner(delete=True, life="life-2")
    end, files = planned(started_over, NOTHING_READ)
    assert files == ["new"], "what has landed in the former life was removed"
    assert planned(query.planner(life="life-2"), end) == (end, [])

    with pytest.raises(FilesGone, match=r"gone from /incoming: 0, 1, 2, 3, 4"):
        query.planner().end(NOTHING_READ)  # the former life, whose ledger was restored


def test_a_compact_list_leaves_those_of_another_life_alone(query: Query) -> None:
    query.folder.put(*(source_file(f"{number:02}", number) for number in range(COMPACT_EACH + 2)))
    at, _ = planned(query.planner(files=2), NOTHING_READ)
    former = set(query.store.files)

    all_planned(query.planner(files=1, life="life-2"))

    assert former <= set(query.store.files)
    assert query.planner().end(at) != at, "the former life still knows what it has read"


def test_where_more_files_are_gone_than_a_sentence_names_it_says_where_all_names_are(query: Query) -> None:
    query.folder.put(*(source_file(f"{number}", number) for number in range(9)))
    planned(query.planner(files=9), NOTHING_READ)
    query.folder.held.clear()

    with pytest.raises(
        FilesGone, match=r"0, 1, 2, 3, 4 and 4 more\. .*each name, one per line\): \S*/source/\S*\.$"
    ) as told:
        query.planner().end(NOTHING_READ)

    (named,) = [name for name in query.store.files if name in str(told.value)]
    lines = query.store.files[named].decode().splitlines()
    assert [json.loads(line)[0] for line in lines[2:]] == [f"{number}" for number in range(9)]


def test_a_file_that_a_superseded_driver_removes_is_named_however_late_it_does(query: Query) -> None:
    """By its ledger the file had landed; by the ledger that was set back since it has not."""
    query.folder.put(*(source_file(f"{number}", number) for number in range(6)))
    planner = query.planner()
    first, _ = planned(planner, NOTHING_READ)
    planned(planner, first)
    successor = query.planner()
    assert planned(successor, NOTHING_READ)[1] == ["0", "1"]
    del query.folder.held["3"]

    with pytest.raises(FilesGone, match=r"gone from /incoming: 3\."):
        successor.end(first)


def test_a_ledger_that_stands_in_front_of_a_compact_list_is_served_by_what_that_list_holds(query: Query) -> None:
    query.folder.put(*(source_file(f"{number:02}", number) for number in range(40)))
    planner, at, reached = query.planner(files=1), NOTHING_READ, []
    for _ in range(35):
        at, _ = planned(planner, at)
        reached.append(at)

    assert planned(query.planner(), reached[2])[1] == ["03", "04"]


def test_a_file_whose_records_cannot_be_counted_is_a_batch_of_its_own_and_no_other_file_fails_with_it() -> None:
    folder = MemoryFolder()
    folder.put(*(source_file(name, number) for number, name in enumerate(("a", "damaged", "b", "c"))))

    def count(file: SourceFile) -> int:
        if file.path == "damaged":
            raise FileUnreadable("it is damaged")
        return 1

    planner = FolderPlanner(
        folder,
        FileLists(MemoryStore(), "source", "life-1"),
        FileLimit(100, 1000, records=3),
        Ready(NO_AGE, latest_first=False),
        SetClock(),
        count,
    )

    assert all_planned(planner) == [["a"], ["damaged"], ["b", "c"]]
