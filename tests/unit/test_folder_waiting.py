"""How much of a folder has not landed: counted by the planner at each listing, told to the driver, served as metrics."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exactlyonce.connectors.files.source_lists import FileLists
from exactlyonce.connectors.files.source_plan import FileLimit, Told, Waiting
from exactlyonce.connectors.files.source_position import NOTHING_READ
from exactlyonce_spark.connectors.files.source_planner import FolderPlanner, Ready
from exactlyonce_spark.connectors.files.told_waiting import WaitingReader, WaitingWriter, new_file
from exactlyonce_spark.metrics import OF_FOLDERS, OLDEST_NOT_LANDED, DriverMetrics, NotLanded
from tests.folder_in_memory import MemoryFolder, SetClock, source_file
from tests.simulation.files import MemoryStore


def planner_of(
    folder: MemoryFolder,
    told: list[Told],
    files: int = 2,
    min_age: float = 0,
    tell: Callable[[Told], None] | None = None,
) -> FolderPlanner:
    lists = FileLists(MemoryStore(), "source", "life-1")
    ready = Ready(timedelta(seconds=min_age), latest_first=False)
    return FolderPlanner(folder, lists, FileLimit(files, 10_000), ready, SetClock(), tell=tell or told.append)


def values(text: str) -> dict[str, float]:
    return {it.name: it.value for family in text_string_to_metric_families(text) for it in family.samples}


def test_what_waits_is_every_file_that_has_not_landed_the_planned_ones_among_them() -> None:
    folder, told = MemoryFolder(), list[Told]()
    folder.put(source_file("a", 3, 100), source_file("b", 1, 20), source_file("c", 2, 5))
    planner = planner_of(folder, told)

    first = planner.end(NOTHING_READ)
    second = planner.end(first)
    assert planner.end(second) == second

    all_three, last, none = Waiting(3, 125, 1000), Waiting(1, 100, 3000), Waiting(0, 0, None)
    assert told == [
        *(Told(all_three), Told(all_three, last, first)),
        *(Told(last), Told(last, none, second)),
        Told(none),
    ], "and what is left once the batch has landed is told with the batch"


def test_a_file_that_is_too_young_to_be_read_waits_as_well() -> None:
    folder, told = MemoryFolder(), list[Told]()
    folder.put(source_file("young", 1_000_000, 7))

    planner_of(folder, told, min_age=60).end(NOTHING_READ)

    assert told == [Told(Waiting(1, 7, 1_000_000_000))]


def test_the_driver_serves_what_its_planner_has_told(tmp_path: Path) -> None:
    path = tmp_path / "waiting.json"
    metrics = DriverMetrics(not_landed=WaitingReader(str(path)).not_landed)
    assert not [name for name in values(metrics.text()) if "not_landed" in name], "nothing is told yet"

    WaitingWriter(path)(Told(Waiting(3, 125, 1500)))
    found = values(metrics.text())
    assert [found[series.name] for series in OF_FOLDERS] == [3, 125, 1.5, metrics.started_seconds]

    WaitingWriter(path)(Told(Waiting(0, 0, None)))
    found = values(metrics.text())
    assert [found.get(series.name) for series in OF_FOLDERS[:3]] == [0, 0, None], "no file waits, so none is the oldest"


def test_what_has_landed_is_taken_off_though_the_folder_is_listed_again_only_an_hour_later(tmp_path: Path) -> None:
    """trigger.interval: Spark plans the next batch at the trigger, and until then the planner hears nothing."""
    path, folder = tmp_path / "waiting.json", MemoryFolder()
    reader = WaitingReader(str(path))
    metrics = DriverMetrics(not_landed=reader.not_landed, note_landed=reader.note_landed)
    planner = planner_of(folder, [], tell=WaitingWriter(path))

    def oldest() -> float | None:
        return values(metrics.text()).get(OLDEST_NOT_LANDED.name)

    folder.put(source_file("a", 3, 100), source_file("b", 1, 20), source_file("c", 2, 5))
    first = planner.end(NOTHING_READ)
    assert oldest() == 1, "planned, and not landed"
    metrics.begun()
    metrics.landed(2, 2)
    assert (reader.not_landed(), oldest()) == (NotLanded(1, 100, 3), 3)
    second = planner.end(first)
    assert oldest() == 3
    metrics.begun()
    metrics.landed(1, 1)
    assert (reader.not_landed(), oldest()) == (NotLanded(0, 0, None), None)
    folder.put(source_file("d", 3, 100))  # another one that has the same time and size
    planner.end(second)
    assert (reader.not_landed(), oldest()) == (NotLanded(1, 100, 3), 3)


def test_what_has_not_changed_is_written_again_after_a_while_alone(tmp_path: Path) -> None:
    path, at = tmp_path / "waiting.json", [0.0]
    writer = WaitingWriter(path, lambda: at[0])
    writer(Told(Waiting(1, 2, 3)))
    path.unlink()
    writer(Told(Waiting(1, 2, 3)))
    assert not path.exists()

    at[0] = 60.0
    writer(Told(Waiting(1, 2, 3)))
    assert WaitingReader(str(path)).not_landed() == NotLanded(1, 2, 0.003)


@pytest.mark.parametrize(
    "held", ["", "[1, 2", "\udcff", '{"files": 1}', "[1, 2, 3]", '[["1", 2, 3], null, null]', "[[1, 2], null, null]"]
)
def test_a_file_that_is_no_such_telling_costs_the_metric_alone(held: str, tmp_path: Path) -> None:
    path = tmp_path / "waiting.json"
    path.write_bytes(held.encode(errors="surrogateescape"))
    reader = WaitingReader(str(path))
    reader.note_landed()
    assert reader.not_landed() is None


def test_a_folder_that_takes_no_file_costs_the_metric_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    WaitingWriter(tmp_path / "absent" / "waiting.json")(Told(Waiting(1, 2, 3)))
    assert "could not be written" in caplog.text

    def refused(prefix: str) -> str:
        raise OSError("read-only")

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    assert new_file() is None


def test_each_driver_has_a_file_of_its_own_and_removes_those_of_drivers_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    with monkeypatch.context() as other_process:
        other_process.setattr("os.getpid", lambda: gone.pid)
        left = new_file()
    assert left is not None
    Path(left).write_text("[]")
    others = tmp_path / "exactlyonce-waiting-somewhere-else-1-x"
    others.mkdir()

    made = [new_file(), new_file()]

    assert len({*made, None}) == 3
    assert {*tmp_path.iterdir()} == {others, *(Path(path).parent for path in made if path is not None)}
