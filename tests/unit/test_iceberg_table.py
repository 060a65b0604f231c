"""What an Iceberg table may not be for a stream, and what may not have become of it: a sentence each; nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType

from exactlyonce.connectors.delta.spec import SchemaEvolution
from exactlyonce.connectors.files.columns import ColumnsUnfit, Type
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.table import LedgerBehindTable, RowsGone, TableOfAnother, TableUnfit
from exactlyonce_spark.connectors.iceberg.fit import plain_location, require_holdable
from exactlyonce_spark.connectors.iceberg.marker import Ancestor, Marker, property_of, rolled_back_to
from tests.delta_rig import COLUMNS, Killed, act_at, dies
from tests.iceberg_rig import IDENTIFIER, IcebergStream
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture
def stream(tmp_path: Path) -> IcebergStream:
    return IcebergStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))


def refuses(stream: IcebergStream, kind: type[Refused], said: str) -> None:
    """The next driver ends with a sentence, and the table's metadata is as it was."""
    before = stream.table().metadata_location if stream.catalog().table_exists(IDENTIFIER) else None
    with pytest.raises(kind, match=re.escape(said)) as caught:
        stream.next_driver()
    assert type(caught.value) is kind
    assert str(caught.value).endswith(".")
    assert before == (stream.table().metadata_location if stream.catalog().table_exists(IDENTIFIER) else None)


def set_property(stream: IcebergStream, name: str, value: str) -> None:
    stream.table().transaction().set_properties({name: value}).commit_transaction()


def test_a_table_that_somebody_else_has_made_is_written_to(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = (NestedField(7, "day", StringType()), NestedField(3, "id", LongType()), NestedField(5, "more", LongType()))
    stream.made_by_another(Schema(*fields))
    stream.written_by_another(900)
    act_at(monkeypatch, "table.registered", None, dies)
    with pytest.raises(Killed):
        stream.driver()
    stream.land(stream.next_driver(), 1, 2)
    stream.require(2, [900])
    assert {row["more"] for row in stream.table().scan().to_arrow().to_pylist()} == {None}


def test_a_folder_with_other_files_becomes_no_table(stream: IcebergStream) -> None:
    stream.root.mkdir()
    (stream.root / "orders.csv").write_text("somebody's")
    said = f"The folder {stream.root} holds orders.csv, and there is no table shop.orders in the catalog. Use an empty"
    refuses(stream, TableOfAnother, said)


def test_a_table_that_was_deleted_or_made_again_is_not_taken_for_the_former_one(stream: IcebergStream) -> None:
    stream.land(stream.driver(), 1, 2)
    former = stream.table().metadata_location
    stream.catalog().drop_table(IDENTIFIER)
    refuses(stream, TableOfAnother, f"There is no table at {stream.root}, and batches of this stream have landed")
    stream.made_by_another()
    refuses(stream, TableOfAnother, "is another one than that in which batch 2 has landed")
    stream.catalog().drop_table(IDENTIFIER)
    stream.catalog().register_table(IDENTIFIER, former)
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3)


def test_an_earlier_state_of_the_metadata_is_not_continued(stream: IcebergStream) -> None:
    driver = stream.driver()
    states = []
    for number in range(1, 5):
        stream.land(driver, number, number)
        states.append(stream.table().metadata_location)

    def put_back(batch: int) -> None:
        stream.catalog().drop_table(IDENTIFIER)
        stream.catalog().register_table(IDENTIFIER, states[batch - 1])

    put_back(2)
    said = "lacks batches that were in it: 3, 4. Somebody has put back an earlier state of its metadata."
    refuses(stream, RowsGone, said)
    put_back(3)
    stream.next_driver()  # what the latest one has landed may be lacking, and is committed
    stream.require(4)


