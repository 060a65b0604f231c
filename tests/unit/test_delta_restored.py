"""A table that somebody restores or overwrites beside its stream: rows that are gone are missed, and no others are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.publish import Adoption, adopt
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.connectors.delta.table import Restore, RowsGone, SinceOurs, TableUnfit, require_not_restored
from tests.delta_rig import DeltaStream, Killed, act_at, dies
from tests.ledgers import STREAM, new_stream
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture
def stream(tmp_path: Path) -> DeltaStream:
    return DeltaStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))


def append(stream: DeltaStream, number: int) -> None:
    write_deltalake(str(stream.root), pa.table({"id": [number], "day": ["x"]}), mode="append")


def in_another_life(stream: DeltaStream, token: str) -> None:
    """A person settles whose the stream is: the token of its row is replaced, and its ledger continues."""
    epoch = Epoch(stream.permit.epoch + 1)
    row = new_stream(stream.ledger)
    raise_epoch(stream.ledger, row, epoch, "ticket")
    adopt(stream.ledger, STREAM, epoch, Adoption(row.owner, stream.ledger.database_identity(), token))
    stream.permit, _ = claim_epoch(stream.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")


def test_a_restore_to_what_another_restore_had_made_is_followed_to_the_version_whose_rows_it_brings(
    stream: DeltaStream,
) -> None:
    stream.land(stream.driver(), 1, 3)  # batch 3 is version 3
    stream.table().restore(2)  # version 4, without batch 3
    append(stream, 900)
    stream.table().restore(4)
    with pytest.raises(RowsGone, match=r"Version 4 of the table at .* restored it to version 2.*acceptedRestore: 4\."):
        stream.next_driver()
    stream.table().restore(3)  # version 7, which undoes them all
    stream.next_driver()
    stream.require(3)
    stream.table().restore(5)
    stream.accepted_restore = 4
    stream.land(stream.next_driver(), 4, 4)
    assert sorted(stream.seen()) == [2, 3, 4, 5, 8, 9, 900], "batch 3 is given up, and nothing else"


@pytest.mark.parametrize(
    ("restores", "accepted", "gone"),
    [
        (((4, 2),), None, 4),
        (((4, 3),), None, None),
        (((4, 2), (6, 3)), None, None),
        (((4, 2), (6, 5)), None, 4),
        (((4, 2), (6, 5)), 4, None),
        (((4, 2), (6, 5)), 3, 4),
        (((4, 2), (6, 5), (8, 7)), None, 4),
        (((4, 2), (6, 3), (8, 5)), None, 4),
        (((4, 2), (6, 3), (8, 7)), None, None),
        (((4, 2), (6, 1)), 4, 6),
        (((4, None), (6, 4)), None, 4),
        (((4, 2), (6, None)), 4, 6),
    ],
)
def test_which_restore_takes_the_rows_of_a_batch(
    restores: tuple[tuple[int, int | None], ...], accepted: int | None, gone: int | None
) -> None:
    """The batch is version 3; each restore is its version and the one that it made the content again."""
    since = SinceOurs(3, tuple(Restore(version, to) for version, to in restores))
    if gone is None:
        require_not_restored(since, accepted, "/table")
    else:
        with pytest.raises(RowsGone, match=f"^Version {gone} of the table"):
            require_not_restored(since, accepted, "/table")


def test_the_batches_of_a_stream_of_the_same_name_in_another_cluster_hide_no_restore(
    stream: DeltaStream, tmp_path: Path
) -> None:
    other = DeltaStream(tmp_path / "table", MemoryLedger(MemoryDatabase()))
    in_another_life(other, "of another cluster")
    target = stream.driver()
    stream.land(target, 1, 1)
    others = other.driver()
    stream.land(target, 2, 2)
    before = stream.table().version() - 1
    stream.table().restore(before)  # takes batch 2
    other.land(others, 1, 1)
    for look in (lambda: stream.land(target, 3, 3), stream.next_driver):
        with pytest.raises(RowsGone, match=f"restored it to version {before}, which is before the latest rows"):
            look()


def test_a_restore_from_before_the_first_batch_of_a_stream_takes_nothing_of_it(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (900, 901):
        append(stream, number)
    stream.table().restore(0)
    act_at(monkeypatch, "batch.landed", 1, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, 1)
    stream.next_driver()
    stream.require(1, [900])


@pytest.mark.parametrize("under_a_driver", [False, True])
def test_a_restore_that_takes_rows_of_a_former_life_is_missed_though_a_new_one_has_committed_nothing(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, under_a_driver: bool
) -> None:
    stream.land(stream.driver(), 1, 2)
    in_another_life(stream, "token-2")
    target = stream.driver()
    if not under_a_driver:
        act_at(monkeypatch, "batch.landed", 3, dies)
        with pytest.raises(Killed):
            stream.land(target, 3, 3)
    stream.table().restore(1)
    for look in ((lambda: stream.land(target, 3, 3)) if under_a_driver else stream.next_driver, stream.next_driver):
        with pytest.raises(RowsGone, match="restored it to version 1, which is before the latest rows"):
            look()


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_table_that_is_partitioned_by_other_columns_under_a_driver_takes_no_batch_whose_partition_columns_would_be_null(
    stream: DeltaStream, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    stream.partition_by = ("day",) if partitioned else ()

    def partitioned_otherwise() -> None:
        shutil.copytree(stream.root / "_delta_log", stream.root.with_name("former"))
        rows = pa.table({"id": [900], "day": ["x"]})
        by = ["id" if partitioned else "day"]
        write_deltalake(str(stream.root), rows, mode="overwrite", schema_mode="overwrite", partition_by=by)

    act_at(monkeypatch, "table.before-commit", 2, partitioned_otherwise)
    now, then = ("id", "day") if partitioned else ("day", "no column")
    said = f"Somebody has changed the partition columns of the table at .* to {now}, and batch 2, which has landed, is "
    with pytest.raises(TableUnfit, match=f"{said}partitioned by {then}. Change them back"):
        stream.land(stream.driver(), 1, 2)
    with pytest.raises(TableUnfit, match=said):
        stream.next_driver()
    assert stream.table().to_pyarrow_table()["day"].to_pylist() == ["x"]
    shutil.rmtree(stream.root / "_delta_log")
    shutil.move(stream.root.with_name("former"), stream.root / "_delta_log")
    stream.next_driver()
    stream.require(2)
