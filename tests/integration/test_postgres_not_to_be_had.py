"""A database that refuses a login, or that cannot be had now: one sentence without secrets, and never an answer of its own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.errors import LedgerRefused, LedgerUnreachable
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.positions.ranges import Epoch
from testbed.postgres import Postgres
from testbed.processes import free_port, port_answers
from tests.ledgers import STREAM, ledger_on, new_stream, started
from tests.postgres_situations import (
    Given,
    asks_of,
    assert_one_line_without_secrets,
    ledger_of_a_role,
    secret_says,
    situation,
)


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


REFUSED: dict[str, tuple[Given, str]] = {
    "wrong password": (secret_says(password="wrong-canary"), "password authentication failed for user"),
    "no password": (secret_says(password=""), "no password supplied"),
    "no such role": (secret_says(user="nobody_of_that_name"), "password authentication failed for user"),
    "no such database": (secret_says(dbname="no_such_database"), 'database "no_such_database" does not exist'),
    "no login": (situation("alter role {name} nologin"), "is not permitted to log in"),
    "no right to connect": (
        situation("revoke connect on database {name} from public"),
        "permission denied for database",
    ),
    "no encryption": (secret_says(sslmode="require"), "server does not support SSL, but SSL was required"),
}


AWAY: dict[str, tuple[Given, str]] = {
    "nobody listens": (secret_says(port=str(free_port())), "Connection refused"),
    "too many of the role": (situation("alter role {name} connection limit 0"), "too many connections for role"),
    "closed for maintenance": (
        situation("alter database {name} with allow_connections false"),
        "is not currently accepting connections",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_login_is_one_sentence_without_the_password(own_server: Postgres, name: str, case: str) -> None:
    given, said = REFUSED[case]
    ledger = ledger_of_a_role(own_server, name, given)
    for ask in asks_of(ledger):
        with pytest.raises(LedgerRefused) as caught:
            ask()
        sentence = str(caught.value)
        assert sentence.startswith(f"The database at {ledger.address} refuses the login: ")
        assert said in sentence
        assert sentence.endswith("Correct the secret that the sink names.")
        assert_one_line_without_secrets(sentence)


@pytest.mark.parametrize("case", AWAY)
def test_a_database_that_cannot_be_had_now_is_tried_again(own_server: Postgres, name: str, case: str) -> None:
    given, said = AWAY[case]
    ledger = ledger_of_a_role(own_server, name, given)
    for ask in asks_of(ledger):
        with pytest.raises(LedgerUnreachable) as caught:
            ask()
        sentence = str(caught.value)
        assert sentence.startswith(f"The database at {ledger.address} does not answer (")
        assert said in sentence
        assert_one_line_without_secrets(sentence)


def test_a_host_that_is_silent_is_unreachable_within_the_time_limit(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        secret = {
            "host": "127.0.0.1",
            "port": str(listener.getsockname()[1]),
            "dbname": "d",
            "user": "u",
            "password": "p",
        }
        ledger = PostgresLedger(PostgresAddress.from_secret("warehouse", secret), limits=Limits(connect_seconds=2))
        with pytest.raises(LedgerUnreachable, match="timeout expired"):
            ledger.view(STREAM)


def test_a_server_without_a_free_connection_is_tried_again(own_server: Postgres, name: str) -> None:
    ledger = ledger_of_a_role(own_server, name, secret_says())

    def take_all() -> None:
        with contextlib.ExitStack() as held:
            for _ in range(20):
                held.enter_context(contextlib.closing(ledger.open_connection()))

    with pytest.raises(LedgerUnreachable, match="remaining connection slots are reserved"):
        take_all()


def test_a_server_that_takes_no_writes_is_neither_read_nor_written_and_is_tried_again(
    own_server: Postgres, name: str
) -> None:
    """What it answers may be older than what has landed."""
    ledger = ledger_on(own_server, name)
    started(ledger)
    own_server.execute(f"alter database {name} set default_transaction_read_only = on")
    uri = f"postgresql://postgres:{own_server.password}@127.0.0.1:{own_server.port}/{name}"
    elsewhere = PostgresLedger(PostgresAddress.from_secret("warehouse", {"uri": uri}), limits=ledger.limits)
    asks: list[Callable[[], object]] = [lambda: raise_epoch(elsewhere, new_stream(ledger), Epoch(2), "ticket")]
    for ask in [*asks_of(elsewhere), *asks]:
        with pytest.raises(LedgerUnreachable) as caught:
            ask()
        assert str(caught.value) == (
            f"The database at {elsewhere.address} is read-only: a standby, or a server with default_transaction_read_only "
            f'(connection to server at "127.0.0.1", port {own_server.port} failed: session is read-only); nothing was read '
            "from it or written to it, and it will be retried."
        )
