"""`deletionPolicy: Delete`: of a deleted stream nothing stays in its log, and who begins there meanwhile loses nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from exactlyonce.connectors.object_log import ledger as ledgers
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.connectors.object_log.points import POINTS
from exactlyonce.errors import CommitOutcomeUnknown, StoreUnreachable
from exactlyonce.ledger.port import Lock
from tests.ledgers import STREAM, new_stream, started
from tests.object_logs import Crashed, archives, land, ledger_on, once, records, visible
from tests.simulation.objects import MemoryObjects


@pytest.fixture
def store() -> MemoryObjects:
    """A log with entries, snapshots and archives of a stream that has landed."""
    made = MemoryObjects()
    ledger = ledger_on(made, every=5)
    permit = started(ledger)
    for number in range(1, 12):
        land(ledger, permit, number)
    assert archives(made)
    return made


def names(store: MemoryObjects) -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in store.objects)


def test_no_object_of_a_forgotten_stream_stays_and_doing_it_again_is_harmless(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    identity = ledger.database_identity()
    for _ in range(2):
        ledger.forget(STREAM, new_stream(ledger).owner)
        assert len(names(store)) == 4, "the first object, an entry, and two snapshots without a row"
        whole = b"".join(store.objects.values())
        assert b"record" not in whole
        assert STREAM.encode() not in whole
        assert b"token-1" not in whole
        assert ledger_on(store).view(STREAM) is None
    assert ledger_on(store).database_identity() == identity


def test_a_stream_of_the_same_name_begins_in_the_log_of_the_forgotten_one(store: MemoryObjects) -> None:
    ledger = ledger_on(store, every=5)
    ledger.forget(STREAM, new_stream(ledger).owner)
    another = ledger_on(store, every=5)
    permit = started(another)
    for number in range(1, 12):
        land(another, permit, number)
    assert visible(ledger_on(store)) == records(11)


def test_what_was_forgotten_is_so_for_who_reads_a_snapshot_that_the_forgetter_has_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looked between an entry and its snapshot, and has the committables that the snapshot refers to. Then it dies."""
    monkeypatch.setattr(ledgers, "clear", lambda log: None)
    store = MemoryObjects()
    operator = ledger_on(store)

    def observed(at: str) -> None:
        operator.view(STREAM)

    driver = ledger_on(store, every=5, reached=observed)
    permit = started(driver)
    for number in range(1, 10):
        land(driver, permit, number)
    assert visible(operator) == visible(driver) == records(9)
    operator.forget(STREAM, new_stream(operator).owner)
    assert visible(driver) == visible(operator) == visible(ledger_on(store)) == []
    started(driver)
    assert visible(driver) == visible(operator) == visible(ledger_on(store)) == []


def test_a_log_that_another_stream_has_a_row_in_keeps_its_objects(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    with ledger.transaction() as transaction:
        row = transaction.lock_stream(STREAM, Lock.SHARE)
        assert row is not None
        transaction.update_stream(replace(row, stream_id="shop/other"))
    before = names(store)
    ledger.forget(STREAM, new_stream(ledger).owner)
    assert set(before) < set(names(store))
    assert ledger_on(store).view("shop/other") is not None


def test_a_stream_that_begins_while_the_log_is_cleared_loses_nothing(store: MemoryObjects) -> None:
    """It begins before each of the requests with which the log is cleared."""
    ledger, whole = ledger_on(store, every=5), dict(store.objects)
    labels: list[str] = []
    store.hooks.step = labels.append
    ledger.forget(STREAM, new_stream(ledger).owner)
    begun = 0
    for at in range(len(labels)):
        again = MemoryObjects()
        again.objects = dict(whole)
        steps = iter(range(1000))

        def begin(again: MemoryObjects = again) -> None:
            other = ledger_on(again, every=5)
            if other.view(STREAM) is None:
                permit = started(other)
                for number in range(1, 8):
                    land(other, permit, number)

        again.hooks.step = once(lambda label, at=at, steps=steps: next(steps) == at, begin)  # type: ignore[misc]
        with suppress(CommitOutcomeUnknown):  # so much landed before the outcome was looked at that its entry is pruned
            ledger_on(again, every=5).forget(STREAM, new_stream(ledger).owner)
        if ledger_on(again).view(STREAM) is not None:
            begun += 1
            assert visible(ledger_on(again)) == records(7), labels[at]
    assert begun > 4


@pytest.mark.parametrize("point", POINTS)
def test_who_dies_while_a_log_is_cleared_leaves_one_that_others_go_on_with(store: MemoryObjects, point: str) -> None:
    def reached(at: str) -> None:
        if at == point:
            raise Crashed

    ledger = ledger_on(store, every=5)
    dying = ledger_on(store, every=5, reached=reached)
    with suppress(Crashed):
        dying.forget(STREAM, new_stream(ledger).owner)
    fresh = ledger_on(store, every=5)
    fresh.forget(STREAM, new_stream(ledger).owner)
    assert fresh.view(STREAM) is None
    permit = started(fresh)
    for number in range(1, 8):
        land(fresh, permit, number)
    assert visible(ledger_on(store)) == records(7)


def test_a_store_that_does_not_answer_while_a_log_is_cleared_fails_no_deletion(
    store: MemoryObjects, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def silent(self: ObjectLog) -> None:
        raise StoreUnreachable("no answer")

    ledger = ledger_on(store, every=5)
    monkeypatch.setattr(ObjectLog, "shorten", silent)
    ledger.forget(STREAM, new_stream(ledger).owner)
    assert ledger.view(STREAM) is None
    assert "are left in the object log at s3a://lake/orders/ledger: no answer" in caplog.text
