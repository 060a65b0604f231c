"""A stream whose resource chooses an object log: it is opened, measured, and refused where it would be another one's."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.resource import parse_stream, read_streams
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import ledger_address, ledger_fleet, ledger_key
from exactlyonce.connectors.object_log.tenancy import LocationNotEmpty, LogOfAnother
from exactlyonce.control.shared_clients import SharedClients
from exactlyonce.errors import LedgerUnreachable, SecretMissing
from exactlyonce.init_container.__main__ import _stores as stores_of
from exactlyonce.launch.secrets import SECRETS_FOLDER
from exactlyonce.ledger.connector import LedgerAddress, Use
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus, Owner
from exactlyonce.ledger.two_phase import land_decided, record_decided, replace_decided
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, Epoch, OffsetRange, Partition, Ranges
from exactlyonce.reconcile.in_pod import Brief
from exactlyonce.reconcile.observation import NoPredecessor
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.ledgers import IDS, P0, P1, STREAM, batch_row, new_stream, started
from tests.object_logs import land
from tests.resource_documents import document

LOGIN = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hidden", "ca.crt": "PEM"}


def spec_of(ledger: dict[str, Any] | None, **checkpoint: Any) -> StreamSpec:
    """A stream that writes files."""
    changes: dict[str, Any] = {"spec.sink": {"files": {"path": "/out"}}}
    if ledger is not None:
        changes["spec.ledger"] = {"objectLog": ledger}
    if checkpoint:
        changes["spec.checkpoint"] = checkpoint
    return parse_stream(document(changes), "the test").spec


def address_on(folder: Path | str) -> LedgerAddress:
    return ledger_address(spec_of({"location": str(folder)}), lambda reference: {})


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_ledger_in_a_folder_is_kept_there_and_found_by_every_process_that_opens_it(
    tmp_path: Path, scheme: str
) -> None:
    folder = f"{scheme}{tmp_path}/ledger/"
    ledger = address_on(folder).open()
    ledger.prepare()
    permit = started(ledger)
    land(address_on(folder).open("a driver", Use.BATCHES), permit, 1)
    view = address_on(folder).open().view(STREAM)
    assert view is not None
    assert (view.stream.landed_batch, view.landed.positions[P0]) == (1, 1)
    assert [path.name for path in (tmp_path / "ledger").iterdir() if path.is_file()] == ["log.json"]
    ledger.close()


def test_without_a_word_about_the_ledger_it_is_in_a_folder_beside_the_checkpoint(tmp_path: Path) -> None:
    spec = spec_of(None, local={"path": str(tmp_path / "c")})
    ledger_address(spec, lambda reference: {}).open().prepare()
    assert (tmp_path / "c" / "ledger" / "log.json").is_file()


def test_the_container_that_reconciles_in_the_drivers_pod_opens_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = str(tmp_path / "ledger")
    ledger = address_on(location).open()
    ledger.prepare()
    started(ledger)
    changes = {"spec.sink": {"files": {"path": "/out"}}, "spec.ledger": {"objectLog": {"location": location}}}
    local = {"spec.checkpoint": {"local": {"path": str(tmp_path / "checkpoint")}}}
    stream = parse_stream(document({**changes, **local}), "the test")
    monkeypatch.setenv(SECRETS_FOLDER, str(tmp_path))
    brief = Brief.parse(Brief(stream, Owner("cluster-1", "uid-1"), None, NoPredecessor(), "ticket").render())
    assert stores_of(brief).ledger.view(STREAM) == ledger.view(STREAM)


def test_the_example_without_a_database_is_a_stream_whose_ledger_is_a_log() -> None:
    (stream,) = read_streams(Path(__file__).parents[2] / "examples" / "files-without-a-database.yaml")
    assert ledger_address(stream.spec, lambda reference: {}).shown == "/var/lib/exactlyonce/orders/ledger"


def test_whoever_only_looks_makes_no_ledger(tmp_path: Path) -> None:
    address = address_on(tmp_path / "ledger")
    ledger = address.open()
    assert ledger.view(STREAM) is None
    ledger.database_identity()
    fleet = ledger_fleet(ledger_key(spec_of({"location": str(tmp_path / "ledger")}), address))
    assert (fleet.landed(address.space, {STREAM: None}), fleet.sizes(address.space)) == ({}, ())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_that_no_ledger_wrote_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    for name in ("march", "april", "may", "june"):
        (tmp_path / "reports" / name).write_text("of somebody else")
    before = content(tmp_path)
    with pytest.raises(
        LocationNotEmpty,
        match=r"The ledger's location .*/reports has no log\.json and is not empty \(april, june, march, …\); name an empty",
    ):
        address_on(tmp_path / "reports").open().prepare()
    assert content(tmp_path) == before


def test_a_ledger_whose_first_object_was_removed_is_not_begun_again_beside_its_entries(tmp_path: Path) -> None:
    ledger = address_on(tmp_path).open()
    ledger.prepare()
    started(ledger)
    (tmp_path / "log.json").unlink()
    before = content(tmp_path)
    with pytest.raises(LocationNotEmpty, match=r"or restore log\.json from a backup"):
        address_on(tmp_path).open().prepare()
    assert content(tmp_path) == before


def test_a_ledger_that_is_another_streams_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    ledger = address_on(tmp_path).open()
    ledger.prepare()
    started(ledger)
    before = content(tmp_path)
    other = address_on(tmp_path).open()
    other.prepare()
    assert other.view("shop/refunds") is None
    with pytest.raises(
        LogOfAnother, match=f"The ledger at {tmp_path} is that of another stream, so shop/refunds cannot keep its own"
    ) as told:
        raise_epoch(other, replace(new_stream(other), stream_id="shop/refunds"), Epoch(1), "ticket")
    assert content(tmp_path) == before
    assert STREAM not in str(told.value), "whose it is stays with those who may read the place"
    ledger.forget(STREAM, new_stream(ledger).owner)
    raise_epoch(other, replace(new_stream(other), stream_id="shop/refunds"), Epoch(1), "ticket")


def test_a_location_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for location in (f"{tmp_path}/file/ledger", "/proc/ledger"):
        with pytest.raises(
            LedgerUnreachable, match=rf"^The ledger at {location} cannot be reached: The location {location} "
        ):
            address_on(location).open().prepare()


def test_the_login_of_a_ledger_is_in_no_text_and_another_login_is_another_client() -> None:
    spec = spec_of(
        {"location": "s3a://lake/ledger", "endpoint": "https://s3:9000", "pathStyle": True, "secretRef": {"name": "l"}}
    )
    first = ledger_address(spec, lambda reference: LOGIN)
    second = ledger_address(spec, lambda reference: {**LOGIN, "AWS_SECRET_ACCESS_KEY": "new"})
    key = ledger_key(spec, first)
    assert "hidden" not in f"{first!r} {key!r} {first.shown} {first.store_name('shop')}"
    assert first.store_name("shop") == "Ledgers at https://s3:9000 bucket lake of namespace shop"
    clients = SharedClients()
    assert clients.ledger(first) is clients.ledger(first)
    assert clients.ledger(first) is not clients.ledger(second)
    assert ledger_fleet(key).name == "https://s3:9000 bucket lake"


def test_half_a_login_is_refused_before_anything_is_asked() -> None:
    spec = spec_of({"location": "s3a://lake/ledger", "secretRef": {"name": "l"}})
    with pytest.raises(SecretMissing, match="holds AWS_ACCESS_KEY_ID alone"):
        ledger_address(spec, lambda reference: {"AWS_ACCESS_KEY_ID": "me"})


def test_the_monitor_counts_what_landed_and_what_was_lost_and_reads_each_entry_once(tmp_path: Path) -> None:
    address = address_on(tmp_path)
    ledger = address.open()
    ledger.prepare()
    permit = started(ledger)
    fleet = ledger_fleet(ledger_key(spec_of({"location": str(tmp_path)}), address))
    first = fleet.landed(address.space, {STREAM: None, "shop/unknown": None})
    assert list(first) == [STREAM]
    assert (first[STREAM].landed_batch, first[STREAM].last_landed_at, first[STREAM].counted_until) == (0, None, 0)
    for number in (1, 2):
        land(ledger, permit, number)
    with ledger.transaction() as transaction:
        transaction.write_batch(STREAM, batch_row(3, BatchStatus.IN_PROGRESS))
        transaction.write_failures(
            STREAM,
            (
                FailureRow(BatchNumber(3), P0, 2, 5, FailureStatus.OPEN, "", "it failed"),
                FailureRow(BatchNumber(1), P1, 10, 14, FailureStatus.LOST, "", "retention"),
                FailureRow(
                    BatchNumber(1),
                    Partition("orders", "shard-0"),
                    5 << 200,
                    PARTITION_END,
                    FailureStatus.LOST,
                    "",
                    "it has expired",
                ),
            ),
        )
    found = fleet.landed(address.space, {STREAM: first[STREAM].counted_until})[STREAM]
    assert (found.landed_batch, found.counted_until, found.batches, found.rows) == (2, 2, 2, 2)
    counted = (found.open_ranges, found.lost_ranges, found.lost_records)
    assert counted == (1, 2, 5), "a range whose positions count no records holds one at least"
    assert dict(found.positions) == {P0: 2, P1: 0}
    assert found.last_landed_at is not None
    (sizes,) = fleet.sizes(address.space)
    on_disk = sum(file.stat().st_size for file in tmp_path.rglob("*.entry"))
    assert (sizes.table, sizes.table_bytes, sizes.index_bytes) == ("entries", on_disk, 0)
    for entry in tmp_path.rglob("*.entry"):
        entry.write_text("whoever reads it again finds it damaged")
    assert fleet.landed(address.space, {STREAM: None})[STREAM].landed_batch == 2
    fleet.close()


def test_the_monitor_is_told_since_when_a_batch_is_decided_and_how_many_loads_are_left(tmp_path: Path) -> None:
    address = address_on(tmp_path)
    ledger = address.open()
    ledger.prepare()
    permit = started(ledger)
    fleet = ledger_fleet(ledger_key(spec_of({"location": str(tmp_path)}), address))

    def told() -> tuple[bool, int]:
        found = fleet.landed(address.space, {STREAM: None})[STREAM]
        assert found.decided_at is None or abs(found.decided_at - time.time()) < 600
        return found.decided_at is not None, found.decided_loads

    assert told() == (False, 0)
    loads = tuple(Committable(f"label-{key}", "71", 5, Ranges({key: OffsetRange(0, 5)})) for key in (P0, P1))
    batch = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 5)}), IDS)
    decided = DecidedBatch(BatchNumber(1), loads, IDS)

    def record(transaction: LedgerTransaction) -> Written:
        record_decided(transaction, STREAM, decided)
        return Written(10)

    land_batch(ledger, permit, batch, record, status=BatchStatus.DECIDED)
    assert told() == (True, 2)
    replace_decided(ledger, permit, decided, replace(decided, committables=loads[:1]))
    assert told() == (True, 1)
    land_decided(ledger, permit, BatchNumber(1))
    assert told() == (False, 0)
    fleet.close()
