"""Compaction of many files, of files that do not fit, and beside readers that listed a moment ago."""

from __future__ import annotations

from exactlyonce.connectors.files.compaction_plan import planned
from exactlyonce.connectors.files.manifest import DataFile, Manifest
from exactlyonce.positions.ranges import BatchNumber


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
