"""A table's history alone says which records of the source each commit holds, as the table's own library reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from exactlyonce_spark import manifest_landing
from exactlyonce_spark.connectors.delta.history_notes import MOST_CHARACTERS, notes_on_records
from exactlyonce_spark.target import RecordsOfBatch
from tests.delta_rig import DeltaStream, Killed, act_at, dies
from tests.iceberg_rig import IcebergStream
from tests.ledgers import STREAM
from tests.simulation.database import MemoryDatabase, MemoryLedger

KEYS = ("stream", "epoch", "batch", "positions")


def told_by_delta(stream: DeltaStream) -> list[dict[str, str]]:
    """What `DeltaTable.history` says of batches, oldest first; DESCRIBE HISTORY has a column for `userMetadata` alone."""
    commits = [commit for commit in stream.table().history() if "batch" in commit.get("exactlyonce", {})]
    for commit in commits:
        assert json.loads(commit["userMetadata"]) == commit["exactlyonce"]
    return [{key: str(commit["exactlyonce"][key]) for key in KEYS} for commit in reversed(commits)]


def told_by_iceberg(stream: IcebergStream) -> list[dict[str, str]]:
    """What the table of snapshots says, which Spark reads as `TABLE.snapshots`."""
    summaries = [dict(summary or {}) for summary in stream.table().inspect.snapshots()["summary"].to_pylist()]
    return [{key: summary[f"exactlyonce.{key}"] for key in KEYS} for summary in summaries]


TABLES: Mapping[str, tuple[type[DeltaStream], Any]] = {
    "Delta": (DeltaStream, told_by_delta),
    "Iceberg": (IcebergStream, told_by_iceberg),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_history_of_a_table_says_which_records_each_commit_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Also of a batch that another driver commits than the one that landed it."""
    kind, told_by = TABLES[table]
    stream = kind(tmp_path / "table", MemoryLedger(MemoryDatabase()))
    act_at(monkeypatch, "batch.landed", 2, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 2)
    stream.land(stream.next_driver(), 3, 3)
    assert told_by(stream) == [
        {"stream": STREAM, "epoch": "1", "batch": "1", "positions": '{"orders":{"0":[0,1]}}'},
        {"stream": STREAM, "epoch": "2", "batch": "2", "positions": '{"orders":{"0":[1,2]}}'},
        {"stream": STREAM, "epoch": "2", "batch": "3", "positions": '{"orders":{"0":[2,3]}}'},
    ]


def test_positions_of_many_partitions_are_told_by_their_digest_and_where_the_whole_is() -> None:
    ranges = Ranges({Partition("orders", number): OffsetRange(10**9, 10**9 + 7) for number in range(500)})
    told = json.loads(notes_on_records(RecordsOfBatch(ranges))["positions"])
    assert told == {
        "partitions": 500,
        "offsets": 3500,
        "sha256": hashlib.sha256(ranges.to_json().encode()).hexdigest(),
        "whole": "too long for the table's history; the ledger has the ranges, in the row of this batch in `batches`",
    }
    few = Ranges({Partition("orders", number): OffsetRange(10**9, 10**9 + 7) for number in range(60)})
    assert notes_on_records(RecordsOfBatch(few)) == {"positions": few.to_json()}
    assert len(few.to_json()) < MOST_CHARACTERS


def test_records_that_a_batch_was_landed_without_are_told_beside_its_positions() -> None:
    records = RecordsOfBatch(Ranges({Partition("orders", 0): OffsetRange(0, 9)}), "It landed without 3 of its records.")
    assert notes_on_records(records) == {
        "positions": '{"orders":{"0":[0,9]}}',
        "note": "It landed without 3 of its records.",
    }


@pytest.mark.parametrize("table", TABLES)
def test_the_ledger_keeps_positions_in_the_rows_of_batches_alone(tmp_path: Path, table: str) -> None:
    """A committable is kept for as long as the stream, and is one of the lines that its next driver reads."""
    stream = TABLES[table][0](tmp_path / "table", MemoryLedger(MemoryDatabase()))
    stream.land(stream.driver(), 1, 1)
    (committable,) = stream.committables().values()
    assert set(json.loads(committable)) == {"table", "life", "manifest"}
    assert "orders" not in committable.replace(STREAM, "")


@pytest.mark.parametrize("table", TABLES)
def test_a_batch_whose_row_the_ledger_does_not_have_is_committed_without_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    stream = TABLES[table][0](tmp_path / "table", MemoryLedger(MemoryDatabase()))
    act_at(monkeypatch, "batch.landed", 1, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 1)
    stream.target().recover(stream.committables(), BatchNumber(1), None)
    stream.require(1)


def test_what_the_row_of_a_batch_says_of_an_error_is_told_nobody_who_reads_the_table() -> None:
    """Errors quote records; a batch that has landed has a note of its own about those that it lands without."""
    ranges = Ranges({Partition("orders", 0): OffsetRange(0, 9)})
    database = MemoryDatabase()
    with MemoryLedger(database).transaction() as transaction:
        for status in BatchStatus:
            row = BatchRow(BatchNumber(1), Epoch(1), status, ranges, note="quoted")
            transaction.write_batch(STREAM, row)
            records = manifest_landing._records_of(transaction, STREAM, BatchNumber(1))
            assert (records is not None) == (status is BatchStatus.LANDED)
