"""What batches made visible is kept once, outside of the snapshots, and no object is larger than what is read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.checkpoint.store import FileTooLarge
from exactlyonce.connectors.object_log import archives as archiving
from exactlyonce.connectors.object_log.bounds import BOUNDS, LogFull
from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.errors import CommitOutcomeUnknown, StoreUnreachable
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.positions.ranges import BatchNumber
from tests.ledgers import STREAM, new_stream, started
from tests.object_logs import archives, before_create, entries, land, ledger_on, records, snapshots, visible
from tests.simulation.objects import MemoryObjects
from tests.simulation.resource import KEEPS_NOTHING


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


def newest_snapshot(store: MemoryObjects) -> bytes:
    return next(content for path, content in store.objects.items() if path.endswith(snapshots(store)[-1]))


def test_a_snapshot_does_not_grow_with_what_was_made_visible_and_readers_miss_nothing_of_it(
    store: MemoryObjects,
) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    sizes = []
    for number in range(1, 61):
        land(ledger, permit, number)
        delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1)
        if number in (30, 60):
            sizes.append(len(newest_snapshot(store)))
    assert b"record 1" not in newest_snapshot(store)
    assert sizes[1] - sizes[0] < 40 * len(archives(store)), "a reference for each archive, and nothing of its texts"
    assert visible(ledger_on(store)) == visible(ledger) == records(60)


def test_little_text_stays_in_the_snapshots(store: MemoryObjects) -> None:
    ledger = ObjectLogLedger(ObjectLog(store, "ledger", snapshot_every=5))
    ledger.prepare()
    permit = started(ledger)
    for number in range(1, 21):
        land(ledger, permit, number)
    assert archives(store) == []
    assert visible(ledger_on(store)) == records(20)


def test_many_texts_are_archived_in_parts(store: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "PART_BYTES", 20)
    ledger = ledger_on(store, every=10)
    permit = started(ledger)
    for number in range(1, 8):
        land(ledger, permit, number)
    assert archives(store) == [f"000000000010-{part:04}.committables" for part in range(4)], "two records fit into each"
    assert visible(ledger_on(store)) == records(7)


def test_an_archive_that_is_missing_or_changed_is_told_by_name_and_nothing_is_left_out(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    for number in range(1, 8):
        land(ledger, permit, number)
    path = next(path for path in store.objects if path.endswith(archives(store)[0]))
    content = store.objects.pop(path)
    with pytest.raises(
        LogDamaged,
        match=rf"{path}, which holds the committables of landed batches, is missing; restore it from a backup",
    ):
        visible(ledger_on(store))
    store.objects[path] = content.replace(b"record 1", b"record 9")
    with pytest.raises(LogDamaged, match=r"The checksum of .*committables does not fit"):
        visible(ledger_on(store))


def test_an_archive_whose_create_is_not_answered_is_referred_to_by_nothing(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    store.hooks.create_fate = lambda: "answered"
    creates: list[str] = []

    def lose_archives(label: str) -> None:
        if label.startswith("create "):
            creates.append(label)
        lost = label.startswith("create ") and label.endswith(".committables")
        store.hooks.create_fate = lambda: "lost" if lost else "answered"

    store.hooks.step = lose_archives
    for number in range(1, 8):
        land(ledger, permit, number)
    assert any(label.endswith(".committables") for label in creates)
    assert (snapshots(store), archives(store)) == ([], [])
    store.hooks.step = lambda label: None
    store.hooks.create_fate = lambda: "answered"
    land(ledger, permit, 8)
    assert (len(snapshots(store)), len(archives(store))) == (1, 1)
    assert visible(ledger_on(store)) == records(8)


def test_a_stream_that_is_forgotten_leaves_no_reference(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    for number in range(1, 8):
        land(ledger, permit, number)
    ledger.forget(STREAM, new_stream(ledger).owner)
    assert visible(ledger_on(store)) == []


def test_an_entry_that_nobody_would_read_again_is_refused_and_not_written(store: MemoryObjects) -> None:
    permit = started(ledger_on(store))
    before = entries(store)
    with pytest.raises(LogFull, match=r"no room for an entry of \d+ bytes.* nothing was written"):
        land(ledger_on(store, bounds=replace(BOUNDS, object_bytes=200)), permit, 1)
    assert [name for name in entries(store) if name not in before] == ["000000000004.entry"], "which changes nothing"
    assert visible(ledger_on(store)) == []


def test_an_entry_after_ours_that_is_too_large_to_read_leaves_our_outcome_unknown(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    started(ledger)
    read = store.read

    def too_large(path: str, most_bytes: int | None = None) -> bytes:
        if path.endswith("5.entry"):
            raise FileTooLarge("entry 5 is too large")
        return read(path, most_bytes)

    def next_one_is_there(label: str) -> None:
        if label.startswith("created") and label.endswith("4.entry"):
            store.objects[label.split()[1].replace("4.entry", "5.entry")] = b"x"

    store.read = too_large  # type: ignore[method-assign]
    store.hooks.step = next_one_is_there
    with pytest.raises(CommitOutcomeUnknown, match="entry 4"), ledger.transaction() as transaction:
        transaction.write_committable(STREAM, BatchNumber(1), "record 1")


def test_housekeeping_that_loses_to_a_landing_is_run_again_and_neither_is_lost(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    for number in range(1, 5):
        land(ledger, permit, number)
    store.hooks.step = before_create(lambda: land(ledger, permit, 5))
    assert delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1).batches
    view = ledger_on(store).view(STREAM)
    assert view is not None
    assert view.stream.landed_batch == 5
    assert visible(ledger) == records(5)


def test_a_store_that_is_gone_while_archives_are_read_is_an_unreachable_ledger(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    for number in range(1, 8):
        land(ledger, permit, number)
    read = store.read

    def gone(path: str, most_bytes: int | None = None) -> bytes:
        if path.endswith(".committables"):
            raise StoreUnreachable("no answer")
        return read(path, most_bytes)

    store.read = gone  # type: ignore[method-assign]
    with pytest.raises(Exception, match="The ledger at s3a://lake/orders/ledger cannot be reached: no answer"):
        visible(ledger)