def test_a_ledger_that_was_restored_behind_the_table_is_not_continued(stream: IcebergStream) -> None:
    stream.land(stream.driver(), 1, 3)
    before = {batch: text for batch, text in stream.committables().items() if batch < 3}
    with pytest.raises(LedgerBehindTable, match="has batch 3 of this stream, which the ledger does not know"):
        stream.target().recover(before, BatchNumber(2))
    stream.require(3)


@pytest.mark.parametrize("value", [None, "", "3", '{"number":3}', '{"number":"3","snapshot":1,"sequence":1}', "{"])
def test_a_table_whose_property_somebody_has_removed_or_changed_is_not_continued(
    stream: IcebergStream, value: str | None
) -> None:
    stream.land(stream.driver(), 1, 2)
    name = property_of(stream.log().stream, stream.log().author.life)
    was = stream.table().properties[name]
    if value is None:
        stream.table().transaction().remove_properties(name).commit_transaction()
    else:
        set_property(stream, name, value)
    refuses(stream, RowsGone, "does not know this stream any more, so it cannot say which of its batches it has")
    set_property(stream, name, was)
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3)


@pytest.mark.parametrize("lands", [0, 1], ids=["while no driver runs", "while a driver runs"])
@pytest.mark.parametrize("then", ["nothing", "an append of another"])
def test_rows_that_somebody_takes_back_by_rolling_the_table_back_are_missed(
    stream: IcebergStream, lands: int, then: str
) -> None:
    target = stream.driver()
    stream.land(target, 1, 2)
    second = stream.snapshot()
    stream.land(target, 3, 3)
    stream.roll_back_to(second)
    foreign = [900] if then != "nothing" else []
    if foreign:
        stream.written_by_another(*foreign)
    said = f"Somebody has rolled the table at .* back to snapshot {second}, which is before batch 3 of this stream"
    if lands:
        with pytest.raises(RowsGone, match=said):
            stream.land(target, 4, 4)
    with pytest.raises(RowsGone, match=said):
        stream.next_driver()
    stream.accepted_rollback = 2
    with pytest.raises(RowsGone, match=r"set sink\.iceberg\.acceptedRollback: 3"):
        stream.next_driver()
    stream.accepted_rollback = 3
    driver = stream.next_driver()
    last = 4 + lands
    stream.land(driver, last, last)
    kept = [number for number in range(2, 2 * last + 2) if number not in {6, 7}]
    assert sorted(stream.seen().elements()) == sorted([*kept, *foreign])
    stream.roll_back_to(second)
    lost = "batches 4 to 5" if lands else "batch 4"
    with pytest.raises(RowsGone, match=f"which is before {lost} of this stream"):
        stream.next_driver()


def test_a_table_that_is_rolled_back_and_forward_again_is_continued(stream: IcebergStream) -> None:
    driver = stream.driver()
    stream.land(driver, 1, 1)
    first = stream.snapshot()
    stream.land(driver, 2, 2)
    second = stream.snapshot()
    stream.roll_back_to(first)
    refuses(stream, RowsGone, f"(snapshot {second}): rows that have landed are gone.")
    with stream.table().manage_snapshots() as manage:
        manage.set_current_snapshot(snapshot_id=second)
    stream.land(stream.next_driver(), 3, 3)
    stream.require(3)


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([(30, 3)], None),
        ([(40, 4), (30, 3), (20, 2)], None),
        ([(20, 2), (10, 1)], 20),
        ([(40, 4), (20, 2)], 20),
        ([(31, 3)], 31),
        ([(40, 4)], None),
        ([], None),
    ],
    ids=["ours", "behind ours", "before ours", "a branch from before ours", "of the same number", "expired", "empty"],
)
def test_a_history_shows_a_rollback_by_an_earlier_snapshot_alone(
    history: list[tuple[int, int]], found: int | None
) -> None:
    rolled = rolled_back_to(Marker(3, 30, 3), [Ancestor(*each) for each in history])
    assert (None if rolled is None else rolled.snapshot) == found


