"""What others do to an Iceberg table between two looks of a driver, and what its metadata may not have a driver do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
import sqlalchemy
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from exactlyonce.errors import Refused, RowsNotTaken
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.table import RowsGone, TableUnfit
from exactlyonce_spark.connectors.iceberg.fit import is_within
from exactlyonce_spark.connectors.iceberg.marker import Ancestor, Marker, batch_in, require_not_rolled_back
from exactlyonce_spark.connectors.iceberg.table_log import IcebergLog
from tests.delta_rig import Killed, act_at, dies
from tests.iceberg_rig import IDENTIFIER, IcebergStream, IdentifyingWriter
from tests.simulation.database import MemoryDatabase, MemoryLedger

FIELDS = (NestedField(1, "id", LongType()), NestedField(2, "day", StringType()), NestedField(3, "more", LongType()))


@pytest.fixture
def stream(tmp_path: Path) -> IcebergStream:
    return IcebergStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))


def refuses(stream: IcebergStream, said: str) -> None:
    with pytest.raises(TableUnfit, match=re.escape(said)):
        stream.next_driver()


def renames(stream: IcebergStream) -> None:
    with stream.table().update_schema() as update:
        update.rename_column("day", "date_text")


def recreates(stream: IcebergStream) -> None:
    with stream.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("day")
    with stream.table().update_schema() as update:
        update.add_column("day", StringType())


def exchanges(stream: IcebergStream) -> None:
    for before, after in (("day", "was_day"), ("more", "day"), ("was_day", "more")):
        with stream.table().update_schema() as update:
            update.rename_column(before, after)


CHANGES: Mapping[str, Callable[[IcebergStream], object]] = {
    "renamed": renames,
    "dropped and added again": recreates,
    "exchanged with another": exchanges,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["while no batch is", "while a batch is written"])
def test_no_batch_lands_with_the_ids_of_columns_that_are_gone(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch, change: str, when: str
) -> None:
    stream.made_by_another(Schema(*FIELDS[:2], NestedField(3, "more", StringType())))
    driver = stream.driver()
    stream.land(driver, 1, 1)
    if when == "while no batch is":
        CHANGES[change](stream)
    else:
        write = IdentifyingWriter.write

        def meanwhile(self: IdentifyingWriter, *given: Any) -> Any:
            monkeypatch.setattr(IdentifyingWriter, "write", write)
            written = self.write(*given)
            CHANGES[change](stream)
            return written

        monkeypatch.setattr(IdentifyingWriter, "write", meanwhile)
    with pytest.raises(TableUnfit, match="Somebody has dropped, recreated or renamed columns of the table"):
        stream.land(driver, 2, 2)
    assert [*stream.committables()] == [BatchNumber(1)]
    if change == "renamed":
        refuses(stream, "The query yields day, which the table at")
        return
    stream.land(stream.next_driver(), 2, 2)
    rows = {row["id"]: row["day"] for row in stream.table().scan().to_arrow().to_pylist()}
    assert {number: rows[number] for number in (4, 5)} == {4: "d/0", 5: "d 1"}, "under the ids that there are now"


def test_a_batch_that_has_landed_is_not_committed_as_null_where_a_column_has_a_namesake(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_at(monkeypatch, "batch.landed", 2, lambda: recreates(stream))
    said = "dropped columns of the table at .* and added others by their names \\(day\\), so the values of batch 2, which has"
    with pytest.raises(TableUnfit, match=said):
        stream.land(stream.driver(), 1, 2)
    refuses(stream, "drop or rename the new ones until batch 2 is committed without these values.")
    renames(stream)
    refuses(stream, "The query yields day, which the table at")
    stream.require(2)


def test_a_late_registration_finds_a_table_that_was_rolled_back_and_forward_another_one(stream: IcebergStream) -> None:
    """The snapshot is the one that it has seen, and the number of a batch would be set back all the same."""
    stream.made_by_another()
    stream.written_by_another(900)
    before, late = stream.snapshot(), stream.log()
    assert late.view(late.author.life) is not None
    stream.land(stream.driver(), 1, 1)
    after = stream.snapshot()
    stream.roll_back_to(before)
    assert not late.commit(None, {})
    with stream.table().manage_snapshots() as manage:
        manage.set_current_snapshot(snapshot_id=after)
    assert not late.commit(None, {})
    stream.land(stream.next_driver(), 2, 2)
    stream.require(2, [900])


def test_a_batch_is_not_committed_to_a_table_that_was_rolled_back_and_forward(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = stream.driver()
    stream.land(driver, 1, 1)
    first, commit, answers = stream.snapshot(), IcebergLog.commit, []

    def meanwhile() -> None:
        stream.written_by_another(900)
        stream.roll_back_to(first)

    def answered(self: IcebergLog, *given: object) -> bool:
        answers.append(commit(self, *given))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(IcebergLog, "commit", answered)
    act_at(monkeypatch, "table.before-commit", 2, meanwhile)
    stream.land(driver, 2, 2)
    assert answers == [False, True]
    stream.require(2)


def test_sequence_numbers_rise_where_the_table_has_no_main_branch_and_another_advances(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.made_by_another()
    stream.written_by_another(900)
    rows = stream.table().scan().to_arrow()
    with stream.table().manage_snapshots() as manage:
        manage.create_branch(stream.snapshot(), "audit").remove_branch("main")
    assert stream.table().current_snapshot() is None

    def advances() -> None:
        stream.table().append(rows, branch="audit")

    act_at(monkeypatch, "table.before-commit", 1, advances)
    stream.land(stream.driver(), 1, 1)
    metadata = stream.table().metadata
    assert sorted(it.sequence_number or 0 for it in metadata.snapshots) == [1, 2, 3]
    assert getattr(metadata, "last_sequence_number", 0) == 3
    stream.require(1)


def test_a_driver_deletes_no_file_that_a_tables_metadata_name(stream: IcebergStream) -> None:
    """Whoever may write to the table could have any file removed with the driver's rights."""
    properties = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    stream.land(stream.driver(), 1, 1)
    stream.table().transaction().set_properties(properties).commit_transaction()
    before = {*stream.root.glob("metadata/*.json")}
    stream.land(stream.next_driver(), 2, 4)
    assert before - {*stream.root.glob("metadata/*.json")} == set()
    stream.require(4)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("write.metadata.path", "They are not opened; name the table's own folder."),
        ("write.data.path", "its property write.data.path names file:///elsewhere, and sink.iceberg.location says"),
    ],
)
def test_a_driver_writes_nothing_outside_of_the_tables_folder(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    where = "file:///elsewhere" if name == "write.data.path" else f"file://{stream.root.parent}/outside"
    driver = stream.driver()
    stream.land(driver, 1, 1)
    act_at(
        monkeypatch,
        "table.before-commit",
        2,
        lambda: stream.table().transaction().set_properties({name: where}).commit_transaction(),
    )
    with pytest.raises(TableUnfit, match=re.escape(said)):
        stream.land(driver, 2, 2)
    assert len([*stream.root.parent.glob("outside/*")]) <= 1, "what was written by whoever set it"
    refuses(stream, said)
    stream.table().transaction().remove_properties(name).commit_transaction()
    stream.next_driver()
    stream.require(2)


class Loaded(SimpleLocationProvider):
    """What a property of the table may name: code that is on the path."""

    by: ClassVar[list[str]] = []

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.by.append("loaded")


def test_a_driver_loads_no_class_that_a_table_names_between_its_look_and_its_commit(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = stream.driver()
    stream.land(driver, 1, 1)

    def sets() -> None:
        named = {"write.py-location-provider.impl": f"{__name__}.Loaded"}
        stream.table().transaction().set_properties(named).commit_transaction()
        Loaded.by.clear()  # by whoever sets it

    act_at(monkeypatch, "table.before-commit", 2, sets)
    with pytest.raises(TableUnfit, match=r"it has the property write\.py-location-provider\.impl"):
        stream.land(driver, 2, 2)
    assert Loaded.by == []
    stream.table().transaction().remove_properties("write.py-location-provider.impl").commit_transaction()
    stream.next_driver()
    stream.require(2)


def test_metadata_that_the_catalog_names_elsewhere_are_not_opened(stream: IcebergStream) -> None:
    secret = stream.root.parent / "secret"
    secret.write_text("s3cret")
    engine = sqlalchemy.create_engine(stream.database)
    stream.made_by_another()
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("update iceberg_tables set metadata_location = :it"), {"it": f"file://{secret}"}
        )
    with pytest.raises(TableUnfit, match="They are not opened; name the table's own folder") as caught:
        stream.driver()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["file://", "", "hdfs://name-node"])
