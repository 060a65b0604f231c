"""A sink whose rows are committed to a table of snapshots, broken on purpose, where that differs from other tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from exactlyonce_spark.connectors.iceberg import marker as product
from exactlyonce_spark.connectors.iceberg.marker import Ancestor, Marker, rolled_back_to
from tests.simulation.snapshots import MemorySnapshotLog


@contextmanager
def a_refused_snapshot_is_put_on_top_of_what_others_added() -> Iterator[None]:
    """Snapshots: a commit that the catalog refuses is repeated behind the newest snapshot without another look."""
    with mock.patch.object(MemorySnapshotLog, "refuses", staticmethod(lambda table, seen, commits: False)):
        yield


@contextmanager
def a_commit_is_bound_to_the_snapshot_alone() -> Iterator[None]:
    """Snapshots: the catalog takes what comes late where the table was rolled back to the snapshot that was seen."""
    with mock.patch.object(
        MemorySnapshotLog, "refuses", staticmethod(lambda table, seen, commits: table.current != seen)
    ):
        yield


@contextmanager
def the_tables_number_goes_with_its_snapshot() -> Iterator[None]:
    """Snapshots: the number is in the summaries of snapshots alone, which somebody expires."""
    marker = MemorySnapshotLog.marker

    def in_a_summary(self: MemorySnapshotLog, life: str) -> Marker | None:
        found = marker(self, life)
        kept = {ancestor.snapshot for ancestor in self.history()}
        return found if found is None or found.snapshot is None or found.snapshot in kept else None

    with mock.patch.object(MemorySnapshotLog, "marker", in_a_summary):
        yield


@contextmanager
def an_expired_snapshot_counts_as_rolled_back() -> Iterator[None]:
    """Snapshots: a history that ends before the stream's latest snapshot is taken for one without it."""

    def strictly(marker: Marker, history: Iterator[Ancestor]) -> Ancestor | None:
        ancestors = list(history)
        gone = marker.snapshot is not None and marker.snapshot not in {it.snapshot for it in ancestors}
        return rolled_back_to(marker, ancestors) or (ancestors[-1] if gone and ancestors else None)

    with mock.patch.object(product, "rolled_back_to", strictly):
        yield
