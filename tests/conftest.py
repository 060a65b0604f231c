"""Servers shared by all tests of a run: started when the first test asks, ended with the run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from testbed.kafka import Kafka
from testbed.pgbouncer import PgBouncer, PgBouncerUnavailable, ensure_program
from testbed.postgres import Postgres
from tests.longest_first import longest_first
from tests.rig import Rig

_counter = itertools.count(1)

QUICK = Limits(connect_seconds=3, lock_seconds=20, patience_seconds=0.3, transaction_seconds=60)
"""Limits for tests: what a frozen holder costs is seconds, not minutes."""

SASL_USER, SASL_PASSWORD = "reader", "plain-secret"
QUOTING_USER, QUOTING_PASSWORD = "quoting", 'pass "word" with \\ in it'


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests that are marked with their seconds run first."""
    marks = [(item, item.get_closest_marker("seconds")) for item in items]
    known = [(item, float(mark.args[0]) if mark else 0.0) for item, mark in marks]
    items[:] = longest_first(known, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the servers' logs and data."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def postgres_18(servers: Path) -> Iterator[Postgres]:
    """PostgreSQL 18 with the durability of production."""
    with Postgres(servers / "postgres-18", settings={"max_connections": "200"}) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_16(servers: Path) -> Iterator[Postgres]:
    """PostgreSQL 16, which has no transaction_timeout."""
    with Postgres(servers / "postgres-16", version=16) as server:
        yield server


@pytest.fixture(scope="session")
def pooler(servers: Path, postgres_18: Postgres) -> Iterator[PgBouncer]:
    """A transaction pooler before PostgreSQL 18; tests that ask for it are skipped, with the reason, where there is none."""
    try:
        ensure_program()
    except PgBouncerUnavailable as problem:
        pytest.skip(f"{problem} Then `pytest tests/integration -k pooler` runs what is skipped here.")
    with PgBouncer(servers / "pooler", postgres_18.port, {"postgres": postgres_18.password}) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(servers: Path) -> Iterator[Kafka]:
    """A Kafka broker, with a second listener that asks for a login."""
    users = {SASL_USER: SASL_PASSWORD, QUOTING_USER: QUOTING_PASSWORD}
    settings = {"log.cleaner.backoff.ms": "100"}  # compaction is awaited in tests
    with Kafka(servers / "kafka", settings=settings, users=users) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    """A name that no other test of the run uses."""
    return f"n{next(_counter)}"


@pytest.fixture
def database(postgres_18: Postgres, name: str) -> str:
    """The connection string of an empty database."""
    return postgres_18.create_database(name)


@pytest.fixture
def address(postgres_18: Postgres, name: str, database: str) -> PostgresAddress:
    """The address of that database."""
    return address_of(postgres_18, name)


def address_of(
    server: Postgres, database: str, user: str = "postgres", password: str | None = None, *, port: int | None = None
) -> PostgresAddress:
    """Return the address of a database as a secret gives it; `port` where something stands before the server."""
    secret = {
        "host": server.host,
        "port": str(port or server.port),
        "dbname": database,
        "user": user,
        "password": server.password if password is None else password,
    }
    return PostgresAddress.from_secret("warehouse", secret)


@pytest.fixture
def rig(kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str) -> Rig:
    """A stream with a topic, a database and a table of its own."""
    return Rig(kafka, postgres_18, tmp_path, name)
