"""The object log where a request has no answer: it is sent again, settled under the lock, and lands once."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.object_log.log import CREATE_TRIES
from exactlyonce.errors import CommitOutcomeUnknown
from exactlyonce.ledger.fence import fence
from exactlyonce.ledger.port import Lock
from tests.ledgers import started
from tests.object_logs import entries, land, ledger_on, records, visible
from tests.simulation.objects import MemoryObjects


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


@pytest.mark.parametrize("fate", ["lost", "applied"])
@pytest.mark.parametrize("unanswered", range(1, CREATE_TRIES + 2))
def test_a_create_without_an_answer_is_sent_again_and_lands_once(
    store: MemoryObjects, fate: str, unanswered: int
) -> None:
    """With more of them than there are tries the outcome is settled under the lock, by an entry of its own."""
    ledger = ledger_on(store)
    permit = started(ledger)
    fates = iter([fate] * unanswered)
    store.hooks.create_fate = lambda: next(fates, "answered")
    land(ledger, permit, 1)
    land(ledger, permit, 2)
    assert visible(ledger_on(store)) == records(2)


def test_a_create_that_is_never_answered_is_unknown_and_not_failed(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    store.hooks.create_fate = lambda: "lost"
    with pytest.raises(CommitOutcomeUnknown, match="entry 4"):
        land(ledger, permit, 1)


def test_a_create_that_arrives_after_the_look_that_settled_it_finds_its_name_taken(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    fates = iter(["late"] * CREATE_TRIES)
    store.hooks.create_fate = lambda: next(fates, "answered")
    land(ledger, permit, 1)
    assert len(store.under_way) == CREATE_TRIES
    for request in list(store.under_way):
        store.settle(request)
    land(ledger, permit, 2)
    assert visible(ledger_on(store)) == records(2)


def test_a_create_that_arrives_before_the_look_that_settles_it_has_landed(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    fates = iter(["late"] * CREATE_TRIES)

    def fate() -> str:
        found = next(fates, "answered")
        if found == "answered" and store.under_way:
            store.settle(store.under_way[0])
            store.under_way.clear()
        return found

    store.hooks.create_fate = fate
    land(ledger, permit, 1)
    land(ledger, permit, 2)
    assert visible(ledger_on(store)) == records(2)


def test_a_look_under_the_lock_is_an_entry_even_where_it_changes_nothing(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    before = len(entries(store))
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.SHARE)
    assert len(entries(store)) == before
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.UPDATE)
    assert len(entries(store)) == before + 1
