"""Compaction of many files, of files that do not fit, and beside readers that listed a moment ago."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from exactlyonce.checkpoint.store import AlreadyExists
from exactlyonce.cli.files_compaction import show_compaction
from exactlyonce.connectors.files import compaction, compaction_plan
from exactlyonce.connectors.files.compaction import Compaction, CompactionOvertaken
from exactlyonce.connectors.files.compaction_plan import MergeUnfit, planned
from exactlyonce.connectors.files.manifest import DataFile, Manifest
from exactlyonce.connectors.files.spark_log import FOLDER, LogUnfit
from exactlyonce.connectors.files.spec import ManifestKind
from exactlyonce.errors import CommitOutcomeUnknown
from exactlyonce.positions.ranges import BatchNumber
from tests.compacted_lake import CompactedLake, Killed
from tests.ledgers import STREAM
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.unit.test_files_compaction import dies_at, folder_at


@pytest.fixture
def lake(tmp_path: Path) -> CompactedLake:
    return CompactedLake(folder_at(tmp_path), MemoryLedger(MemoryDatabase()))


@pytest.fixture
def with_three_merges_a_round(lake: CompactedLake, monkeypatch: pytest.MonkeyPatch) -> CompactedLake:
    lake.land(1, 12)
    monkeypatch.setattr(compaction, "next_merges", lambda merges: merges)
    monkeypatch.setattr(compaction_plan, "MOST_FILES", 3)
    return lake


def damage(lake: CompactedLake, number: int) -> Callable[[], object]:
    """Damage a file that has landed, and return what makes it good again."""
    file = lake.path / lake.listed()[number]
    good = file.read_bytes()
    file.write_bytes(b"x" * len(good))
    return partial(file.write_bytes, good)


def test_who_listed_sparks_log_a_moment_before_a_late_show_can_read_it(lake: CompactedLake) -> None:
    lake.land(1, 12)
    with pytest.raises(Killed):
        lake.compact(dies_at("compact.switched"))
    lake.a_day_passes()
    listed = lake.shown()
    lake.compact()
    lake.remove_orphans()
    assert len(lake.ids(listed)) == 24


def test_the_day_for_which_replaced_files_stay_begins_with_the_transaction_that_replaced_them(tmp_path: Path) -> None:
    """The first one is lost, and a day passes before the next."""
    ledger = MemoryLedger(MemoryDatabase())
    lake = CompactedLake(folder_at(tmp_path, ManifestKind.NONE), ledger)
    lake.land(1, 3)
    fates = iter(["lost"])

    def commits() -> str:
        fate = next(fates, "answered")
        if fate == "lost":
            lake.a_day_passes()
        return fate

    def reached(at: str) -> None:
        if at == "compact.before-switch":
            ledger.database.hooks.commit_fate = commits

    assert lake.compact(reached) == 3
    assert next(fates, None) is None
    assert lake.orphans() == []


def test_files_that_do_not_fit_together_are_left_out_and_told_once_all_others_are_merged(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compaction_plan, "MOST_FILES", 3)
    lake.land(1, 12)
    damaged = lake.listed()[1]
    mend = damage(lake, 1)
    with pytest.raises(MergeUnfit, match=rf"{damaged}, which has landed, cannot be read"):
        show_compaction(lake.folder, lake.ledger, STREAM, merge=True, as_json=True)
    told = capsys.readouterr()
    assert [became["files"] for became in json.loads(told.out)] == [3, 3]
    assert "became 2 files." in told.err
    with pytest.raises(MergeUnfit):
        show_compaction(lake.folder, lake.ledger, STREAM, merge=True, as_json=False)
    assert capsys.readouterr() == ("", ""), "not that there were no small files"
    mend()
    lake.require(12)
    assert lake.orphans() == []
    lake.compact()
    lake.require(12)
    assert len(lake.listed()) == 3 + 3


def test_a_merge_that_does_not_fit_may_be_the_one_with_the_mark(
    with_three_merges_a_round: CompactedLake,
) -> None:
    lake = with_three_merges_a_round
    mend = damage(lake, 8)
    with pytest.raises(MergeUnfit):
        lake.compact()
    mend()
    lake.require(12)
    assert all('"merging":"' not in text for text in committables(lake))
    assert len(lake.listed()) == 2 + 3 + 3


def test_a_merge_that_does_not_fit_has_the_mark_and_who_takes_it_away_overtakes_the_others_of_its_round(
    with_three_merges_a_round: CompactedLake,
) -> None:
    lake = with_three_merges_a_round
    mend = damage(lake, 8)

    def another(at: str) -> None:
        if at == "compact.files-written":
            with pytest.raises(Killed):
                lake.compact(dies_at("compact.marked"))
            lake.remove_orphans()

    with pytest.raises(CompactionOvertaken):
        lake.compact(another)
    mend()
    lake.require(12)


def committables(lake: CompactedLake) -> list[str]:
    with lake.ledger.transaction() as transaction:
        return list(transaction.read_committables(STREAM).values())


def test_one_that_lost_an_answer_and_was_overtaken_does_not_claim_to_have_changed_nothing(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(lake.ledger, MemoryLedger)
    hooks = lake.ledger.database.hooks
    lake.land(1, 12)
    fates = iter(["lost"])

    def reached(at: str) -> None:
        if at == "compact.before-switch":
            hooks.commit_fate = lambda: next(fates, "answered")

    switch_once = Compaction._switch_once

    def switched_late(self: Compaction, *given: object) -> None:
        try:
            switch_once(self, *given)  # type: ignore[arg-type] # what it was called with
        except CommitOutcomeUnknown:
            monkeypatch.setattr(Compaction, "_switch_once", switch_once)
            lake.compact()
            raise

    monkeypatch.setattr(Compaction, "_switch_once", switched_late)
    with pytest.raises(CompactionOvertaken) as raised:
        lake.compact(reached)
    assert "may have merged them before" in str(raised.value)
    assert "not changed" not in str(raised.value)
    lake.require(12)


def test_a_driver_whose_create_took_effect_without_an_answer_goes_on(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 sends 19.compact again, and meanwhile a compaction has replaced it."""
    lake.land(1, 18)
    create = lake.store.create

    def lost(path: str, content: bytes) -> object:
        if path == f"{FOLDER}/19.compact":
            create(path, content)
            lake.compact()
        return create(path, content)

    monkeypatch.setattr(lake.store, "create", lost)
    lake.land(19, 20)
    lake.require(20)


