"""Others beside replays into tables with a log: they remove files, change columns, restore the table or recreate it.

Both kinds of table are real ones; ids are counted by the table's library and by DuckDB (`DeltaStream.seen`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from exactlyonce.connectors.delta.spec import SchemaEvolution
from exactlyonce.errors import LandedGone
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce_spark.connectors.delta.table import RowsGone, TableOfAnother, TableUnfit
from tests.delta_rig import COLUMNS, DeltaStream, act_at
from tests.iceberg_rig import IcebergStream
from tests.ledgers import STREAM
from tests.replayed_lake import LEDGERS
from tests.replayed_tables import (
    IN_QUARANTINE,
    add_column,
    at_its_files,
    begun,
    files_of_replays,
    notes,
    own,
    quarantine,
    recreate,
    replayed,
    retype,
    stream_at,
    waiting,
)
from tests.simulation.database import MemoryDatabase, MemoryLedger

ONCE = Counter(IN_QUARANTINE)


@pytest.fixture
def stream(kind: type[DeltaStream], tmp_path: Path) -> DeltaStream:
    return stream_at(kind, tmp_path)


def test_files_that_somebody_removed_before_a_batch_took_them_over_are_named_and_nothing_lands_without_them(
    stream: DeltaStream,
) -> None:
    driver = stream.next_driver()
    replayed(stream, "mine")
    gone = files_of_replays(stream)[3:5]
    kept = [path.read_bytes() for path in gone]
    for path in gone:
        path.unlink()
    said = r"Files that replays have landed, with 2 rows, are missing from .* \(replay-.*part-\d.parquet, replay-.*\): somebody"
    with pytest.raises(RowsGone, match=said) as problem:
        stream.land(driver, 3, 3)
    assert problem.value.batches == (), "no range of a batch is in doubt"
    assert stream.seen() == own(2)
    assert waiting(stream), "nothing has landed"
    with pytest.raises(RowsGone, match=said):
        stream.next_driver()
    for path, content in zip(gone, kept, strict=True):
        path.write_bytes(content)
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE


def test_vacuum_of_an_idle_stream_is_noticed_by_the_next_driver(tmp_path: Path) -> None:
    stream = stream_at(DeltaStream, tmp_path)
    replayed(stream, "mine")
    stream.table().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    with pytest.raises(
        RowsGone, match=r"with 10 rows, are missing .* such as a VACUUM with a short retention\. Restore"
    ):
        stream.next_driver()


def test_files_that_go_between_the_take_over_and_the_commit_are_named_as_a_replays(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed(stream, "mine")
    driver = stream.next_driver()
    path = files_of_replays(stream)[0]
    content = path.read_bytes()
    act_at(monkeypatch, "batch.landed", 3, path.unlink)
    with pytest.raises(LandedGone, match=r"Files of replays, which batch 3 has taken over, are missing") as problem:
        stream.land(driver, 3, 3)
    assert problem.value.batches == ()
    path.write_bytes(content)
    stream.next_driver()
    assert stream.seen() == own(3) + ONCE


def test_columns_that_others_add_before_the_next_batch_are_null_in_what_was_replayed(stream: DeltaStream) -> None:
    replayed(stream, "mine")
    add_column(stream, "note")
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE
    assert notes(stream) == {None: 16}


def test_a_column_that_the_stream_adds_before_its_next_batch_is_null_in_what_was_replayed(stream: DeltaStream) -> None:
    replayed(stream, "mine")
    stream.columns, stream.evolution = {**COLUMNS, "note": "long"}, SchemaEvolution.ADD_COLUMNS
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE
    assert notes(stream) == {None: 14, 6: 1, 7: 1}


def test_a_delta_table_whose_columns_do_not_fit_any_more_takes_over_nothing_until_they_are_changed_back(
    tmp_path: Path,
) -> None:
    stream = stream_at(DeltaStream, tmp_path)
    driver = stream.next_driver()
    replayed(stream, "mine")
    before = stream.table().version()
    retype(stream)
    for land in (lambda: stream.land(driver, 3, 3), stream.next_driver):
        with pytest.raises(TableUnfit, match="day"):
            land()
    assert waiting(stream)
    stream.table().restore(before)
    stream.accepted_restore = stream.table().version()
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == own(3) + ONCE


def test_an_iceberg_column_with_a_namesake_keeps_back_what_was_replayed(tmp_path: Path) -> None:
    stream = stream_at(IcebergStream, tmp_path)
    driver = stream.next_driver()
    replayed(stream, "mine")
    retype(stream)
    with pytest.raises(TableUnfit, match="columns of the table"):
        stream.land(driver, 3, 3)
    with pytest.raises(
        TableUnfit, match=r"\(day\), so the values of the chunk of a replay, which has landed, would be NULL"
    ):
        stream.next_driver()
    assert waiting(stream)


def test_a_replay_whose_table_changes_while_it_writes_lands_nothing_that_the_table_would_not_take(
    kind: type[DeltaStream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once landed, the records could not be replayed again, and the stream would halt until the table is changed back."""
    stream = stream_at(kind, tmp_path)
    at_its_files(monkeypatch, lambda: retype(stream))
    with pytest.raises(TableUnfit) as problem:
        replayed(stream, "mine")
    assert not waiting(stream)
    with stream.ledger.transaction() as transaction:
        (row,) = transaction.read_failures(STREAM, FailureStatus.QUARANTINED)
    assert (row.from_offset, row.until_offset) == (10, 20)
    assert "replay" in str(problem.value)
    assert "driver" not in str(problem.value)


