"""The ledger in Postgres where others hold its locks and connections are cut at their COMMIT."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import psutil
import pytest

from exactlyonce.connectors.postgres.connection import Limits
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.errors import LockHeldByOther
from exactlyonce.ledger.fence import Fenced, Permit, fence, raise_epoch
from exactlyonce.ledger.port import LedgerTransaction, Lock
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres
from testbed.postgres_proxy import Cut, PostgresProxy
from tests.conftest import address_of
from tests.ledger_processes import hold_the_stream, process
from tests.ledgers import (
    IDS,
    P0,
    P1,
    PATIENT,
    STREAM,
    batch_row,
    landed,
    ledger_on,
    new_stream,
    sessions_where,
    started,
    wait_until_blocked,
)
from tests.rig import eventually

BATCH = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)}), IDS)


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def test_a_raise_waits_until_those_who_land_are_done(server: Postgres, name: str) -> None:
    ledger = ledger_on(server, name, PATIENT)
    permit = started(ledger)
    order: list[str] = []

    def raise_meanwhile() -> None:
        raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
        order.append("raised")

    other = threading.Thread(target=raise_meanwhile)
    with ledger.transaction() as transaction:
        fence(transaction, permit, Lock.SHARE)
        other.start()
        wait_until_blocked(ledger)
        order.append("landing")
    other.join(60)
    assert order == ["landing", "raised"]


@pytest.mark.parametrize("copying", [False, True], ids=["between statements", "in the middle of a COPY"])
def test_a_frozen_holder_of_the_lock_is_ended_and_lands_nothing_when_it_wakes(
    server: Postgres, name: str, copying: bool
) -> None:
    ledger = ledger_on(server, name)
    permit = started(ledger)
    frozen_holder_is_evicted(ledger, permit, copying)
    assert landed(server, name) == ([], [])


def frozen_holder_is_evicted(ledger: PostgresLedger, permit: Permit, copying: bool) -> None:
    """Freeze a process that holds the stream's row, raise the epoch all the same, and wake it."""
    parameters = dict(ledger.address.parameters)
    with process(hold_the_stream, parameters, PATIENT, permit, batch_row(1), copying) as (holder, connection):
        assert connection.recv() == "holding"
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(holder.pid).status() == psutil.STATUS_STOPPED, "the holder is frozen")
        connection.send("continue")
        assert raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket").row.epoch == 2
        os.kill(holder.pid, signal.SIGCONT)
        assert connection.recv() == "LedgerUnreachable", "its session was ended"


def test_a_frozen_holder_behind_a_pooler_is_ended_too(pooler: PgBouncer, postgres_18: Postgres, name: str) -> None:
    ledger = ledger_on(postgres_18, name, port=pooler.port)
    permit = started(ledger)
    frozen_holder_is_evicted(ledger, permit, copying=False)
    assert landed(postgres_18, name) == ([], [])


def test_a_holder_of_another_role_is_not_ended_but_named(server: Postgres, name: str) -> None:
    ledger = ledger_on(server, name)
    started(ledger)
    server.execute(f"create role {name} login password 'x'")
    server.execute(f"grant usage, create on schema exactlyonce to {name}", name)
    server.execute(f"grant select, insert, update on all tables in schema exactlyonce to {name}", name)
    hurried = Limits(connect_seconds=3, lock_seconds=2, patience_seconds=0.2, transaction_seconds=60)
    other = PostgresLedger(address_of(server, name, name, "x"), limits=hurried)
    with ledger.transaction() as transaction:
        transaction.lock_stream(STREAM, Lock.SHARE)
        with pytest.raises(
            LockHeldByOther, match=r"keeps a row of this stream locked .*; end the session that holds it"
        ):
            raise_epoch(other, new_stream(other), Epoch(2), "ticket")
        transaction.write_batch(STREAM, batch_row(1))
    assert landed(server, name)[1] == [1], "the holder's transaction was left alone"


def test_a_target_table_that_others_keep_locked_is_told_from_a_ledger_that_they_keep(
    server: Postgres, name: str
) -> None:
    ledger = ledger_on(server, name)
    hurried = PostgresLedger(ledger.address, limits=Limits(connect_seconds=3, lock_seconds=1))

    def write() -> None:
        with hurried.transaction() as transaction, transaction.cursor() as cursor:
            cursor.execute("insert into target values (1)")

    with ledger.transaction() as other, other.cursor() as cursor:
        cursor.execute("alter table target add column note text")
        with pytest.raises(LockHeldByOther) as caught:
            write()
    assert str(caught.value) == (
        f"The target table at {ledger.address}, or rows of it, are kept locked by another session (canceling statement due to "
        "lock timeout), as an ALTER or a VACUUM FULL does; it will be retried. End that session if it should not be."
    )