def test_a_successor_goes_on_where_a_zombie_makes_a_compaction_of_what_it_read_before(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(1, 18)
    committable = lake.record(19)
    create = lake.store.create
    late: dict[str, bytes] = {}

    def dies(path: str, content: bytes) -> object:
        late[path] = content
        raise Killed

    monkeypatch.setattr(lake.store, "create", dies)
    with pytest.raises(Killed):
        lake.target.publish(BatchNumber(19), committable)
    monkeypatch.setattr(lake.store, "create", create)
    lake.compact()

    def overtaken(path: str, content: bytes) -> object:
        if path in late:
            create(path, late.pop(path))
        return create(path, content)

    monkeypatch.setattr(lake.store, "create", overtaken)
    lake.next_driver()
    lake.require(19)


def test_an_entry_of_another_query_is_refused_after_a_second_look_too(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(1, 18)
    create = lake.store.create
    strange = lake.store.read(f"{FOLDER}/9.compact").replace(b"part-0", b"part-1")

    def overtaken(path: str, content: bytes) -> object:
        if path == f"{FOLDER}/19.compact":
            create(path, strange)
        return create(path, content)

    monkeypatch.setattr(lake.store, "create", overtaken)
    with pytest.raises(LogUnfit, match=r"19.compact holds other files than batch 19 in the ledger"):
        lake.land(19, 19)


def test_an_entry_that_somebody_removes_before_it_is_compared_is_told_as_missing(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(1, 18)
    create = lake.store.create

    def removed(path: str, content: bytes) -> object:
        if path != f"{FOLDER}/19.compact":
            return create(path, content)
        return AlreadyExists(b"another query's")  # which it takes back

    monkeypatch.setattr(lake.store, "create", removed)
    with pytest.raises(
        LogUnfit, match=r"19.compact is missing, so it cannot be compared with batch 19 in the ledger: some"
    ):
        lake.land(19, 19)


def test_a_run_walks_through_the_folder_once_however_many_rounds_it_takes(
    lake: CompactedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_plan, "MOST_FILES", 3)
    lake.land(1, 12)
    assert lake.compact() == 9
    lake.land(13, 22)
    walk, walked = lake.store.walk, []

    def counted(folder: str) -> Iterator[tuple[str, int]]:
        walked.append(folder)
        return walk(folder)

    monkeypatch.setattr(lake.store, "walk", counted)
    assert lake.compact() == 9
    assert walked == [""]


class Size(int):
    """Counts how often sizes are added."""

    added = 0

    def __radd__(self, other: int) -> int:
        Size.added += 1
        return int(other) + int(self)


def test_a_plan_adds_each_size_a_few_times_however_many_files_become_one() -> None:
    manifests = {
        BatchNumber(batch): Manifest(BatchNumber(batch), 1, (DataFile(f"file-{batch}", Size(1), 1, 1),), "schema")
        for batch in range(300)
    }
    planned(manifests, None, 1 << 20)
    assert Size.added < 3 * len(manifests)
