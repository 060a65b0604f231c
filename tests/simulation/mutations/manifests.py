"""A sink of files, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.connectors.files import compaction, orphans, spark_metadata
from exactlyonce.connectors.files.compaction_plan import planned
from exactlyonce.connectors.files.manifest import Write
from exactlyonce.connectors.files.spark_metadata import SparkMetadata
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile import new_generation
from exactlyonce.reconcile.observation import Observation
from exactlyonce.sink.files import Orphan
from exactlyonce_spark import manifest_landing
from exactlyonce_spark.connectors.files import target
from exactlyonce_spark.connectors.files.target import FilesTarget
from exactlyonce_spark.target import Prepared


@contextmanager
def visible_before_the_ledger_knows() -> Iterator[None]:
    """Readers are shown a batch once its files are written, not once the ledger has recorded them."""
    prepare = FilesTarget.prepare

    def shown_at_once(self: FilesTarget, batch: BatchNumber, rows: Any) -> Prepared:
        prepared = prepare(self, batch, rows)
        self.publish(batch, prepared.committable)
        return prepared

    with mock.patch.object(FilesTarget, "prepare", shown_at_once):
        yield


@contextmanager
def orphans_of_running_drivers() -> Iterator[None]:
    """Every file that no manifest names is removed as an orphan, also one that a driver has just written."""

    def all_unnamed(listed: Mapping[str, int], columns: Any, kept: Any, *_: Any, **__: Any) -> tuple[Orphan, ...]:
        return tuple(
            Orphan(path, size) for path, size in listed.items() if Write.of_path(path, columns) and path not in kept
        )

    with mock.patch.object(orphans, "orphans", all_unnamed):
        yield


@contextmanager
def what_was_not_shown_stays_so() -> Iterator[None]:
    """A driver does not show readers what its predecessor landed and died before showing."""

    recover = SparkMetadata.recover

    def only_looks(self: SparkMetadata, manifests: Any, landed: Any) -> None:
        if self._latest_shown() is None:
            recover(self, {}, landed)  # the log is begun all the same

    with mock.patch.object(SparkMetadata, "recover", only_looks):
        yield


@contextmanager
def a_fenced_driver_judges_the_folder() -> Iterator[None]:
    """A driver refuses a folder that shows more than it read of the ledger, though a successor has landed that."""
    with mock.patch.object(manifest_landing, "_is_still_recorded", lambda ledger, permit, committables: True):
        yield


@contextmanager
def a_ledger_behind_its_files_continues() -> Iterator[None]:
    """A ledger that was restored to an earlier state lands again what readers are shown, under numbers of a new generation."""
    with mock.patch.object(spark_metadata, "require_named", lambda store, location, latest, manifests: None):
        yield


@contextmanager
def merged_without_comparing() -> Iterator[None]:
    """A compaction names its merged files without asking whether what they were made of still counts."""
    with mock.patch.object(compaction, "is_unchanged", lambda found, before, changed: True):
        yield


@contextmanager
def files_that_are_being_merged_are_orphans() -> Iterator[None]:
    """The mark of a compaction that may be at work is not looked at when orphans are removed."""
    inner = orphans.orphans
    with mock.patch.object(orphans, "orphans", lambda *given, **named: inner(*given[:5], **named)):
        yield


@contextmanager
def replaced_files_are_removed_while_they_are_shown() -> Iterator[None]:
    """Small files are removed once the ledger names the merged one, whatever Spark's readers are shown."""
    with mock.patch.object(orphans, "still_read", lambda found, location, since: iter(())):
        yield


@contextmanager
def batches_are_merged_that_spark_shows_one_by_one() -> Iterator[None]:
    """A compaction merges batches that Spark's readers are shown, or are to be shown, by entries of their own."""
    with mock.patch.object(
        compaction, "_merges", lambda found, manifests, target_bytes: planned(manifests, None, target_bytes)
    ):
        yield


@contextmanager
def sparks_log_is_begun_with_the_first_batch() -> Iterator[None]:
    """Spark's readers have no log in the folder until a batch is shown, and take every file that is there."""
    write = SparkMetadata._write_missing
    with mock.patch.object(
        SparkMetadata, "_write_missing", lambda self, manifests, shown: write(self, manifests, manifests)
    ):
        yield


@contextmanager
def a_former_query_does_not_count_for_the_first_number() -> Iterator[None]:
    """A stream that continues the output of a query numbers its batches from the start, as if its folder had been empty."""

    def of_the_stream(seen: Observation) -> int:
        return highest(replace(seen, request=replace(seen.request, former_batch=None)))

    highest = new_generation._highest_batch
    with (
        mock.patch.object(new_generation, "_highest_batch", of_the_stream),
        mock.patch.object(target, "require_numbered_behind", lambda former, landed, location: None),
        mock.patch.object(spark_metadata, "require_not_ahead", lambda latest, landed, has_former: None),
    ):
        yield


@contextmanager
def files_of_a_former_query_are_orphans() -> Iterator[None]:
    """What looks like a file of Spark's own writers is removed, though the entries of a former query name it."""
    with mock.patch.object(orphans, "former_paths", lambda shown, location: iter(())):
        yield
