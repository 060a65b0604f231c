"""What a tenant writes into a log, or into a checkpoint, does not exhaust the operator that reads it for everybody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from exactlyonce.assembly import ledger_fleet, ledger_key
from exactlyonce.checkpoint.files import FileTorn, parse_commit, parse_metadata, parse_offsets
from exactlyonce.checkpoint.store import FileTooLarge
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.connectors.object_log.bounds import BOUNDS, Bounds, LogTooLarge
from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.positions.ranges import BatchNumber, MalformedPositions, Positions, Ranges
from tests.ledgers import STREAM, started
from tests.object_logs import entries, land, ledger_on, records, snapshots, visible
from tests.simulation.objects import MemoryObjects
from tests.simulation.resource import KEEPS_NOTHING
from tests.unit.test_object_log_of_a_stream import address_on, spec_of

PARTITIONS = 300_000


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


def test_no_more_is_read_of_a_first_object_than_one_has(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_bytes(b" " * 100_000)
    with pytest.raises(FileTooLarge, match=r"log\.json has more than the 4096 bytes"):
        address_on(tmp_path).open().view(STREAM)


def test_an_object_with_more_values_than_any_has_is_refused_before_it_is_parsed(store: MemoryObjects) -> None:
    started(ledger_on(store))
    path = next(path for path in store.objects if path.endswith("2.entry"))
    store.objects[path] = b'{"checksum":"","content":[' + b"[]," * 600_000 + b"1]}"
    with pytest.raises(LedgerRefused, match=r"more than .* 1000000 values"):
        ObjectLogLedger(ObjectLog(store, "ledger")).view(STREAM)


def test_an_archive_with_more_values_than_any_has_is_refused_before_it_is_parsed(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    for number in range(1, 4):
        land(ledger, permit, number)
    path = next(path for path in store.objects if path.endswith(".committables"))
    store.objects[path] = b'{"checksum":"","content":[' + b"[]," * 600_000 + b"1]}"
    with pytest.raises(LogDamaged, match="more than 1000000 values"):
        visible(ledger_on(store))


@pytest.mark.parametrize("bounds", [replace(BOUNDS, folded_bytes=3000), replace(BOUNDS, values=200)])
def test_a_log_that_is_larger_than_what_is_read_of_one_is_refused_in_a_sentence(
    store: MemoryObjects, bounds: Bounds
) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    for number in range(1, 10):
        land(ledger, permit, number)
    most = min(bounds.folded_bytes, bounds.values)
    with pytest.raises(LogTooLarge, match=rf"^The ledger at s3a://lake/orders/ledger has more than [^\n]*{most}"):
        ledger_on(store, bounds=bounds).view(STREAM)


def test_who_follows_a_log_entry_by_entry_is_refused_nothing_that_others_may_read(store: MemoryObjects) -> None:
    bounds = replace(BOUNDS, folded_bytes=15_000)
    driver, operator = ledger_on(store, every=5, bounds=bounds), ledger_on(store, bounds=bounds)
    permit = started(driver)
    for number in range(1, 40):
        land(driver, permit, number)
        delete_expired(driver, permit, KEEPS_NOTHING, fewest=1)
        view = operator.view(STREAM)
        assert view is not None
        assert view.stream.landed_batch == number
    assert sum(len(content) for path, content in store.objects.items() if path.endswith("entry")) < 15_000


@pytest.mark.parametrize("bounds", [replace(BOUNDS, snapshot_bytes=4000), replace(BOUNDS, snapshot_values=150)])
def test_large_entries_make_a_snapshot_before_there_are_many(store: MemoryObjects, bounds: Bounds) -> None:
    ledger = ledger_on(store, every=1000, bounds=bounds)
    permit = started(ledger)
    for number in range(1, 31):
        land(ledger, permit, number)
    assert 2 <= len(snapshots(store)) <= 6
    assert len(entries(store)) < 30
    assert visible(ledger_on(store)) == records(30)


@pytest.mark.parametrize(("most", "kept"), [(35, 5), (2, 3), (1000, 20)])
def test_batches_of_many_partitions_are_kept_as_far_as_their_ranges_fit(
    store: MemoryObjects, most: int, kept: int
) -> None:
    """Each has two, and its row counts as five; the first three stay, and nothing that was made visible goes."""
    ledger = ledger_on(store, bounds=replace(BOUNDS, batch_ranges=most))
    permit = started(ledger)
    for number in range(1, 21):
        land(ledger, permit, number)
    with ledger_on(store).transaction() as transaction:
        left = [row.batch for row in transaction.read_batches_after(STREAM, BatchNumber(0)) if row.batch]
    assert left == list(range(21 - kept, 21))
    assert visible(ledger) == records(20)


def test_the_monitor_and_the_passes_of_one_process_read_each_entry_once_together(tmp_path: Path) -> None:
    address = address_on(tmp_path)
    ledger = address.open()
    ledger.prepare()
    permit = started(ledger)
    land(ledger, permit, 1)
    for entry in tmp_path.rglob("*.entry"):
        entry.write_text("whoever reads it again finds it damaged")
    again = address_on(tmp_path)
    fleet = ledger_fleet(ledger_key(spec_of({"location": str(tmp_path)}), again))
    assert fleet.landed(again.space, {STREAM: None})[STREAM].landed_batch == 1
    assert again.open().view(STREAM) == ledger.view(STREAM)


def test_a_line_of_positions_of_more_partitions_than_there_are_is_refused_before_it_is_parsed() -> None:
    positions = '{"t":{' + ",".join(f'"{number}":1' for number in range(PARTITIONS)) + "}}"
    with pytest.raises(FileTorn, match="more than 250000 values"):
        CODEC.parse_entry(positions)
    with pytest.raises(MalformedPositions, match="more than 250000 values"):
        Positions.from_json(positions)
    with pytest.raises(MalformedPositions, match="nested too deeply"):
        Ranges.from_json("[" * 100_000)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"id":[' + "[]," * PARTITIONS + "1]}"], ids=["deep", "wide"])
def test_a_file_of_a_checkpoint_that_no_driver_writes_is_torn(text: str) -> None:
    with pytest.raises(FileTorn, match=r"nested too deeply|more than 250000 values"):
        parse_metadata(text.encode())
    with pytest.raises(FileTorn, match=r"nested too deeply|more than 250000 values"):
        parse_offsets(f"v1\n{text}\n-".encode())
    with pytest.raises(FileTorn, match=r"nested too deeply|more than 250000 values"):
        parse_commit(f"v1\n{text}".encode())


def test_an_offset_file_of_many_lines_is_one_of_too_many_sources() -> None:
    many = parse_offsets(b"v1\n{}" + b"\n-" * 100_000)
    assert len(many.ends) < 100
    with pytest.raises(FileTorn, match="sources where a stream has one"):
        _ = many.only_end
