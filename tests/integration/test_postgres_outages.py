"""The ledger's database when it is restarted, goes away, refuses or is full: an error named by situation, in one sentence."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg2
import pytest

from exactlyonce.connectors.postgres.connection import Limits
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.errors import CommitOutcomeUnknown, LedgerUnreachable, TransactionTooLong
from testbed.pgbouncer import PgBouncer
from testbed.postgres import Postgres
from testbed.processes import port_answers
from tests.conftest import address_of
from tests.ledgers import STREAM, batch_row, landed, ledger_on, sessions_where, started
from tests.postgres_situations import asks_of, assert_one_line_without_secrets, ledger_of_a_role, situation
from tests.rig import eventually


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


@pytest.fixture(scope="module")
def server_of_this_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("own") / "postgres", settings={"max_connections": "12"}) as made:
        yield made


@pytest.fixture
def own_server(server_of_this_file: Postgres) -> Postgres:
    """A server that a test may stop."""
    if not port_answers(server_of_this_file.port):
        server_of_this_file.start()
    return server_of_this_file


def interrupted(
    ledger: PostgresLedger, by: Callable[[], None], *, goes_on: bool = True, statement: str = "select 1"
) -> None:
    """Write a batch, let something happen, and continue to the COMMIT with or without another statement."""
    with ledger.transaction() as transaction, transaction.cursor() as cursor:
        transaction.write_batch(STREAM, batch_row(1))
        by()
        if goes_on:
            cursor.execute(statement)


def test_a_restart_of_the_database_between_two_transactions_is_not_noticed(own_server: Postgres, name: str) -> None:
    ledger = ledger_on(own_server, name)
    started(ledger)
    before = ledger.view(STREAM)
    own_server.stop()
    own_server.start()
    assert ledger.view(STREAM) == before
    own_server.crash()
    own_server.start()
    interrupted(ledger, lambda: None)
    assert landed(own_server, name) == ([], [1])


def test_a_database_that_goes_away_inside_a_transaction_is_unreachable_and_keeps_nothing(
    own_server: Postgres, name: str
) -> None:
    ledger = ledger_on(own_server, name)
    started(ledger)
    with pytest.raises(LedgerUnreachable):
        interrupted(ledger, own_server.crash)
    with pytest.raises(LedgerUnreachable, match="does not answer"):
        ledger.view(STREAM)
    own_server.start()
    assert landed(own_server, name) == ([], [])


def test_a_database_that_goes_away_at_the_commit_leaves_the_outcome_unknown(own_server: Postgres, name: str) -> None:
    ledger = ledger_on(own_server, name)
    started(ledger)
    with pytest.raises(CommitOutcomeUnknown, match="lost during a COMMIT"):
        interrupted(ledger, own_server.crash, goes_on=False)
    own_server.start()
    assert landed(own_server, name) == ([], [])


def test_a_transaction_has_an_end_even_when_its_client_has_not(server: Postgres, name: str) -> None:
    short = Limits(connect_seconds=3, lock_seconds=20, patience_seconds=60, transaction_seconds=1)
    ledger = ledger_on(server, name)
    started(ledger)
    hurried = PostgresLedger(ledger.address, limits=short)
    with pytest.raises(LedgerUnreachable):
        interrupted(hurried, lambda: None, statement="select pg_sleep(300)")

    def idle() -> None:
        eventually(lambda: sessions_where(ledger, "state = 'idle in transaction'") == 0, "the idle session is ended")

    with pytest.raises(LedgerUnreachable):
        interrupted(hurried, idle)
    with pytest.raises(CommitOutcomeUnknown):
        interrupted(hurried, idle, goes_on=False)
    assert landed(server, name) == ([], [])


class _Slowly(io.BytesIO):
    """Rows to copy, some of them each half second, for three seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 6

    def read(self, _size: int | None = -1, /) -> bytes:
        time.sleep(0.5)
        self._left -= 1
        return b"1\n" * 50_000 if self._left >= 0 else b""


