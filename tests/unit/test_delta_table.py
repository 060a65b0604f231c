"""What a Delta table may not be for a stream, and what may not have become of it: one sentence each, and nothing is written."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from exactlyonce.connectors.delta.spec import SchemaEvolution
from exactlyonce.connectors.files.columns import ColumnsUnfit, Type
from exactlyonce.connectors.files.manifest import ManifestUnreadable
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.fit import require_holdable
from exactlyonce_spark.connectors.delta.manifest import TableManifest
from exactlyonce_spark.connectors.delta.properties import unwritable
from exactlyonce_spark.connectors.delta.table import LedgerBehindTable, RowsGone, TableOfAnother, TableUnfit
from tests.delta_rig import COLUMNS, DeltaStream, Killed, act_at, dies
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture
def stream(tmp_path: Path) -> DeltaStream:
    return DeltaStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))


def made_by_another(stream: DeltaStream, columns: Mapping[str, Type] = COLUMNS, **more: Any) -> DeltaTable:
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in columns.items()]
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    return DeltaTable.create(str(stream.root), schema, mode="error", **more)


def refuses(stream: DeltaStream, kind: type[Refused], said: str) -> None:
    """The next driver ends with a sentence, and the table's log is as it was."""
    log = stream.root / "_delta_log"
    before = sorted(log.iterdir()) if log.exists() else []
    with pytest.raises(kind, match=re.escape(said)) as caught:
        stream.next_driver()
    assert type(caught.value) is kind
    assert str(caught.value).endswith(".")
    assert (sorted(log.iterdir()) if log.exists() else []) == before


def test_a_table_that_somebody_else_has_made_is_written_to(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_another(stream, {"day": "string", "id": "long", "more": "long"})
    write_deltalake(str(stream.root), pa.table({"day": ["x"], "id": [900], "more": [1]}), mode="append")
    act_at(monkeypatch, "table.registered", None, dies)
    with pytest.raises(Killed):
        stream.driver()
    stream.land(stream.next_driver(), 1, 2)
    stream.require(2, [900])
    rows = stream.table().to_pyarrow_table().to_pylist()
    assert {row["more"] for row in rows if row["id"] != 900} == {None}


def test_a_folder_with_other_files_becomes_no_table(stream: DeltaStream) -> None:
    stream.root.mkdir()
    (stream.root / "orders.csv").write_text("somebody's")
    refuses(
        stream,
        TableOfAnother,
        f"The folder {stream.root} holds orders.csv and is not a Delta table. Use an empty folder",
    )
    assert [path.name for path in stream.root.iterdir()] == ["orders.csv"]


def test_a_table_that_was_deleted_or_made_again_is_not_taken_for_the_former_one(stream: DeltaStream) -> None:
    stream.land(stream.driver(), 1, 2)
    shutil.move(stream.root, stream.root.with_name("moved"))
    refuses(stream, TableOfAnother, f"There is no table at {stream.root}, and batches of this stream have landed")
    made_by_another(stream)
    refuses(stream, TableOfAnother, "is another one than that in which batch 2 has landed")
    shutil.rmtree(stream.root)
    shutil.move(stream.root.with_name("moved"), stream.root)
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3)


def test_a_stream_that_starts_over_at_another_location_is_told_that_it_has_to_be_another_stream(
    stream: DeltaStream,
) -> None:
    """Its ledger continues, whose batches are in the former table; nothing is made at the new location."""
    stream.land(stream.driver(), 1, 2)
    stream.root = stream.root.with_name("elsewhere")
    with pytest.raises(TableOfAnother, match=r"start a stream with another streamId and another location\.$"):
        stream.next_driver()
    assert not stream.root.exists()
    made_by_another(stream)
    refuses(stream, TableOfAnother, "or start a stream with another streamId and another location.")