def test_a_list_of_manifests_that_is_elsewhere_is_not_opened_for_an_append(stream: IcebergStream, scheme: str) -> None:
    driver = stream.driver()
    stream.land(driver, 1, 1)
    table, outside = stream.table(), stream.root.parent / "outside.avro"
    snapshot = table.current_snapshot()
    assert snapshot is not None
    shutil.copy(snapshot.manifest_list.removeprefix("file://"), outside)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    metadata.write_text(metadata.read_text().replace(snapshot.manifest_list, f"{scheme}{outside}"))
    with pytest.raises(
        TableUnfit, match=rf"name the file {scheme}{outside}, and sink\.iceberg\.location says .*not opened"
    ):
        stream.land(stream.next_driver(), 2, 2)


@pytest.mark.parametrize(
    ("path", "is_in"),
    [
        ("file:///lake/orders/metadata", True),
        ("/lake/orders/metadata", True),
        ("/lake/orders", False),
        ("/lake/orders-2/metadata", False),
        ("/lake/orders/../other", False),
        ("s3://lake/orders/metadata", False),
    ],
)
def test_a_path_is_within_a_folder_by_whole_names(path: str, is_in: bool) -> None:
    assert is_within(path, "/lake/orders/") is is_in


@pytest.mark.parametrize("day", ["+12345-01-01", "0000-12-31", "-0044-03-15"])
def test_a_batch_with_a_day_that_no_table_is_partitioned_by_fails_before_it_lands(tmp_path: Path, day: str) -> None:
    stream = IcebergStream(tmp_path / "table", MemoryLedger(MemoryDatabase()), days=("2024-02-29", None))
    stream.columns, stream.partition_by = {"id": "long", "day": "date"}, ("day",)
    driver = stream.driver()
    stream.land(driver, 1, 1)
    stream.days = ("2024-02-29", day)
    with pytest.raises(RowsNotTaken, match=re.escape(f"Batch 2 has rows whose day is {day}, and an Iceberg table")):
        stream.land(driver, 2, 2)
    assert [*stream.committables()] == [BatchNumber(1)]
    stream.days = ("0001-01-01", "9999-12-31")
    stream.land(driver, 2, 2)
    stream.require(2)


