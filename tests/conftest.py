"""Servers shared by all tests of a run: started when the first test asks, ended with the run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from testbed.kafka import Kafka
from testbed.pgbouncer import PgBouncer, PgBouncerUnavailable, ensure_program
from testbed.postgres import Postgres
from tests.rig import Rig
from tests.scheduling import WholeModules, group_of, longest_first
from tests.suites import SUITES, NotInOneSuite, suite_of

_counter = itertools.count(1)

QUICK = Limits(connect_seconds=3, lock_seconds=20, patience_seconds=0.3, transaction_seconds=60)
"""Limits for tests: what a frozen holder costs is seconds, not minutes."""

SASL_USER, SASL_PASSWORD = "reader", "plain-secret"
QUOTING_USER, QUOTING_PASSWORD = "quoting", 'pass "word" with \\ in it'


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests are chosen by their suites."""
    parser.addoption("--suite", action="append", default=[], choices=list(SUITES), help="run the tests of this suite")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the suites that are asked for, let what takes minutes run first, and keep those together that share."""
    wanted = config.getoption("suite")
    suites = [(item, _suite_of(item)) for item in items]
    config.hook.pytest_deselected(items=[item for item, suite in suites if wanted and suite not in wanted])
    known = []
    for item in (item for item, suite in suites if not wanted or suite in wanted):
        seconds = item.get_closest_marker("seconds")
        known.append((item, group_of(item.nodeid, item.config.rootpath), float(seconds.args[0]) if seconds else 0.0))
    items[:] = longest_first(known)


def _suite_of(item: pytest.Item) -> str:
    marked = item.get_closest_marker("suite")
    try:
        return suite_of(item.nodeid, marked.args[0] if marked else None)
    except NotInOneSuite as problem:
        raise pytest.UsageError(str(problem)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeModules | None:
    """Give workers whole modules where their tests share a fixture."""
    return WholeModules(config, log) if config.getoption("dist") == "loadscope" else None


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
    """A Kafka broker, with a second listener that asks for a login, which may do everything to what has no ACL."""
    users = {SASL_USER: SASL_PASSWORD, QUOTING_USER: QUOTING_PASSWORD}
    settings = {
        "log.cleaner.backoff.ms": "100",  # compaction is awaited in tests
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
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