@pytest.mark.parametrize("cut", list(Cut))
def test_a_commit_with_unknown_outcome_lands_once(server: Postgres, name: str, cut: Cut) -> None:
    with PostgresProxy(server.port) as proxy:
        ledger = ledger_on(server, name, port=proxy.port)
        permit = started(ledger)
        writes = landing(ledger, permit, lambda: proxy.arm(cut))
        assert proxy.cuts == [cut]
    assert writes == (2 if cut is Cut.BEFORE_THE_SERVER_SAW_IT else 1)
    assert landed(server, name) == ([1, 2, 3], [1])


def test_a_commit_still_under_way_is_waited_for_under_the_lock(server: Postgres, name: str) -> None:
    """Whoever looked without the lock would see nothing landed, run the batch again, and have it twice."""
    with PostgresProxy(server.port) as proxy:
        ledger = ledger_on(server, name, PATIENT, proxy.port)
        permit = started(ledger)
        direct = PostgresLedger(address_of(server, name), limits=PATIENT)
        writes: list[int] = []

        def land() -> None:
            writes.append(landing(ledger, permit, lambda: proxy.arm(Cut.AFTER_THE_SERVER_SAW_IT, delayed=True)))

        lander = threading.Thread(target=land)
        lander.start()
        wait_until_blocked(direct)
        assert landed(server, name) == ([], [])
        proxy.deliver()
        lander.join(60)
    assert writes == [1]
    assert landed(server, name) == ([1, 2, 3], [1])


def test_a_commit_that_stays_under_way_is_ended_and_the_batch_lands_again(server: Postgres, name: str) -> None:
    with PostgresProxy(server.port) as proxy:
        ledger = ledger_on(server, name, port=proxy.port)
        permit = started(ledger)
        writes = landing(ledger, permit, lambda: proxy.arm(Cut.AFTER_THE_SERVER_SAW_IT, delayed=True))
        proxy.deliver()
        eventually(lambda: sessions_where(ledger, "state = 'idle in transaction'") == 0, "no transaction is open")
    assert writes == 2
    assert landed(server, name) == ([1, 2, 3], [1])


def test_a_commit_whose_epoch_was_raised_meanwhile_is_left_to_the_successor(server: Postgres, name: str) -> None:
    with PostgresProxy(server.port) as proxy:
        ledger = ledger_on(server, name, port=proxy.port)
        direct = PostgresLedger(address_of(server, name), limits=PATIENT)
        permit = started(direct)

        def raised_while_the_commit_is_under_way() -> None:
            eventually(lambda: proxy.cuts != [], "the connection is cut")
            raise_epoch(direct, new_stream(direct), Epoch(2), "ticket")

        successor = threading.Thread(target=raised_while_the_commit_is_under_way)
        successor.start()
        with pytest.raises(Fenced):
            landing(ledger, permit, lambda: proxy.arm(Cut.AFTER_THE_SERVER_SAW_IT), before_settling=successor.join)
    assert landed(server, name) == ([1, 2, 3], [1]), "it landed, and only its successor may say so"


def landing(
    ledger: PostgresLedger,
    permit: Permit,
    before_commit: Callable[[], None],
    before_settling: Callable[[], None] = lambda: None,
) -> int:
    """Land batch 1 with three rows, and return how often its rows were written; the first COMMIT is interfered with."""
    writes = 0
    original = ledger.transaction

    def write(transaction: LedgerTransaction) -> Written:
        nonlocal writes
        writes += 1
        cursor = transaction.cursor()  # type: ignore[attr-defined] # a PostgresTransaction
        cursor.execute("insert into target values (1), (2), (3)")
        if writes == 1:
            before_commit()
        return Written(3)

    def settling_after_all(**options: bool) -> object:
        if writes:
            before_settling()
        return original(**options)

    ledger.transaction = settling_after_all  # type: ignore[method-assign, assignment]
    land_batch(ledger, permit, BATCH, write)
    return writes
