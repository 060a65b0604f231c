"""Small files become one: whoever dies where, every reader counts each record once, and what is left can be removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from exactlyonce.connectors.files import compaction_plan
from exactlyonce.connectors.files.compaction import POINTS, CompactionOvertaken
from exactlyonce.connectors.files.compaction_plan import planned
from exactlyonce.connectors.files.connector import FILES, CompactionUnsupported, FilesFolder
from exactlyonce.connectors.files.manifest import DataFile, Manifest
from exactlyonce.connectors.files.spark_log import FOLDER, LogUnfit
from exactlyonce.connectors.files.spec import FileFormat, FilesSink, ManifestKind
from exactlyonce.connectors.files.tenancy import FilesLost
from exactlyonce.errors import CommitOutcomeUnknown
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.files.target import FilesTarget
from tests.compacted_lake import CompactedLake, Killed
from tests.ledgers import STREAM
from tests.object_logs import ledger_on
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.objects import MemoryObjects

LEDGERS: dict[str, Callable[[], Ledger]] = {
    "in memory": lambda: MemoryLedger(MemoryDatabase()),
    "object log": lambda: ledger_on(MemoryObjects(), every=5),  # which has archived most of what is replaced
}

BETWEEN_TRANSACTIONS = [point for point in POINTS if point != "compact.before-switch"]
"""Where it holds no lock."""


@pytest.fixture
def lake(tmp_path: Path) -> CompactedLake:
    return CompactedLake(folder_at(tmp_path), MemoryLedger(MemoryDatabase()))


def folder_at(path: Path, manifest: ManifestKind = ManifestKind.SPARK_METADATA) -> FilesFolder:
    return FILES.folder(FilesSink(path=str(path / "lake"), manifest=manifest), {})


def dies_at(point: str) -> Callable[[str], None]:
    def reached(at: str) -> None:
        if at == point:
            raise Killed

    return reached


@pytest.mark.parametrize("ledger", LEDGERS)
def test_small_files_become_one_and_every_reader_counts_the_same(tmp_path: Path, ledger: str) -> None:
    lake = CompactedLake(folder_at(tmp_path), LEDGERS[ledger]())
    lake.land(1, 12)
    assert len(lake.folder.small_files(lake.ledger, STREAM)) == 1
    assert lake.compact() == 9, "what Spark's log shows by entries of their own stays"
    lake.require(12)
    assert len(lake.listed()) == len(lake.shown()) == 4
    assert lake.folder.small_files(lake.ledger, STREAM) == ()
    assert lake.compact() == 0
    lake.next_driver()
    lake.land(13, 25)
    lake.require(25)
    assert lake.compact() == 10
    lake.require(25)


def test_without_a_log_for_spark_all_that_has_landed_is_merged(tmp_path: Path) -> None:
    lake = CompactedLake(folder_at(tmp_path, ManifestKind.NONE), MemoryLedger(MemoryDatabase()))
    lake.land(1, 3)
    assert lake.compact() == 3
    lake.require(3)
    assert len(lake.listed()) == 1
    lake.a_day_passes()
    assert len(lake.orphans()) == 3


@pytest.mark.parametrize("point", POINTS)
def test_a_compaction_that_dies_anywhere_changes_nothing_that_counts_and_is_finished_by_the_next(
    lake: CompactedLake, point: str
) -> None:
    lake.land(1, 12)
    with pytest.raises(Killed):
        lake.compact(dies_at(point))
    lake.require(12)
    lake.next_driver()
    lake.land(13, 13)
    lake.require(13)
    lake.compact()
    lake.require(13)
    assert len(lake.shown()) == 5
    left = lake.orphans()
    is_before_the_switch = (
        POINTS.index("compact.file-written") <= POINTS.index(point) < POINTS.index("compact.switched")
    )
    assert len(left) == is_before_the_switch, "the merged file of the dead attempt"
    lake.remove_orphans()
    lake.require(13)
    lake.a_day_passes()
    lake.remove_orphans()
    lake.require(13)
    assert len([name for name in lake.store.tree("") if name.endswith(".parquet")]) == 5
    lake.compact()
    lake.next_driver()
    lake.require(13)


@pytest.mark.parametrize("point", BETWEEN_TRANSACTIONS)
def test_a_driver_that_lands_meanwhile_is_not_disturbed(lake: CompactedLake, point: str) -> None:
    lake.land(1, 12)

    def lands(at: str) -> None:
        if at == point and lake.permit.epoch == 1:
            lake.land(13, 20)
            lake.next_driver()

    lake.compact(lands)
    lake.require(20)


@pytest.mark.parametrize("point", BETWEEN_TRANSACTIONS)
def test_of_two_compactions_at_once_one_merges(lake: CompactedLake, point: str) -> None:
    lake.land(1, 12)
    merged = []

    def another(at: str) -> None:
        if at == point:
            merged.append(lake.compact())
            lake.require(12)

    if POINTS.index(point) < POINTS.index("compact.switched"):
        with pytest.raises(CompactionOvertaken, match="another compaction was at work, or the ledger was restored"):
            lake.compact(another)
        assert merged == [9]
    else:
        assert lake.compact(another) == 9
        assert merged == [0]
    lake.require(12)
    lake.remove_orphans()
    lake.require(12)


def test_a_compaction_that_slept_until_its_files_were_merged_and_removed_says_that_it_was_overtaken(
    lake: CompactedLake,
) -> None:
    lake.land(1, 12)

    def sleeps(at: str) -> None:
        if at == "compact.marked":
            lake.compact()
            lake.a_day_passes()
            lake.remove_orphans()

    with pytest.raises(CompactionOvertaken):
        lake.compact(sleeps)
    lake.require(12)


@pytest.mark.parametrize("point", BETWEEN_TRANSACTIONS)
def test_orphans_that_are_removed_meanwhile_are_none_of_its_files(lake: CompactedLake, point: str) -> None:
    lake.land(1, 12)
    assert lake.compact(lambda at: lake.remove_orphans() if at == point else None) == 9
    lake.require(12)
    lake.next_driver()


def test_a_driver_that_read_sparks_log_before_it_was_changed_shows_small_files_once_more_and_none_is_removed(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes 19.compact of the 9.compact that it has read; the next compaction changes that, too."""
    lake.land(1, 18)
    committable = lake.record(19)
    create = lake.store.create

    def late(path: str, content: bytes) -> object:
        if path == f"{FOLDER}/19.compact":
            assert lake.compact() == 9
            lake.a_day_passes()
            assert lake.orphans() == [], "it may show them yet"
        return create(path, content)

    monkeypatch.setattr(lake.target._store, "create", late)
    lake.target.publish(BatchNumber(19), committable)
    assert len(lake.shown()) == 19
    lake.require(19)
    assert lake.orphans() == []
    lake.next_driver()
    assert lake.compact() == 10
    lake.require(19)
    assert len(lake.shown()) == 2
    assert lake.orphans() == [], "readers were shown them until now"
    lake.a_day_passes()
    assert len(lake.orphans()) == 9 + 10
    lake.remove_orphans()
    lake.require(19)


