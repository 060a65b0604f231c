"""The testbed's streaming standby does what the tests of failovers take for granted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from testbed.postgres_replica import PostgresPair
from tests.rig import eventually


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PostgresPair]:
    with PostgresPair(tmp_path / "pair") as servers:
        servers.execute("create table kept (id int)")
        yield servers


def kept(pair: PostgresPair) -> list[int]:
    return [int(str(number)) for (number,) in pair.execute("select id from kept order by id")]


def test_a_failover_loses_what_was_committed_while_replication_was_cut_and_nothing_else(pair: PostgresPair) -> None:
    pair.execute("insert into kept values (1)")
    pair.wait_for_standby()
    pair.cut_replication()
    pair.execute("insert into kept values (2)")
    pair.fail_over()
    assert kept(pair) == [1]
    pair.execute("insert into kept values (3)")
    pair.rebuild_standby()
    pair.execute("insert into kept values (4)")
    pair.wait_for_standby()
    pair.fail_over()
    assert kept(pair) == [1, 3, 4]


def test_a_synchronous_standby_holds_every_commit_that_was_acknowledged(tmp_path: Path) -> None:
    with PostgresPair(tmp_path / "pair", synchronous=True) as pair:
        pair.execute("create table kept (id int)")
        for number in range(20):
            pair.execute("insert into kept values (%s)", parameters=[number])
        pair.fail_over()
        assert kept(pair) == list(range(20))
        pair.rebuild_standby()
        pair.cut_replication()
        writer = threading.Thread(target=insert_until_it_is_ended, args=(pair, 20))
        writer.start()
        waits = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
        eventually(lambda: pair.execute(waits) != [], "a commit waits for the standby")
        assert kept(pair) == list(range(20)), "nobody sees it before the standby has it"
        pair.execute("select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
        writer.join()
        assert kept(pair) == list(range(21)), "it was committed on the primary all the same"
        pair.fail_over()
        assert kept(pair) == list(range(20))


def insert_until_it_is_ended(pair: PostgresPair, number: int) -> None:
    with contextlib.suppress(psycopg2.OperationalError):
        pair.execute("insert into kept values (%s)", parameters=[number])


def test_clients_of_both_hosts_reach_the_one_that_takes_writes(pair: PostgresPair) -> None:
    hosts = pair.multi_host()
    login = f"host={hosts['host']} port={hosts['port']} dbname=postgres user=postgres password={pair.password}"
    for attributes, recovering in (("any", True), ("read-write", False)):
        connection = psycopg2.connect(login, target_session_attrs=attributes)
        with connection.cursor() as cursor:
            cursor.execute("select pg_is_in_recovery()")
            assert cursor.fetchone() == (recovering,)
        connection.close()
    pair.fail_over()
    connection = psycopg2.connect(login, target_session_attrs="read-write")
    assert connection.info.port == pair.primary.port
    connection.close()


def test_a_session_ends_with_the_primary_that_it_was_on(pair: PostgresPair) -> None:
    connection = psycopg2.connect(pair.dsn())
    pair.fail_over()
    with pytest.raises(psycopg2.OperationalError), connection.cursor() as cursor:
        cursor.execute("select 1")
    connection.close()


def test_a_killed_session_restarts_the_server_under_the_same_postmaster(pair: PostgresPair) -> None:
    held, victim = psycopg2.connect(pair.dsn()), psycopg2.connect(pair.dsn())
    pair.execute("create unlogged table staged as select 1 as id")
    pair.execute("insert into kept values (1)")
    pair.primary.kill_backend(victim.info.backend_pid)
    with pytest.raises(psycopg2.OperationalError), held.cursor() as cursor:
        cursor.execute("select 1")
    assert kept(pair) == [1]
    assert pair.execute("select * from staged") == [], "unlogged tables are empty after a crash"
    held.close()
    victim.close()
