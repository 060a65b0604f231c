"""The object log where its store does not answer, or holds something else than was written."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.object_log.documents import LogDamaged
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import LogMissing, ObjectLog
from exactlyonce.errors import LedgerRefused, LedgerUnreachable
from exactlyonce.ledger.fence import Fenced
from tests.ledgers import STREAM, batch_row, started
from tests.object_logs import land, ledger_on, records, visible
from tests.simulation.objects import MemoryObjects


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


def test_a_landing_whose_names_cannot_be_listed_is_settled_under_the_lock(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    failures = iter([False, True])  # the fold's list is answered, the one after the create is not
    store.hooks.reads_fail = lambda: next(failures, False)
    land(ledger, permit, 1)
    assert visible(ledger_on(store)) == records(1)


def test_a_store_that_does_not_answer_at_all_is_unreachable_and_nothing_else(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    store.hooks.reads_fail = lambda: True
    with pytest.raises(LedgerUnreachable, match="s3a://lake/orders/ledger"):
        land(ledger, permit, 1)
    with pytest.raises(LedgerUnreachable):
        ledger.view(STREAM)


@pytest.mark.parametrize("number", [2, 3])
def test_a_missing_entry_is_told_by_its_number(store: MemoryObjects, number: int) -> None:
    started(ledger_on(store))
    with ledger_on(store).transaction() as transaction:
        transaction.write_batch(STREAM, batch_row(1))
    store.delete([path for path in store.objects if path.endswith(f"{number:012}.entry")])
    with pytest.raises(LogDamaged, match=f"lacks entry {number}"):
        ledger_on(store).view(STREAM)


@pytest.mark.parametrize("name", ["log.json", "000000000002.entry"])
@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b"\xff\xfe"])
def test_an_object_that_was_cut_or_overwritten_is_refused_in_a_sentence(
    store: MemoryObjects, name: str, damage: bytes
) -> None:
    started(ledger_on(store))
    path = next(path for path in store.objects if path.endswith(name))
    store.objects[path] = damage
    with pytest.raises(LedgerRefused, match=rf"(?s)^(?!.*\n).*{name}"):
        ObjectLogLedger(ObjectLog(store, "ledger")).view(STREAM)


def test_an_object_whose_content_was_changed_is_known_by_its_checksum(store: MemoryObjects) -> None:
    started(ledger_on(store))
    path = next(path for path in store.objects if path.endswith("000000000002.entry"))
    store.objects[path] = store.objects[path].replace(b'"orders","id-1"', b'"orders","id-7"')
    with pytest.raises(LogDamaged, match="checksum"):
        ledger_on(store).view(STREAM)


def test_a_process_whose_log_was_removed_and_made_again_sees_the_new_one_alone(store: MemoryObjects) -> None:
    ledger = ledger_on(store)
    permit = started(ledger)
    land(ledger, permit, 1)
    store.objects.clear()
    with pytest.raises(LogMissing):
        land(ledger, permit, 2)
    another = ledger_on(store)
    started(another, epoch=5)
    with pytest.raises(Fenced):
        land(ledger, permit, 2)
    assert visible(ledger) == []