def test_files_that_are_deleted_before_a_snapshot_names_them_are_missed(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_at(monkeypatch, "batch.landed", 2, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 2)
    (gone, _), away = sorted(stream.root.glob("data/1-2-*/*.parquet")), stream.root.parent / "kept.parquet"
    gone.rename(away)
    refuses(stream, RowsGone, "Files of batch 2, which has landed, are missing from")
    gone.write_bytes(away.read_bytes() + b"x")
    refuses(
        stream, RowsGone, "such as remove_orphan_files with a short retention. Restore them, and the stream continues"
    )
    away.rename(gone)
    stream.next_driver()
    stream.require(2)


def required(stream: IcebergStream) -> None:
    stream.made_by_another(Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "day", StringType())))


def bucketed(stream: IcebergStream) -> None:
    fields = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    stream.made_by_another(fields, partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(16), "at")))


def with_property(stream: IcebergStream, name: str, value: str) -> None:
    stream.made_by_another(properties={name: value})


UNWRITABLE: Mapping[str, tuple[Any, str]] = {
    "a required column": (required, "its column id is required, which nobody would check here"),
    "a transform": (
        bucketed,
        "it is partitioned by bucket[16] of id, and only columns as they are can be partitions here",
    ),
    "format version 1": (
        lambda stream: with_property(stream, "format-version", "1"),
        "its format version is 1, and only version 2 is written here",
    ),
    "another folder": (
        lambda stream: stream.made_by_another(location=f"file://{stream.root}-2"),
        ".metadata.json, and sink.iceberg.location says",
    ),
    "a class to load": (
        lambda stream: with_property(
            stream, "write.py-location-provider.impl", "pyiceberg.table.locations.SimpleLocationProvider"
        ),
        "it has the property write.py-location-provider.impl, which is not supported here",
    ),
    "encryption": (lambda stream: with_property(stream, "encryption.key-id", "k"), "it has the property encryption"),
}


@pytest.mark.parametrize("what", UNWRITABLE)
def test_a_table_that_asks_more_of_its_writers_is_refused(stream: IcebergStream, what: str) -> None:
    make, said = UNWRITABLE[what]
    make(stream)
    refuses(stream, TableUnfit, said)


def test_a_tables_properties_change_neither_how_nor_where_its_files_are_opened(stream: IcebergStream) -> None:
    """The login goes along with each request: whoever may write to the table could have it sent to a server of theirs."""
    stream.land(stream.driver(), 1, 1)
    evil = {"s3.endpoint": "https://elsewhere", "py-io-impl": "os.Evil"}  # with which others cannot open it any more
    stream.drivers_catalog().load_table(IDENTIFIER).transaction().set_properties(evil).commit_transaction()
    stream.land(stream.next_driver(), 2, 3)
    table = stream.drivers_catalog().load_table(IDENTIFIER)
    assert "s3.endpoint" not in table.io.properties
    assert getattr(table.metadata, "last_sequence_number", 0) == 3


