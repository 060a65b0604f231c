"""Clients that streams share: one for each address and login, another for a rotated secret, none that is dead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.connector import KafkaAddress
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.postgres import pool as postgres_pool
from exactlyonce.connectors.postgres.connector import PostgresLedgerAddress
from exactlyonce.connectors.postgres.ledger import DEFAULT_SCHEMA, PostgresLedger
from exactlyonce.control.shared_clients import UNUSED_SECONDS, SharedClients
from exactlyonce.errors import LedgerRefused, LedgerUnreachable, SourceRefused
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.conftest import SASL_PASSWORD, SASL_USER, address_of
from tests.ledgers import STREAM, ledger_on, started
from tests.rig import eventually
from tests.topics import made

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def sessions(server: Postgres, database: str) -> int:
    """How many sessions the database has, as the server counts them."""
    (found,) = server.execute(
        f"select count(*) from pg_stat_activity where datname = '{database}' and backend_type = 'client backend'"
    )
    return int(str(found[0]))


def ledger_at(server: Postgres, database: str, *login: str) -> PostgresLedgerAddress:
    """The ledger of a database, with a login of its own if one is given."""
    return PostgresLedgerAddress(address_of(server, database, *login), DEFAULT_SCHEMA)


def end_sessions(server: Postgres, database: str) -> None:
    """End every session of the database, and wait until they are gone."""
    server.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'")
    eventually(lambda: sessions(server, database) == 0, "the sessions are gone")


def test_streams_of_one_database_take_turns_on_as_many_connections_as_there_are_passes_at_once(
    postgres_18: Postgres, name: str
) -> None:
    started(ledger_on(postgres_18, name))
    end_sessions(postgres_18, name)
    clients, address = SharedClients(), ledger_at(postgres_18, name)
    with ThreadPoolExecutor(3) as passes:
        looks = list(passes.map(lambda _: clients.ledger(address).view(STREAM), range(60)))
    assert all(looks)
    assert 1 <= sessions(postgres_18, name) <= 3


def test_a_rotated_password_is_used_by_the_next_attempt_and_the_old_one_is_not_tried_again(
    postgres_18: Postgres, name: str
) -> None:
    started(ledger_on(postgres_18, name))
    role = f"lands_{name}"
    postgres_18.execute(f"create role {role} login superuser password 'old'")
    clients = SharedClients()
    assert clients.ledger(ledger_at(postgres_18, name, role, "old")).view(STREAM) is not None
    postgres_18.execute(f"alter role {role} password 'new'")
    assert clients.ledger(ledger_at(postgres_18, name, role, "new")).view(STREAM) is not None
    end_sessions(postgres_18, name)
    with pytest.raises(LedgerRefused, match="refuses the login"):
        clients.ledger(ledger_at(postgres_18, name, role, "old")).view(STREAM)
    assert clients.ledger(ledger_at(postgres_18, name, role, "new")).view(STREAM) is not None


def test_connections_that_died_without_a_sign_are_not_noticed(
    postgres_18: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_on(postgres_18, name)
    started(ledger)
    before, identity = ledger.view(STREAM), ledger.database_identity()
    assert before is not None
    monkeypatch.setattr(postgres_pool, "_is_alive", lambda connection: True)  # as when a network drops them silently
    end_sessions(postgres_18, name)
    assert ledger.view(STREAM) == before
    end_sessions(postgres_18, name)
    assert ledger.database_identity() == identity
    end_sessions(postgres_18, name)
    ledger.prepare()
    end_sessions(postgres_18, name)
    with ledger.transaction() as transaction:
        assert transaction.read_positions(STREAM).positions == before.landed.positions
    end_sessions(postgres_18, name)
    ledger.forget(STREAM, before.stream.owner)
    assert ledger.view(STREAM) is None


def test_what_was_begun_in_a_transaction_is_not_repeated_on_another_connection(
    postgres_18: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_on(postgres_18, name)
    started(ledger)
    monkeypatch.setattr(postgres_pool, "_is_alive", lambda connection: True)

    def interrupted() -> None:
        with ledger.transaction() as transaction:
            transaction.supersede_batches(STREAM, None)
            end_sessions(postgres_18, name)
            transaction.supersede_batches(STREAM, None)

    with pytest.raises(LedgerUnreachable):
        interrupted()


def test_a_client_that_nobody_asks_for_any_more_is_closed_and_so_is_what_was_still_in_use(
    postgres_18: Postgres, name: str
) -> None:
    started(ledger_on(postgres_18, name))
    end_sessions(postgres_18, name)
    clock = Clock()
    clients, address = SharedClients(clock), ledger_at(postgres_18, name)
    unused = clients.ledger(address)
    unused.view(STREAM)
    with unused.transaction():
        clock.now += UNUSED_SECONDS + 1
        assert isinstance(clients.ledger(replace(address, schema="another")), PostgresLedger)
        assert sessions(postgres_18, name) == 1, "the one in use"
    eventually(lambda: sessions(postgres_18, name) == 0, "no session is left")
    assert clients.ledger(address) is not unused


def test_streams_with_the_same_brokers_and_login_share_a_client_and_another_login_has_its_own(
    kafka: Kafka, name: str
) -> None:
    made(kafka, name)
    clients = SharedClients()
    servers = f"{kafka.host}:{kafka.sasl_port}"
    spec = KafkaSource.model_validate(
        {"bootstrapServers": servers, "topics": [name], "properties": SASL, "secretRef": {"name": "login"}}
    )
    login = {"username": SASL_USER, "password": SASL_PASSWORD}
    right = cast("KafkaBounds", clients.source(KafkaAddress(spec, login)))
    assert cast("KafkaBounds", clients.source(KafkaAddress(spec, dict(login))))._admin is right._admin
    wrong = cast("KafkaBounds", clients.source(KafkaAddress(spec, {**login, "password": "guessed"})))
    assert wrong._admin is not right._admin
    with pytest.raises(SourceRefused, match="refuses the login"):
        wrong.view()
    assert right.view().bounds, "another's refusal is not this one's"


def test_many_passes_ask_one_shared_client_at_once(kafka: Kafka, name: str) -> None:
    made(kafka, name)
    clients, spec = (
        SharedClients(),
        KafkaSource.model_validate({"bootstrapServers": kafka.bootstrap_servers, "topics": [name]}),
    )
    with ThreadPoolExecutor(10) as passes:
        views = list(
            passes.map(lambda _: cast("KafkaBounds", clients.source(KafkaAddress(spec, {}))).view(), range(50))
        )
    assert all(view == views[0] for view in views)