def test_a_table_that_is_made_again_under_a_driver_is_noticed_though_its_versions_have_the_same_numbers(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, former = stream.root / "_delta_log", stream.root.with_name("former")

    def made_again() -> None:
        shutil.move(log, former)
        made_by_another(stream)
        for number in range(900, 904):
            write_deltalake(str(stream.root), pa.table({"id": [number], "day": ["x"]}), mode="append")

    act_at(monkeypatch, "batch.landed", 2, made_again)
    with pytest.raises(TableOfAnother, match="is another one than that in which batch 2 has landed"):
        stream.land(stream.driver(), 1, 2)
    assert stream.seen() == Counter(range(900, 904))
    shutil.rmtree(log)
    shutil.move(former, log)
    stream.next_driver()
    stream.require(2)


def test_an_earlier_state_of_the_log_is_not_continued(stream: DeltaStream) -> None:
    stream.land(stream.driver(), 1, 4)
    log = stream.root / "_delta_log"
    for version in (3, 4):
        (log / f"{version:020}.json").rename(stream.root.parent / f"{version:020}.json")
    refuses(stream, RowsGone, "lacks batches that were in it: 3, 4. Somebody has put back an earlier state of its log.")
    ranges = "orders-0 [2, 3) of batch 3; orders-0 [3, 4) of batch 4"
    refuses(stream, RowsGone, f"another streamId and another location. In doubt are the records {ranges}.")
    (stream.root.parent / f"{3:020}.json").rename(log / f"{3:020}.json")
    stream.next_driver()  # what the latest one has landed may be lacking, and is committed
    stream.require(4)


def test_a_ledger_that_was_restored_behind_the_table_is_not_continued(stream: DeltaStream) -> None:
    stream.land(stream.driver(), 1, 3)
    before = {batch: text for batch, text in stream.committables().items() if batch < 3}
    with pytest.raises(LedgerBehindTable, match="has batch 3 of this stream, which the ledger does not know"):
        stream.target().recover(before, BatchNumber(2))
    stream.require(3)


def test_a_table_that_forgets_transactions_is_refused_and_one_that_has_forgotten_is_not_continued(
    stream: DeltaStream,
) -> None:
    stream.land(stream.driver(), 1, 1)
    known = (stream.root / "_delta_log" / f"{1:020}.json").read_text()
    property_ = {"delta.setTransactionRetentionDuration": "interval 1 hours"}
    stream.table().alter.set_table_properties(property_)
    refuses(stream, TableUnfit, "delta.setTransactionRetentionDuration is set, so the table would forget which batches")
    for version in (2, 0):
        path = stream.root / "_delta_log" / f"{version:020}.json"
        lines = [line for line in path.read_text().splitlines() if '"txn"' not in line] if version == 0 else []
        path.write_text("\n".join(lines)) if lines else path.unlink()
    (stream.root / "_delta_log" / f"{1:020}.json").write_text(
        "\n".join(line for line in known.splitlines() if '"txn"' not in line)
    )
    refuses(stream, RowsGone, "does not know this stream any more, so it cannot say which of its batches it has")


@pytest.mark.parametrize("lands", [0, 1], ids=["while no driver runs", "while a driver runs"])
def test_rows_that_somebody_takes_back_by_restoring_the_table_are_missed(stream: DeltaStream, lands: int) -> None:
    target = stream.driver()
    stream.land(target, 1, 3)
    stream.table().restore(2)
    said = "Version 4 of the table at .* restored it to version 2, which is before the latest rows of this stream"
    if lands:
        with pytest.raises(RowsGone, match=said):
            stream.land(target, 4, 4)
    with pytest.raises(RowsGone, match=said):
        stream.next_driver()
    stream.accepted_restore = 3
    with pytest.raises(RowsGone, match=r"set sink\.delta\.acceptedRestore: 4"):
        stream.next_driver()
    stream.accepted_restore = 4
    driver = stream.next_driver()
    last = 4 + lands
    stream.land(driver, last, last)
    lost = {6, 7}  # of batch 3
    assert sorted(stream.seen().elements()) == [number for number in range(2, 2 * last + 2) if number not in lost]
    stream.table().restore(2)
    with pytest.raises(RowsGone, match="restored it to version 2"):
        stream.next_driver()


def test_a_table_that_is_restored_to_a_version_with_all_rows_is_continued(stream: DeltaStream) -> None:
    stream.land(stream.driver(), 1, 2)
    write_deltalake(str(stream.root), pa.table({"id": [900], "day": ["x"]}), mode="append")
    stream.table().restore(1)  # by mistake
    refuses(stream, RowsGone, "restored it to version 1")
    stream.table().restore(3)  # and back
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3, [900])
    stream.table().restore(stream.table().version() - 1)
    refuses(stream, RowsGone, "which is before the latest rows")