def test_a_column_that_the_table_lacks_is_refused_or_added(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.land(stream.driver(), 1, 1)
    stream.columns = {**COLUMNS, "more": "long"}
    refuses(stream, TableUnfit, "transform, add it to the table, or set sink.iceberg.schemaEvolution: AddColumns.")
    stream.evolution = SchemaEvolution.ADD_COLUMNS
    act_at(monkeypatch, "table.columns-added", None, dies)
    with pytest.raises(Killed):
        stream.next_driver()
    assert [field.name for field in stream.table().schema().fields] == ["id", "day", "more"]
    stream.land(stream.next_driver(), 2, 2)
    stream.require(2)
    rows = {row["id"]: row["more"] for row in stream.table().scan().to_arrow().to_pylist()}
    assert rows == {2: None, 3: None, 4: 4, 5: 5}


def rename(stream: IcebergStream, before: str, after: str) -> None:
    with stream.table().update_schema() as update:
        update.rename_column(before, after)


def test_a_column_that_somebody_renames_keeps_the_values_of_a_batch_that_had_landed(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where another column has its name by then: values go by the ids of columns, and by no names."""
    act_at(monkeypatch, "batch.landed", 2, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 2)
    rename(stream, "day", "date_text")
    stream.evolution = SchemaEvolution.ADD_COLUMNS
    stream.land(stream.next_driver(), 3, 3)
    rows = {row["id"]: (row["date_text"], row["day"]) for row in stream.table().scan().to_arrow().to_pylist()}
    assert {number: rows[number] for number in (4, 6)} == {4: ("d/0", None), 6: (None, "d/0")}
    stream.require(3)


@pytest.mark.parametrize(
    ("columns", "partition_by", "said"),
    [
        (
            {"id": "string", "day": "string"},
            (),
            "id is long in the table and string in the query. Change the transform.",
        ),
        ({"ID": "long", "day": "string"}, (), "ID is id in the table. Change the transform."),
        (COLUMNS, ("day",), "is partitioned by no column and sink.iceberg.partitionBy says day; make them equal."),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused(
    stream: IcebergStream, columns: Mapping[str, Type], partition_by: tuple[str, ...], said: str
) -> None:
    stream.land(stream.driver(), 1, 1)
    stream.columns, stream.partition_by, stream.evolution = columns, partition_by, SchemaEvolution.ADD_COLUMNS
    refuses(stream, TableUnfit, said)


def test_columns_have_names_of_any_letters(tmp_path: Path) -> None:
    stream = IcebergStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))
    stream.columns, stream.partition_by = {"id": "long", 'o\'rder "day" =%': "string", "größe": "long"}, ("größe",)
    stream.land(stream.driver(), 1, 2)
    stream.require(2)
    assert {row["größe"] for row in stream.table().scan().to_arrow().to_pylist()} == {2, 3, 4, 5}


def test_partitions_have_the_values_that_the_names_of_folders_say(tmp_path: Path) -> None:
    stream = IcebergStream(tmp_path / "table", MemoryLedger(MemoryDatabase()), days=("d/0=é#?% 1", None))
    stream.partition_by = ("day",)
    stream.land(stream.driver(), 1, 1)
    stream.require(1)
    rows = {row["id"]: row["day"] for row in stream.table().scan().to_arrow().to_pylist()}
    assert rows == {2: "d/0=é#?% 1", 3: None}
    found = stream.table().scan(row_filter="day = 'd/0=é#?% 1'").to_arrow()["id"].to_pylist()
    assert found == [2], "readers leave out files by their partitions"


@pytest.mark.parametrize(
    ("columns", "partition_by", "said"),
    [
        ({"id": "void"}, (), "The type of column id is void, which an Iceberg table cannot hold here"),
        ({"id": "short"}, (), "The type of column id is short, which an Iceberg table does not have; cast it to INT"),
        ({"id": {"type": "array", "elementType": "long"}}, (), "Column id is of a nested type (array)"),
        ({"a.b": "long"}, (), "The name of column 'a.b' has a dot in it"),
        (COLUMNS, ("week",), "sink.iceberg.partitionBy names week, which the query does not yield; it yields id, day."),
        (COLUMNS, ("id", "day"), "sink.iceberg.partitionBy names every column"),
        (
            {**COLUMNS, "at": "timestamp"},
            ("at",),
            "names at, whose type is timestamp; choose a column of type string, long",
        ),
        ({"id": "long", "Id": "long"}, (), "The query yields id more than once"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    columns: Mapping[str, Type], partition_by: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ColumnsUnfit, match=re.escape(said)):
        require_holdable(columns, partition_by)


def test_one_folder_is_told_by_all_its_names() -> None:
    assert plain_location("s3a://lake/orders/") == plain_location("s3://lake/orders")
    assert plain_location("file:///lake/orders") == plain_location("/lake/orders/")
    assert plain_location("gs://lake/orders") != plain_location("s3://lake/orders")
    assert json.loads(Marker(3, 5, 2).to_json()) == {"number": 3, "snapshot": 5, "sequence": 2}
