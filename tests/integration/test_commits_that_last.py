"""What counts is on disk before it counts, whatever the role says; what tasks wrote before it is proven and not assumed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.landing import begin_batch, land_batch
from exactlyonce_spark.planned import LandingRefused, PlannedBatch, Written
from exactlyonce_spark.witnesses import RowsInDoubt, complete_taken, require_witnesses, write_under_fence
from testbed.postgres import Postgres
from tests.ledgers import IDS, P0, P1, STREAM, landed, ledger_on, started
from tests.rig import eventually

BATCH = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)}), IDS)
TAG = 7


@pytest.fixture(scope="module")
def server_of_this_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Its log is written once in ten seconds, unless a commit asks for it."""
    settings = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "autovacuum": "off"}
    with Postgres(tmp_path_factory.mktemp("own") / "postgres", settings=settings) as made:
        yield made


@pytest.fixture
def ledger(server_of_this_file: Postgres, name: str) -> PostgresLedger:
    made = ledger_on(server_of_this_file, name)
    server_of_this_file.execute(f"alter database {name} set synchronous_commit = off")
    return PostgresLedger(made.address, limits=made.limits)


def kill_a_backend(server: Postgres, name: str) -> None:
    """The postmaster ends every session, re-initialises, and is the same process as before, started when it was."""
    started_at, times_ready = server.execute("select pg_postmaster_start_time()"), ready(server)
    with closing(psycopg2.connect(server.dsn(name))) as victim:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        eventually(lambda: ready(server) > times_ready, "the server has recovered")
    assert server.execute("select pg_postmaster_start_time()") == started_at


def ready(server: Postgres) -> int:
    """How often it has begun to take sessions."""
    return (server.folder / "postgres.log").read_text().count("ready to accept connections")


def write_rows(transaction: LedgerTransaction) -> int:
    assert isinstance(transaction, PostgresTransaction)
    with transaction.cursor() as cursor:
        cursor.execute("insert into target select generate_series(1, 5)")
        return int(cursor.rowcount)


def forget_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits be as the role has them, as a failover would lose them, too."""
    monkeypatch.setattr("exactlyonce.connectors.postgres.ledger._COMMIT_ON_DISK", "select 1")


@pytest.mark.parametrize("of", ["database", "role"])
def test_what_counts_lasts_through_the_death_of_a_backend_where_synchronous_commit_is_off(
    server_of_this_file: Postgres, name: str, ledger: PostgresLedger, of: str
) -> None:
    if of == "role":
        server_of_this_file.execute(f"alter database {name} reset synchronous_commit")
        server_of_this_file.execute("alter role postgres set synchronous_commit = off")
    try:
        permit = started(ledger)
        begin_batch(ledger, permit, BATCH)
        land_batch(ledger, permit, BATCH, lambda transaction: Written(write_rows(transaction)))
        kill_a_backend(server_of_this_file, name)
    finally:
        server_of_this_file.execute("alter role postgres reset synchronous_commit")
    assert landed(server_of_this_file, name) == ([1, 2, 3, 4, 5], [1])


@pytest.mark.parametrize("delivery", ["AtLeastOnce", "AtMostOnce"])
def test_a_tasks_commit_that_is_gone_is_missed_although_the_server_looks_as_before(
    server_of_this_file: Postgres, name: str, ledger: PostgresLedger, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit was acknowledged and is lost: here since nothing waited for the disk, elsewhere by a failover."""
    permit = started(ledger)
    begin_batch(ledger, permit, BATCH)
    once = delivery == "AtMostOnce"
    if once:
        land_batch(ledger, permit, BATCH, lambda _: Written(None), status=BatchStatus.TAKEN)
    with monkeypatch.context() as careless:
        forget_to_wait(careless)
        assert write_under_fence(ledger, permit, BATCH.number, BatchNumber(int(once)), TAG, write_rows) == 5
        assert landed(server_of_this_file, name)[0] == [1, 2, 3, 4, 5], "it was acknowledged and seen"
        kill_a_backend(server_of_this_file, name)
    assert landed(server_of_this_file, name) == ([], []), "and is gone"
    with pytest.raises(RowsInDoubt) as caught:
        complete(ledger, permit, delivery)
    assert str(caught.value) == (
        "The database has lost what 1 of 1 tasks had written for batch 1: it crashed, failed over or was restored meanwhile."
    )
    assert landed(server_of_this_file, name) == ([], []), "nothing is told as landed"


def complete(ledger: PostgresLedger, permit: Permit, delivery: str) -> None:
    """Move the positions (AtLeastOnce), or tell a batch that was taken as written (AtMostOnce)."""
    tags = frozenset({TAG})

    def confirm(transaction: LedgerTransaction) -> Written:
        require_witnesses(transaction, STREAM, BATCH.number, tags)
        return Written(5)

    if delivery == "AtMostOnce":
        complete_taken(ledger, permit, BATCH, Written(5), 5, tags)
        return
    land_batch(ledger, permit, BATCH, confirm)


@pytest.mark.parametrize("delivery", ["AtLeastOnce", "AtMostOnce"])
def test_witnesses_are_removed_with_their_batch_and_so_is_what_failed_tasks_have_left(
    server_of_this_file: Postgres, name: str, ledger: PostgresLedger, delivery: str
) -> None:
    permit = started(ledger)
    begin_batch(ledger, permit, BATCH)
    once = delivery == "AtMostOnce"
    if once:
        land_batch(ledger, permit, BATCH, lambda _: Written(None), status=BatchStatus.TAKEN)
    for tag in (TAG, TAG + 1):
        write_under_fence(ledger, permit, BATCH.number, BatchNumber(int(once)), tag, write_rows)
    complete(ledger, permit, delivery)
    kill_a_backend(server_of_this_file, name)
    assert landed(server_of_this_file, name) == ([1, 1, 2, 2, 3, 3, 4, 4, 5, 5], [1])
    assert server_of_this_file.execute("select * from exactlyonce.witnesses", name) == []


def test_a_task_that_comes_after_its_batch_has_landed_writes_nothing(
    server_of_this_file: Postgres, name: str, ledger: PostgresLedger
) -> None:
    permit = started(ledger)
    begin_batch(ledger, permit, BATCH)
    for tag in (TAG, TAG + 1):
        write_under_fence(ledger, permit, BATCH.number, BatchNumber(0), tag, write_rows)
    complete(ledger, permit, "AtLeastOnce")
    before = landed(server_of_this_file, name)
    with pytest.raises(LandingRefused, match="The rows of batch 1 belong after batch 0 and the ledger is at 1"):
        write_under_fence(ledger, permit, BATCH.number, BatchNumber(0), TAG + 2, write_rows)
    assert landed(server_of_this_file, name) == before
    assert server_of_this_file.execute("select * from exactlyonce.witnesses", name) == []


@pytest.mark.parametrize(("said", "effective"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_synchronous_commit_is_raised_where_it_is_off_and_never_lowered(
    server_of_this_file: Postgres, name: str, ledger: PostgresLedger, said: str, effective: str
) -> None:
    server_of_this_file.execute(f"alter database {name} set synchronous_commit = {said}")
    for lasting, expected in ((True, effective), (False, "off")):
        with ledger.transaction(lasting=lasting) as transaction, transaction.cursor() as cursor:
            cursor.execute("show synchronous_commit")
            assert cursor.fetchone() == (expected,)
