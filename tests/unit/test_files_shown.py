"""A ledger that went back is noticed by the files that readers are shown, whatever numbers it continues with."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.spark_log import FOLDER, LogUnfit
from exactlyonce.connectors.files.spark_metadata import SparkMetadata
from exactlyonce.positions.ranges import BatchNumber
from tests.unit.test_files_spark_log import OUTPUT, batches, visible

LATER = BatchNumber(30)
"""The seed of the generation that a restored ledger continues with: its number is past all that were planned."""


@pytest.mark.parametrize("latest", [3, 9, 12, 21])
def test_a_ledger_that_lacks_a_batch_that_readers_are_shown_is_refused_though_its_number_is_later(
    tmp_path: Path, latest: int
) -> None:
    """Also where a compaction holds the batch, and is the latest entry or not."""
    store = LocalLogStore(str(tmp_path))
    SparkMetadata(store, OUTPUT).publish(batches(*range(1, latest + 1)))
    before = visible(store)
    for known in (range(1, latest), (*range(1, latest - 1), latest), (1,)):
        with pytest.raises(
            LogUnfit, match=r"^file:///output/_spark_metadata/\S+ shows readers file:///output/data/\d+, and"
        ):
            SparkMetadata(store, OUTPUT).recover(batches(*known), LATER)
    assert visible(store) == before
    SparkMetadata(store, OUTPUT).recover(batches(*range(1, latest + 1)), LATER)
    SparkMetadata(store, OUTPUT).recover(batches(*range(1, latest + 1), 31), BatchNumber(31))


@pytest.mark.parametrize(("name", "content"), [("2", b"v1\n{}"), ("2", b"v1\n[1]"), ("2", b'v1\n{"path":'), ("2", b"")])
def test_an_entry_that_is_torn_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    store = LocalLogStore(str(tmp_path))
    SparkMetadata(store, OUTPUT).publish(batches(1, 2, 3))
    (tmp_path / FOLDER / name).write_bytes(content)
    with pytest.raises(LogUnfit, match=r"_spark_metadata/2 "):
        SparkMetadata(store, OUTPUT).recover(batches(1, 2, 3), LATER)


def test_files_of_a_ledger_that_was_dropped_stay_visible_beside_those_of_the_next(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    SparkMetadata(store, OUTPUT).publish(batches(1, 2, 3))
    SparkMetadata(store, OUTPUT).recover({}, LATER)
    SparkMetadata(store, OUTPUT).recover(batches(4, 5), LATER)
    SparkMetadata(store, OUTPUT).recover(batches(4, 5), LATER)
    assert len(visible(store)) == 5
    with pytest.raises(LogUnfit, match="data/5"):
        SparkMetadata(store, OUTPUT).recover(batches(4), LATER)


def test_an_entry_that_is_missing_is_named_when_a_driver_starts(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    SparkMetadata(store, OUTPUT).publish(batches(1, 2, 3))
    store.remove(f"{FOLDER}/2")
    with pytest.raises(LogUnfit, match="_spark_metadata/2 is missing"):
        SparkMetadata(store, OUTPUT).recover(batches(1, 2, 3), LATER)