def _one_long_statement(cursor: psycopg2.extensions.cursor) -> None:
    cursor.execute("select pg_sleep(300)")


def _a_copy_of_a_slow_source(cursor: psycopg2.extensions.cursor) -> None:
    cursor.copy_expert("copy target from stdin", _Slowly())


def _many_short_statements(cursor: psycopg2.extensions.cursor) -> None:
    for _ in range(600):
        cursor.execute("select pg_sleep(0.5)")


@pytest.mark.parametrize(
    ("version", "work"),
    [
        (18, _one_long_statement),
        (18, _a_copy_of_a_slow_source),
        (18, _many_short_statements),
        (16, _one_long_statement),
        (16, _a_copy_of_a_slow_source),
    ],
)
def test_a_transaction_that_takes_too_long_says_which_setting_to_raise(
    request: pytest.FixtureRequest, name: str, version: int, work: Callable[[psycopg2.extensions.cursor], None]
) -> None:
    server: Postgres = request.getfixturevalue(f"postgres_{version}")
    ledger = ledger_on(server, name)
    sink = PostgresSink.model_validate({"secretRef": {"name": "w"}, "table": "target", "transactionTimeout": "1s"})
    hurried = PostgresLedger(ledger.address, limits=Limits.of_batches(sink))

    def write() -> None:
        with hurried.transaction() as transaction, transaction.cursor() as cursor:
            cursor.execute("insert into target values (1)")
            work(cursor)

    with pytest.raises(TransactionTooLong) as caught:
        write()
    sentence = str(caught.value)
    assert sentence.startswith(f"A transaction at {ledger.address} took longer than 1 seconds and was ended (")
    assert "Raise sink.postgres.transactionTimeout" in sentence
    assert_one_line_without_secrets(sentence)
    assert landed(server, name) == ([], [])


def test_what_one_row_or_its_batch_is_to_blame_for_is_no_outage(server: Postgres, name: str) -> None:
    """A row that no index takes, a statement that someone cancels: trying again for ever would help nobody."""
    ledger = ledger_on(server, name)
    server.execute("create table words (word text); create index on words (word)", name)

    def in_a_transaction(statement: str) -> None:
        with ledger.transaction() as transaction, transaction.cursor() as cursor:
            cursor.execute(statement)

    poison = "insert into words select string_agg(md5(n::text), '') from generate_series(1, 1000) as n"
    with pytest.raises(psycopg2.errors.ProgramLimitExceeded, match="index row"):
        in_a_transaction(poison)
    with pytest.raises(psycopg2.errors.QueryCanceled, match="user request"):
        in_a_transaction("select pg_cancel_backend(pg_backend_pid()), pg_sleep(60)")


def test_a_full_disk_is_named_and_tried_again(server: Postgres, name: str) -> None:
    ledger = ledger_on(server, name)
    started(ledger)
    full = "do $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$"
    said = f"The disk of the database at {ledger.address} is full (could not extend file); make room there. It will be retried."
    with pytest.raises(LedgerUnreachable) as caught:
        interrupted(ledger, lambda: None, statement=full)
    assert str(caught.value) == said


