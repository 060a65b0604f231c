"""The object log is kept short: whoever slept while names were pruned writes into a gap that nobody reads."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.errors import CommitOutcomeUnknown
from exactlyonce.ledger.fence import Fenced, Permit, fence, raise_epoch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch
from tests.ledgers import STREAM, batch_row, new_stream, started
from tests.object_logs import before_create, entries, land, ledger_on, once, records, snapshots, visible
from tests.simulation.objects import MemoryObjects


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


def test_a_log_stays_short_and_every_fold_of_it_gives_the_same(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    permit = started(ledger)
    for number in range(1, 41):
        land(ledger, permit, number)
    assert len(snapshots(store)) == 2
    assert len(entries(store)) <= 10
    assert ledger_on(store).view(STREAM) == ledger.view(STREAM)
    assert visible(ledger_on(store)) == records(40)


def test_a_list_that_misses_all_that_came_and_went_while_it_was_made_still_shows_a_log(store: MemoryObjects) -> None:
    """Behind one snapshot alone everything may have gone, and the one that took its place is not seen yet."""
    writer = ledger_on(store, every=3)
    permit = started(writer)
    landed = 12
    for number in range(1, landed + 1):
        land(writer, permit, number)

    def meanwhile(label: str) -> None:
        nonlocal landed
        if label.startswith("list more"):
            store.hooks.step = lambda _: None
            newest = snapshots(store)[-1]
            while newest == snapshots(store)[-1]:
                landed += 1
                land(writer, permit, landed)
            store.hooks.step = meanwhile

    reader = ledger_on(store)
    store.hooks.step, store.hooks.shows = meanwhile, lambda: False
    seen = reader.view(STREAM)
    store.hooks.step = lambda _: None
    assert seen is not None, "a log that looks empty would be a new stream"
    assert visible(reader) == records(landed)


def test_a_process_that_slept_while_its_names_were_pruned_writes_into_a_gap_that_nobody_reads(
    store: MemoryObjects,
) -> None:
    sleeper, others = ledger_on(store, every=5), ledger_on(store, every=5)
    permit = started(sleeper)
    land(sleeper, permit, 1)

    def days_pass() -> None:
        raise_epoch(others, new_stream(others), Epoch(2), "ticket")
        for number in range(1, 31):
            with others.transaction() as transaction:
                transaction.write_batch(STREAM, batch_row(100 + number))

    store.hooks.step = before_create(days_pass)
    with pytest.raises(Fenced):
        land(sleeper, permit, 2)
    assert "000000000005.entry" in entries(store), "its name was free again"
    assert "000000000006.entry" not in entries(store)
    assert visible(others) == visible(ledger_on(store)) == visible(sleeper) == records(1)


def test_whoever_last_saw_the_log_before_a_gap_reads_past_what_was_written_there(store: MemoryObjects) -> None:
    sleeper, reader, others = (ledger_on(store, every=5) for _ in range(3))
    permit = started(sleeper)
    assert reader.view(STREAM) is not None

    def days_pass() -> None:
        for number in range(1, 31):
            with others.transaction() as transaction:
                transaction.write_batch(STREAM, batch_row(100 + number))

    store.hooks.step = before_create(days_pass)
    with pytest.raises(CommitOutcomeUnknown, match=r"entry 4 .* what followed on it is pruned"):
        record_landing(sleeper, permit)
    assert entries(store)[0] == "000000000004.entry", "the void entry is there"
    assert reader.view(STREAM) == ledger_on(store).view(STREAM)
    assert visible(reader) == []
    land(sleeper, permit, 1)  # nobody has fenced it, so it lands in the end, at the end of the log
    assert visible(reader) == records(1)


def record_landing(ledger: ObjectLogLedger, permit: Permit) -> None:
    """Write under the lock in one transaction, and leave what becomes of it to the caller."""
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.UPDATE)
        transaction.write_committable(STREAM, BatchNumber(1), "record 1")


def test_an_entry_that_somebody_built_on_is_in_the_log_though_it_is_not_the_newest(store: MemoryObjects) -> None:
    ours, theirs = ledger_on(store), ledger_on(store)
    permit = started(ours)

    def they_append() -> None:
        with theirs.transaction() as transaction:
            transaction.write_batch(STREAM, batch_row(9, BatchStatus.FAILED))

    store.hooks.step = once(lambda label: label.startswith("created"), they_append)
    land(ours, permit, 1)
    assert visible(ours) == visible(theirs) == records(1)


def test_an_entry_is_settled_by_the_one_that_follows_though_the_list_shows_only_the_snapshot_of_that(
    store: MemoryObjects,
) -> None:
    """A list is not of one moment: of what came while it was made, it may show the later one alone."""
    ours, theirs = ledger_on(store), ledger_on(store, every=1)
    permit = started(ours)
    shows = iter([False, False, True, False, True])  # what went, what came; then of that: committables, entry, snapshot

    def they_append() -> None:
        with theirs.transaction() as transaction:
            transaction.write_batch(STREAM, batch_row(9, BatchStatus.FAILED))
        assert entries(store)[-1] == "000000000005.entry"
        assert snapshots(store) == ["000000000005.snapshot"]

    store.hooks.step = once(lambda label: label.startswith("list more") and len(entries(store)) == 4, they_append)
    store.hooks.shows = lambda: next(shows)
    record_landing(ours, permit)
    assert list(shows) == [], "the list showed the snapshot and hid the entry before it"
    assert visible(theirs) == records(1)