def test_a_replay_whose_table_is_recreated_while_it_writes_lands_nothing(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_its_files(monkeypatch, lambda: recreate(stream))
    with pytest.raises((TableOfAnother, TableUnfit), match="replay"):
        replayed(stream, "mine")
    assert not waiting(stream)


def test_a_restore_takes_nothing_of_what_no_batch_has_committed(tmp_path: Path) -> None:
    stream = stream_at(DeltaStream, tmp_path)
    replayed(stream, "mine")
    stream.table().restore(1)
    stream.accepted_restore = stream.table().version()
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == Counter([2, 3, 6, 7]) + ONCE


def test_a_rollback_takes_nothing_of_what_no_batch_has_committed(tmp_path: Path) -> None:
    stream = IcebergStream(tmp_path / "table", MemoryLedger(MemoryDatabase()), accepted_rollback=2)
    driver = stream.driver()
    stream.land(driver, 1, 1)
    first = stream.snapshot()
    stream.land(driver, 2, 2)
    quarantine(stream)
    replayed(stream, "mine")
    stream.roll_back_to(first)
    stream.land(stream.next_driver(), 3, 3)
    assert stream.seen() == Counter([2, 3, 6, 7]) + ONCE


def test_a_replay_of_columns_that_the_table_lacks_is_refused_before_anything_is_claimed(stream: DeltaStream) -> None:
    with pytest.raises(
        TableUnfit, match=r"The replay yields note, which the table at .* lacks, and a replay adds no column"
    ):
        begun(stream, "mine", columns={**COLUMNS, "note": "long"})
    with pytest.raises(TableUnfit, match="day is string in the table and long in the query"):
        begun(stream, "mine", columns={"id": "long", "day": "long"})


def test_what_was_replayed_into_a_table_that_somebody_recreated_is_told_as_rows_of_another_one(
    kind: type[DeltaStream], tmp_path: Path
) -> None:
    stream = kind(tmp_path / "table", LEDGERS["in memory"]())
    driver = stream.driver()
    quarantine(stream)
    replayed(stream, "mine")
    recreate(stream)
    for land in (lambda: stream.land(driver, 1, 1), stream.next_driver):
        with pytest.raises(TableOfAnother, match="another one than that for which replays have landed 10 rows"):
            land()
    assert waiting(stream)