def test_the_streams_own_limit_holds_where_the_role_has_a_shorter_one(own_server: Postgres, name: str) -> None:
    ledger = ledger_of_a_role(own_server, name, situation("alter role {name} set statement_timeout = '100ms'"))
    with ledger.transaction() as transaction, transaction.cursor() as cursor:
        cursor.execute("select pg_sleep(1)")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (18, {"transaction_timeout": "12s", "statement_timeout": "7s", "idle_in_transaction_session_timeout": "7s"}),
        (16, {"statement_timeout": "7s", "idle_in_transaction_session_timeout": "7s"}),
    ],
)
def test_limits_are_set_inside_the_transaction_and_are_gone_after_it(
    request: pytest.FixtureRequest, name: str, version: int, expected: dict[str, str]
) -> None:
    server: Postgres = request.getfixturevalue(f"postgres_{version}")
    server.create_database(name)
    ledger = PostgresLedger(address_of(server, name), limits=Limits(transaction_seconds=7, lock_seconds=5))

    def settings(connection: psycopg2.extensions.connection) -> dict[str, str]:
        with connection.cursor() as cursor:
            cursor.execute(
                "select name, current_setting(name) from pg_settings where name = any(%s)", (list(expected),)
            )
            return dict(cursor.fetchall())

    with ledger.transaction() as transaction:
        assert settings(transaction.connection) == expected
    with contextlib.closing(transaction.connection) as connection:
        assert settings(connection) == dict.fromkeys(expected, "0"), "a pooler hands the session to someone else"


HURRIED = Limits(connect_seconds=3, transaction_seconds=1, answer_seconds=1)


@contextlib.contextmanager
def frozen(server: Postgres, name: str) -> Iterator[None]:
    """Every session of the database's is frozen; the kernel continues answering for them."""
    sessions = server.execute(
        "select pid from pg_stat_activity where datname = %s and state is not null", "postgres", (name,)
    )
    for (pid,) in sessions:
        os.kill(int(str(pid)), signal.SIGSTOP)
    assert sessions
    try:
        yield
    finally:
        for (pid,) in sessions:
            os.kill(int(str(pid)), signal.SIGCONT)


def test_a_question_behind_a_lock_ends_in_time(server: Postgres, name: str) -> None:
    ledger = ledger_on(server, name)
    started(ledger)
    hurried = PostgresLedger(ledger.address, limits=HURRIED)
    expected = hurried.view(STREAM)
    with ledger.transaction() as transaction, transaction.cursor() as cursor:
        cursor.execute("lock table exactlyonce.streams in access exclusive mode")
        with pytest.raises(
            LedgerUnreachable, match=r"does not answer \(canceling statement due to statement timeout\)"
        ):
            hurried.view(STREAM)
    assert hurried.view(STREAM) == expected


def test_a_question_to_a_session_that_is_frozen_is_asked_again_on_a_fresh_one(postgres_18: Postgres, name: str) -> None:
    ledger = ledger_on(postgres_18, name)
    started(ledger)
    hurried = PostgresLedger(ledger.address, limits=HURRIED)
    expected = hurried.view(STREAM)
    ledger.close()
    with frozen(postgres_18, name):
        assert hurried.view(STREAM) == expected


def test_a_transaction_in_a_session_that_is_frozen_has_an_end(postgres_18: Postgres, name: str) -> None:
    ledger = ledger_on(postgres_18, name)
    started(ledger)
    ledger.close()
    hurried = PostgresLedger(ledger.address, limits=HURRIED)
    with contextlib.ExitStack() as until_the_end, pytest.raises(LedgerUnreachable):
        interrupted(hurried, lambda: until_the_end.enter_context(frozen(postgres_18, name)))
    assert landed(postgres_18, name) == ([], [])


def test_a_server_that_is_away_behind_its_pooler_is_tried_again(
    pooler: PgBouncer, own_server: Postgres, name: str, tmp_path: Path
) -> None:
    del pooler  # asked for because it skips where there is none
    with PgBouncer(tmp_path, own_server.port, {"postgres": own_server.password}) as own_pooler:
        ledger = ledger_on(own_server, name, port=own_pooler.port)
        started(ledger)
        own_server.stop()
        for ask in asks_of(ledger):
            with pytest.raises(LedgerUnreachable, match="does not answer"):
                ask()
        own_server.start()
        eventually(lambda: answers(ledger), "the pooler has found the server again")
        interrupted(ledger, lambda: None)
    assert landed(own_server, name) == ([], [1])


def answers(ledger: PostgresLedger) -> bool:
    try:
        return ledger.view(STREAM) is not None
    except LedgerUnreachable:
        return False
