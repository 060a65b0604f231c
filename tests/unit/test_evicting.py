"""Who writes to the ledger does not wait for a process that hangs: it ends the session that holds what it needs.

Such as that of a driver whose node is lost, and which the database takes for alive for as long as TCP does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Permit, raise_epoch
from exactlyonce.ledger.publish import Adoption, adopt, record_answers, record_lost, record_query
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import land_decided, replace_decided
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.bisection import rolled_back
from exactlyonce_spark.landing import begin_batch, finish_partitions, land_batch, land_partition
from exactlyonce_spark.planned import PlannedBatch, Written
from exactlyonce_spark.target import Target
from exactlyonce_spark.witnesses import complete_taken, write_under_fence
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started
from tests.simulation.database import MemoryDatabase, MemoryLedger

FIRST = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)}), IDS)


class Watched(MemoryLedger):
    """A ledger that notes of each transaction whether it ends who holds what it needs."""

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())
        self.opened: list[bool] = []

    def transaction(self, *, evicting: bool = False, lasting: bool = True, dispensable: bool = False) -> Any:
        self.opened.append(evicting)
        return super().transaction(evicting=evicting, lasting=lasting, dispensable=dispensable)


def raised(ledger: Watched) -> None:
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")


def nothing(_: object) -> int:
    return 0


def landed_in_parts(ledger: Watched, permit: Permit) -> None:
    begin_batch(ledger, permit, FIRST, by_partition=True)
    ledger.opened.clear()
    land_partition(ledger, permit, FIRST.number, P0, FIRST.ranges[P0], IDS, nothing)
    finish_partitions(ledger, permit, FIRST, Written(0), 5)


def taken_and_written(ledger: Watched, permit: Permit) -> None:
    begin_batch(ledger, permit, FIRST)
    ledger.opened.clear()
    land_batch(ledger, permit, FIRST, lambda _: Written(None), status=BatchStatus.TAKEN)
    write_under_fence(ledger, permit, FIRST.number, FIRST.number, 7, nothing)
    complete_taken(ledger, permit, FIRST, Written(0), 5, frozenset({7}))


def decided_and_landed(ledger: Watched, permit: Permit) -> None:
    begin_batch(ledger, permit, FIRST)
    decided = DecidedBatch(FIRST.number, ())
    land_batch(ledger, permit, FIRST, lambda _: Written(0), status=BatchStatus.DECIDED)
    with ledger.transaction() as transaction:
        transaction.write_decided(STREAM, decided)
    ledger.opened.clear()
    replace_decided(ledger, permit, decided, decided)
    land_decided(ledger, permit, FIRST.number)


@pytest.mark.parametrize("acts", [landed_in_parts, taken_and_written, decided_and_landed])
def test_a_driver_does_not_wait_for_a_former_one(acts: Callable[[Watched, Permit], None]) -> None:
    ledger = Watched()
    acts(ledger, started(ledger))
    assert len(ledger.opened) >= 2
    assert all(ledger.opened)


def test_what_a_bisection_tries_does_not_wait_for_a_former_driver() -> None:
    ledger = Watched()
    permit = started(ledger)
    ledger.opened.clear()
    rolled_back(ledger, permit, cast("Target", SimpleNamespace(write=lambda *_: 0)))([])
    assert ledger.opened == [True]


def test_no_act_of_a_reconciliation_waits_for_a_driver() -> None:
    ledger = Watched()
    permit = started(ledger)
    begin_batch(ledger, permit, FIRST)
    land_batch(ledger, permit, FIRST, lambda _: Written(None), status=BatchStatus.TAKEN)
    view = ledger.view(STREAM)
    assert view is not None
    ledger.opened.clear()
    raised(ledger)
    record_lost(ledger, STREAM, Epoch(2), view.batches[-1], "brokers")
    record_answers(ledger, STREAM, Epoch(2), FIRST.number, {})
    record_query(ledger, STREAM, Epoch(2), cast("Any", SimpleNamespace()))
    adopt(ledger, STREAM, Epoch(2), Adoption(view.stream.owner, view.stream.database, view.stream.token))
    assert ledger.opened == [True] * 5
