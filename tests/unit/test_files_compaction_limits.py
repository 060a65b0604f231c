"""Compaction of many files, of files that do not fit, and beside readers that listed a moment ago."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.connectors.files.compaction_plan import planned
from exactlyonce.connectors.files.manifest import DataFile, Manifest
from exactlyonce.connectors.files.spec import ManifestKind
from exactlyonce.positions.ranges import BatchNumber
from tests.compacted_lake import CompactedLake, Killed
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.unit.test_files_compaction import dies_at, folder_at


@pytest.fixture
def lake(tmp_path: Path) -> CompactedLake:
    return CompactedLake(folder_at(tmp_path), MemoryLedger(MemoryDatabase()))


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