def test_a_table_whose_former_partition_column_is_gone_takes_batches(stream: IcebergStream) -> None:
    """The library cannot merge the manifests of such a partitioning, and there are two of them."""
    by_more = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "more"))
    stream.made_by_another(Schema(*FIELDS), partition_spec=by_more)
    for number in (900, 901):
        stream.table().append(pa.table({"id": [number], "day": ["another's"], "more": [7]}))
    with stream.table().update_spec() as spec:
        spec.remove_field("more")
    with stream.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("more")
    stream.land(stream.driver(), 1, 2)
    current = stream.table().current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert current.summary["total-records"] == "6"


def test_a_rollback_names_every_batch_that_it_took(stream: IcebergStream) -> None:
    driver = stream.driver()
    stream.land(driver, 1, 1)
    first = stream.snapshot()
    stream.land(driver, 2, 5)
    stream.roll_back_to(first)
    with pytest.raises(RowsGone, match="which is before batches 2 to 5 of this stream") as caught:
        stream.next_driver()
    assert caught.value.batches == (2, 3, 4, 5)
    assert "acceptedRollback: 5." in str(caught.value)


@pytest.mark.parametrize(
    ("added", "accepted", "batches", "more"),
    [
        ({10: 1, 20: 2, 40: 4, 60: 6}, None, (3, 4, 5, 6), ""),
        ({10: 1, 20: 2, 40: 4, 60: 6}, 4, (5, 6), ""),
        ({40: 4, 60: 6}, None, (4, 5, 6), "and before earlier ones whose snapshots have been expired"),
        ({}, None, (6,), "and before earlier ones whose snapshots have been expired"),
        ({20: 6}, None, (6,), ""),
    ],
    ids=["all known", "some accepted", "those behind it known", "all expired", "picked by somebody"],
)
def test_batches_that_a_rollback_took_are_those_behind_the_last_that_is_there(
    added: Mapping[int, int], accepted: int | None, batches: tuple[int, ...], more: str
) -> None:
    history = [Ancestor(20, 2), Ancestor(10, 1)]
    with pytest.raises(RowsGone) as caught:
        require_not_rolled_back(Marker(7, 60, 6), history, added, accepted, "/table")
    assert caught.value.batches == batches
    assert more in str(caught.value)


@pytest.mark.parametrize("told", ["", "-1", "x", "٣", "9" * 5000])
def test_a_summary_of_somebody_else_names_no_batch(told: str) -> None:
    ours = {"exactlyonce.stream": "shop/orders", "exactlyonce.batch": "7"}
    assert batch_in(ours, "shop/orders") == 7
    assert batch_in({**ours, "exactlyonce.batch": told}, "shop/orders") is None
    assert batch_in(ours, "shop/returns") is None


def test_a_person_who_cannot_restore_is_told_to_take_another_table_too(
    stream: IcebergStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_at(monkeypatch, "batch.landed", 1, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 1)
    stream.catalog().drop_table(IDENTIFIER)
    with pytest.raises(Refused, match="start a stream with another streamId, another table and another location"):
        stream.next_driver()
