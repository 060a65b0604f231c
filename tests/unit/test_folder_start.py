"""Where a stream starts in a folder: behind files that are older than a moment, or that a query of Spark's own has read."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.format import Format
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_lists import FileLists
from exactlyonce.connectors.files.source_plan import FileChanged, FileLimit, left_out_before
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, count_of
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce_spark.connectors.files.source_planner import Folder, FolderPlanner, Ready
from exactlyonce_spark.connectors.files.source_reader import FolderRecords
from exactlyonce_spark.connectors.files.source_records import Place, _parts
from exactlyonce_spark.connectors.files.source_rows import placed
from exactlyonce_spark.connectors.files.spark_query import QueryUnfit, files_read_by, path_below
from tests.file_queries import DAMAGED, made
from tests.folder_in_memory import MemoryFolder, SetClock, source_file
from tests.simulation.files import MemoryStore

MOMENT = 5

Outcome = tuple[int, list[str]]


def planner_of(
    folder: Folder,
    store: MemoryStore,
    left_out: Callable[[Folder], tuple[SourceFile, ...]],
    *,
    delete: bool = False,
) -> FolderPlanner:
    lists = FileLists(store, "source", "life-1")
    ready = Ready(timedelta(0), latest_first=False, delete=delete)
    return FolderPlanner(folder, lists, FileLimit(2, 1 << 30), ready, SetClock(2e9), left_out=left_out)


def older(folder: Folder) -> tuple[SourceFile, ...]:
    return left_out_before(folder.files(), MOMENT * 1000)


def read_all(planner: FolderPlanner, at: int = NOTHING_READ) -> Outcome:
    """Plan until there is nothing more; return where that is, and the files of which tasks read something."""
    read: list[str] = []
    while (end := planner.end(at)) != at:
        read += [each.file.path for each in placed(at, planner.files(at, end)) if not each.file.is_left_out]
        at = end
    return at, read


def test_files_older_than_the_moment_are_counted_and_not_read_and_later_ones_are_read_whatever_their_times() -> None:
    folder, store = MemoryFolder(), MemoryStore()
    folder.put(*(source_file(str(second), second) for second in range(1, 9)))

    at, read = read_all(planner_of(folder, store, older))

    assert read == ["5", "6", "7", "8"]
    assert count_of(at) == 8
    folder.put(source_file("late", 2))
    again = planner_of(folder, store, older)  # another driver, which knows by the lists what was left out
    assert read_all(again, at)[1] == ["late"]


def test_what_was_left_out_is_neither_cleaned_nor_missed_and_named_once_it_changes() -> None:
    folder, store = MemoryFolder(), MemoryStore()
    folder.put(*(source_file(str(second), second) for second in range(1, 9)))
    planner = planner_of(folder, store, older, delete=True)
    at, _ = read_all(planner)
    assert set(folder.held) == {"1", "2", "3", "4"}, "what has landed is gone, and what was left out stays"

    folder.put(source_file("2", 9))
    with pytest.raises(FileChanged, match=r"2 \(left out at the start, and written to since\)"):
        planner_of(folder, store, older).end(at)


def test_a_file_that_was_left_out_in_a_plan_that_never_landed_is_not_missed() -> None:
    folder, store = MemoryFolder(), MemoryStore()
    folder.put(*(source_file(str(second), second) for second in range(1, 9)))
    assert count_of(planner_of(folder, store, older).end(NOTHING_READ)) == 4
    del folder.held["1"]

    at, read = read_all(planner_of(folder, store, older))

    assert (count_of(at), read) == (7, ["5", "6", "7", "8"])


def test_a_folder_in_which_nothing_is_old_is_read_from_its_first_file_on() -> None:
    folder = MemoryFolder()
    planner = planner_of(folder, MemoryStore(), older)
    assert planner.end(NOTHING_READ) == NOTHING_READ
    folder.put(source_file("6", 6), source_file("7", 7))

    assert read_all(planner)[1] == ["6", "7"]


def test_until_a_file_has_been_planned_one_with_an_old_time_that_comes_is_left_out_and_after_that_it_is_read() -> None:
    folder = MemoryFolder()
    planner = planner_of(folder, MemoryStore(), older)
    assert planner.end(NOTHING_READ) == NOTHING_READ
    folder.put(source_file("2", 2), source_file("6", 6))

    at, read = read_all(planner)

    assert read == ["6"]
    folder.put(source_file("3", 3))
    assert read_all(planner, at)[1] == ["3"]


def test_a_moment_between_two_milliseconds_leaves_out_the_one_before() -> None:
    start = {"from": "Timestamp", "timestamp": "1970-01-01T00:00:01.0000001Z"}
    assert FilesSource.model_validate({"path": "/in", "start": start}).start.milliseconds == 1000
    start = {"from": "Timestamp", "timestamp": "1970-01-01T00:00:01.000100Z"}
    assert FilesSource.model_validate({"path": "/in", "start": start}).start.milliseconds == 1001


@pytest.fixture
def state(tmp_path: Path) -> Callable[[str], Path]:
    def put(name: str) -> Path:
        folder = made(name, tmp_path)
        for number, file in enumerate(sorted((folder / "source").glob("*.json"))):
            os.utime(file, (1_767_225_600 + 60 * number,) * 2)  # as scripts/make_golden_file_queries.py has it
        return folder

    return put


@pytest.mark.parametrize(
    ("name", "unread"),
    [("equal", []), ("by-three", []), ("listed", ["13.json"]), ("older-compact-missing", [])],
)
def test_a_stream_continues_behind_a_query_of_spark_without_reading_a_file_twice_or_passing_over_one(
    state: Callable[[str], Path], name: str, unread: list[str]
) -> None:
    folder = state(name)
    source = LocalFolder(str(folder / "source"))
    store = LocalLogStore(str(folder / "checkpoint"))

    at, read = read_all(planner_of(source, MemoryStore(), lambda _: files_read_by(store, str(folder / "source"))))

    assert read == unread, "Spark lists a file before it plans it: such a one has not been read"
    assert count_of(at) == len(source.files())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("planned", "Batch 12 of the query of .* is not committed, so nobody knows .* let it end by itself"),
        ("written", "Batch 12 of the query of .* is not committed"),
        ("two-sources", "does not read one folder alone"),
        ("stateful", "keeps state, which holds records that have not taken effect"),
        ("source-gap", "11"),
        ("source-torn", "sources/0/12"),
        ("source-empty", "sources/0/12"),
        ("source-compact-missing", "9.compact"),
        ("source-version-later", "12"),
    ],
)
def test_a_query_that_does_not_prove_what_has_taken_effect_is_refused(
    state: Callable[[str], Path], name: str, sentence: str
) -> None:
    assert name in DAMAGED or name in ("planned", "written", "two-sources", "stateful")
    folder = state(name)

    with pytest.raises(QueryUnfit, match=sentence):
        files_read_by(LocalLogStore(str(folder / "checkpoint")), str(folder / "source"))


def test_what_is_no_checkpoint_or_one_of_another_folder_is_refused(state: Callable[[str], Path]) -> None:
    folder = state("equal")

    with pytest.raises(QueryUnfit, match="is the output folder of a query and not its checkpoint"):
        files_read_by(LocalLogStore(str(folder / "output")), str(folder / "source"))
    with pytest.raises(QueryUnfit, match="There is no folder"):
        files_read_by(LocalLogStore(str(folder / "none")), str(folder / "source"))
    with pytest.raises(QueryUnfit, match=r"has read file://.*00\.json.* and 10 more, outside of /elsewhere"):
        files_read_by(LocalLogStore(str(folder / "checkpoint")), "/elsewhere")


@pytest.mark.parametrize(
    ("path", "folder", "below"),
    [
        ("file:///in/a%20b%25.json", "/in", "a b%.json"),
        ("file:/in/day=1/a.json", "/in", "day=1/a.json"),
        ("/in/a.json", "/in", "a.json"),
        ("s3a://lake/in/a.json", "s3a://lake/in", "a.json"),
        ("s3://lake/in/a.json", "s3a://lake/in", "a.json"),
        ("file:///inner/a.json", "/in", None),
        ("s3a://other/in/a.json", "s3a://lake/in", None),
        ("hdfs://name/in/a.json", "/in", None),
    ],
)
def test_paths_of_sparks_log_are_told_as_the_folder_lists_them(path: str, folder: str, below: str | None) -> None:
    assert path_below(path, folder) == below


def test_what_the_resource_says_of_the_start_reaches_the_planner_and_no_task_is_given_what_is_left_out(
    state: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = state("listed")

    def read_with(start: dict[str, str]) -> list[str]:
        source = {"path": f"file://{folder}/source", "minFileAge": "0s", "start": start}
        where = {"local": {"path": str(tmp_path / start["from"])}}
        records = FolderRecords(
            FilesSource.model_validate(source),
            Checkpoint.model_validate(where),
            Format.model_validate({"schema": "id BIGINT"}),
            "a life",
        )
        session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        place = Place.of(records._options(session))
        planner, at, read = place.planner(FileLimit(100, 1 << 30)), NOTHING_READ, []
        while (end := planner.end(at)) != at:
            read += [each.file.path for part in _parts(planner, at, end, 2) for each in part.files]
            at = end
        return sorted(read)

    assert len(read_with({"from": "Oldest"})) == 14
    assert read_with({"from": "SparkCheckpoint", "checkpoint": f"file://{folder}/checkpoint"}) == ["13.json"]
    assert read_with({"from": "Timestamp", "timestamp": "2026-01-01T00:11:00Z"}) == ["11.json", "12.json", "13.json"]