@pytest.mark.parametrize("deleted", range(1, 10))
def test_who_dies_while_it_removes_replaced_files_leaves_the_rest_to_the_next(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    lake.land(1, 12)
    assert lake.compact() == 9
    lake.a_day_passes()
    before = lake.orphans()

    def dies_on_the_way(paths: Sequence[str]) -> None:
        for path in paths[:deleted]:
            lake.store.remove(path)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(lake.store, "delete", dies_on_the_way)
        with pytest.raises(Killed):
            lake.remove_orphans()
    assert lake.orphans() == before[deleted:]
    lake.require(12)
    lake.land(13, 22)
    assert lake.compact() == 10, "the next compaction still knows those that are left"
    assert set(before[deleted:]) <= set(lake.orphans())
    lake.remove_orphans()
    lake.require(22)
    lake.next_driver()


def test_replaced_files_stay_for_a_day_and_for_as_long_as_spark_shows_them(lake: CompactedLake) -> None:
    lake.land(1, 12)
    small = lake.listed()[:9]
    with pytest.raises(Killed):
        lake.compact(dies_at("compact.switched"))
    lake.a_day_passes()
    assert lake.orphans() == [], "Spark's readers are still shown them"
    lake.compact()
    assert lake.orphans() == [], "they were shown until now"
    lake.a_day_passes()
    assert lake.orphans() == sorted(small)
    lake.land(13, 22)
    lake.compact()
    assert not set(lake.listed()) & set(lake.orphans())
    assert lake.orphans() == sorted(small), "what was replaced a moment ago is kept"


def test_a_driver_that_had_read_the_ledger_before_a_compaction_looks_again(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(1, 12)
    recover = FilesTarget.recover
    tries: list[object] = []

    def late(target: FilesTarget, *given: object) -> None:
        if not tries:
            lake.compact()
        tries.append(given)
        recover(target, *given)  # type: ignore[arg-type] # what it was called with

    monkeypatch.setattr(FilesTarget, "recover", late)
    lake.next_driver()
    assert len(tries) == 2
    lake.require(12)


def test_a_ledger_that_was_restored_meanwhile_is_not_changed(lake: CompactedLake) -> None:
    assert isinstance(lake.ledger, MemoryLedger)
    lake.land(1, 12)
    database = lake.ledger.database
    backup = database.tables.copy()

    def restored(at: str) -> None:
        if at == "compact.files-written":
            database.restore(backup.copy())

    with pytest.raises(CompactionOvertaken):
        lake.compact(restored)
    assert database.tables.rows == backup.rows
    lake.compact()
    database.restore(backup)
    with pytest.raises(LogUnfit, match="the ledger names no such file: the ledger was restored"):
        lake.next_driver()


def test_a_commit_whose_answer_is_lost_is_looked_at_again(lake: CompactedLake) -> None:
    assert isinstance(lake.ledger, MemoryLedger)
    lake.land(1, 12)
    hooks = lake.ledger.database.hooks
    for fate in ("lost", "applied"):
        fates = iter([fate])

        def armed(at: str, fates: object = fates) -> None:
            if at == "compact.before-switch":
                hooks.commit_fate = lambda: next(fates, "answered")  # type: ignore[call-overload] # an iterator of texts

        assert lake.compact(armed) == (9 if fate == "lost" else 10)
        lake.require(12 if fate == "lost" else 19)
        lake.next_driver()
        lake.land(13, 19) if fate == "lost" else None
    hooks.commit_fate = lambda: "lost"
    with pytest.raises(CommitOutcomeUnknown):
        lake.compaction()._record_mark(lake.compaction()._standing(), frozenset())


def test_a_file_that_is_not_what_landed_is_never_merged(lake: CompactedLake) -> None:
    lake.land(1, 12)
    gone = lake.listed()[3]
    (lake.path / gone).unlink()
    with pytest.raises(FilesLost, match=rf"{gone}, which has landed, is missing or has another size"):
        lake.compact()
    assert len(lake.listed()) == 12


def test_formats_without_footers_are_refused(lake: CompactedLake) -> None:
    lake.land(1, 12)
    sink = lake.folder.sink.model_copy(update={"format": FileFormat.JSON})
    folder = type(lake.folder)(sink, lake.store)
    for ask in (folder.small_files, folder.compact):
        with pytest.raises(CompactionUnsupported, match="are Json, and only Parquet files can be merged"):
            ask(lake.ledger, STREAM)


def test_an_entry_of_sparks_log_that_shows_a_part_is_not_made_whole_by_guessing(lake: CompactedLake) -> None:
    lake.land(1, 12)
    with pytest.raises(Killed):
        lake.compact(dies_at("compact.switched"))
    entry = lake.path / FOLDER / "9.compact"
    lines = entry.read_bytes().split(b"\n")
    entry.write_bytes(b"\n".join(lines[:-1]))
    with pytest.raises(LogUnfit, match=r"9.compact shows 8 of the 9 files that \S+ stands for"):
        lake.compact()


def manifest(batch: int, *files: tuple[str, int], schema: str = "a") -> tuple[BatchNumber, Manifest]:
    found = tuple(DataFile(path, size, 1, 1) for path, size in files)
    return BatchNumber(batch), Manifest(BatchNumber(batch), len(found), found, schema)


def test_only_small_files_of_one_folder_with_the_same_columns_are_merged_up_to_the_size_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifests = dict(
        [
            manifest(1, ("d=1/a", 30), ("d=2/b", 30), ("d=1/large", 51)),
            manifest(2, ("d=1/c", 40)),
            manifest(3, ("d=1/e", 40), ("d=2/f", 1)),
            manifest(4, ("d=1/g", 1), ("d=2/h", 1), schema="b"),
            manifest(5, ("d=1/i", 1), schema="b"),
            manifest(6, ("d=1/k", 1), schema="b"),
        ]
    )

    def paths(until: int | None = None) -> list[tuple[int, list[str]]]:
        end = None if until is None else BatchNumber(until)
        return [(merge.batch, [file.path for file in merge.files]) for merge in planned(manifests, end, 100)]

    assert paths() == [
        (2, ["d=1/a", "d=1/c"]),
        (3, ["d=2/b", "d=2/f"]),
        (6, ["d=1/g", "d=1/i", "d=1/k"]),
    ]
    assert paths(6) == [(2, ["d=1/a", "d=1/c"]), (3, ["d=2/b", "d=2/f"]), (5, ["d=1/g", "d=1/i"])]
    assert paths(2) == []
    monkeypatch.setattr(compaction_plan, "MOST_FILES", 2)
    assert paths()[-1] == (5, ["d=1/g", "d=1/i"])
    assert [len(merge.files) for merge in compaction_plan.next_merges(planned(manifests, None, 100))] == [2]


def test_the_work_between_two_transactions_has_a_bound(lake: CompactedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_plan, "MOST_FILES", 4)
    lake.land(1, 12)
    assert lake.compact() == 8
    lake.require(12)
    assert len(lake.listed()) == 3 + 2 + 1