def test_files_that_are_deleted_before_the_log_names_them_are_missed(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_at(monkeypatch, "batch.landed", 2, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 2)
    (gone, kept), away = sorted(stream.root.glob("1-2-*/*.parquet")), stream.root.parent / "kept.parquet"
    gone.rename(away)
    refuses(stream, RowsGone, "Files of batch 2, which has landed, are missing from")
    gone.write_bytes(away.read_bytes() + b"x")
    refuses(stream, RowsGone, f"or have another size ({gone.relative_to(stream.root)}): somebody deleted them")
    refuses(stream, RowsGone, "the stream continues with them. In doubt are the records orders-0 [1, 2) of batch 2.")
    assert kept.exists()
    away.rename(gone)
    stream.next_driver()
    stream.require(2)


def test_a_table_that_asks_more_of_its_writers_is_refused(stream: DeltaStream) -> None:
    said = "cannot be written: it {}. Change the table, or use another one."
    made_by_another(stream, configuration={"delta.columnMapping.mode": "name"})
    refuses(stream, TableUnfit, said.format("maps its columns to other names (delta.columnMapping.mode)"))
    shutil.rmtree(stream.root)
    stream.land(stream.next_driver(), 1, 1)
    stream.table().alter.add_constraint({"positive": "id > 0"})
    refuses(stream, TableUnfit, said.format("has the constraint positive, which nobody would check here"))
    stream.table().alter.drop_constraint("positive")
    stream.next_driver()


def column(**metadata: object) -> dict[str, Any]:
    return {"name": "c", "type": "string", "nullable": True, "metadata": metadata}


@pytest.mark.parametrize(
    ("version", "features", "fields", "said"),
    [
        (8, (), (), "it asks for writers of version 8"),
        (7, ("rowTracking",), (), "it has the feature rowTracking"),
        (7, ("appendOnly", "fancy"), (), "it has the feature fancy"),
        (2, (), ({**column(), "nullable": False},), "its column c is NOT NULL"),
        (4, (), (column(**{"delta.generationExpression": "id + 1"}),), "its column c is generated"),
        (6, (), (column(**{"delta.identity.start": 1}),), "its column c is an identity column"),
        (2, (), (column(**{"delta.invariants": "{}"}),), "its column c has an invariant"),
        (2, (), (column(**{"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),), "its column c has a limited length"),
        (2, (), ({**column(), "type": {"type": "array", "elementType": "long", "containsNull": False}},), "NOT NULL"),
        (7, ("appendOnly", "deletionVectors", "timestampNtz", "changeDataFeed"), (column(comment="a name"),), None),
    ],
)
def test_what_a_table_may_ask_of_its_writers(
    version: int, features: Sequence[str], fields: Sequence[Any], said: str | None
) -> None:
    found = unwritable(version, features, {"delta.appendOnly": "true"}, fields)
    assert (found is None) if said is None else (found is not None and said in found)


def test_a_column_that_the_table_lacks_is_refused_or_added(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.land(stream.driver(), 1, 1)
    stream.columns = {**COLUMNS, "more": "long", "deep": {"type": "struct", "fields": [{"name": "x", "type": "long"}]}}
    refuses(stream, TableUnfit, "The query yields more, deep, which the table at")
    stream.evolution = SchemaEvolution.ADD_COLUMNS
    act_at(monkeypatch, "table.columns-added", None, dies)
    with pytest.raises(Killed):
        stream.next_driver()
    assert [field.name for field in stream.table().schema().fields] == ["id", "day", "more", "deep"]
    stream.next_driver()
    stream.require(1)


@pytest.mark.parametrize(
    ("columns", "partition_by", "said"),
    [
        (
            {"id": "string", "day": "string"},
            (),
            "id is long in the table and string in the query. Change the transform.",
        ),
        ({"ID": "long", "day": "string"}, (), "ID is id in the table. Change the transform."),
        (COLUMNS, ("day",), "is partitioned by no column and sink.delta.partitionBy says day; make them equal."),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused(
    stream: DeltaStream, columns: Mapping[str, Type], partition_by: tuple[str, ...], said: str
) -> None:
    stream.land(stream.driver(), 1, 1)
    stream.columns, stream.partition_by, stream.evolution = columns, partition_by, SchemaEvolution.ADD_COLUMNS
    refuses(stream, TableUnfit, said)


def test_columns_that_somebody_changes_under_a_batch_that_has_landed_are_put_back_first(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_schema() -> None:
        rows = pa.table({"id": ["text"], "day": ["x"]})
        write_deltalake(str(stream.root), rows, mode="overwrite", schema_mode="overwrite")

    target = stream.driver()
    stream.land(target, 1, 1)
    act_at(monkeypatch, "table.before-commit", 2, another_schema)
    with pytest.raises(
        TableUnfit, match=r"Somebody has changed the columns of the table at .* \(id\) since batch 2 landed"
    ):
        stream.land(target, 2, 2)
    refuses(stream, TableUnfit, "Change them back, and the stream continues with them.")
    stream.table().restore(1)  # with batch 1; the table then has the columns of then
    stream.next_driver()
    stream.require(2)


@pytest.mark.parametrize(
    ("columns", "partition_by", "said"),
    [
        ({"id": "void"}, (), "The type of column id is or contains void, which a Delta table cannot hold"),
        ({"id": {"type": "array", "elementType": "interval day"}}, (), "is or contains interval day"),
        ({"a b": "long"}, (), "The name of column 'a b' has a space or one of ,;{}()= in it"),
        (COLUMNS, ("week",), "sink.delta.partitionBy names week, which the query does not yield; it yields id, day."),
        (COLUMNS, ("id", "day"), "sink.delta.partitionBy names every column"),
        ({**COLUMNS, "raw": "binary"}, ("raw",), "whose values cannot be the name of a folder"),
        ({"id": "long", "Id": "long"}, (), "The query yields id more than once"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    columns: Mapping[str, Type], partition_by: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ColumnsUnfit, match=re.escape(said)):
        require_holdable(columns, partition_by)


@pytest.mark.parametrize("text", ["", "[]", '{"table": 1}', '{"table": "t", "life": "l", "manifest": {"version": 9}}'])
def test_a_committable_of_another_kind_is_told(text: str) -> None:
    with pytest.raises(ManifestUnreadable):
        TableManifest.from_json(BatchNumber(1), text)
