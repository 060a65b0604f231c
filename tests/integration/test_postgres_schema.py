"""The ledger's schema: made once, refused if it has another version; and the rights that are enough, and what each is for."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.tables import SCHEMA_VERSION
from exactlyonce.errors import LedgerRefused
from testbed.postgres import Postgres
from tests.conftest import QUICK, address_of
from tests.ledger_processes import prepare_together, process
from tests.ledgers import STREAM
from tests.postgres_roles import (
    CREATE,
    PASSWORD,
    SCHEMA,
    SHOP,
    TABLE,
    USAGE,
    ids,
    of_a_role,
    of_a_role_with_rights,
    take_effect,
)


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def versions(server: Postgres, name: str) -> list[tuple[object, ...]]:
    return server.execute("select version from exactlyonce.schema_versions", name)


def tables(server: Postgres, name: str) -> set[object]:
    found = server.execute("select tablename from pg_tables where schemaname = 'exactlyonce'", name)
    return {row[0] for row in found}


def test_eight_processes_at_their_first_use_make_the_schema_once(postgres_18: Postgres, name: str) -> None:
    postgres_18.create_database(name)
    address = address_of(postgres_18, name)
    with ExitStack() as stack:
        children = [
            stack.enter_context(process(prepare_together, dict(address.parameters), QUICK))[1] for _ in range(8)
        ]
        assert [child.recv() for child in children] == ["ready"] * 8
        for child in children:
            child.send("now")
        assert [child.recv() for child in children] == ["prepared"] * 8
    assert versions(postgres_18, name) == [(SCHEMA_VERSION,)]


@pytest.mark.parametrize("other", [SCHEMA_VERSION + 1, 15])
def test_a_ledger_of_another_version_is_refused_and_left_as_it_is(server: Postgres, name: str, other: int) -> None:
    ledger = of_a_role_with_rights(server, name)
    take_effect(ledger, batch=1)
    server.execute("update exactlyonce.schema_versions set version = %s", name, (other,))
    before = tables(server, name)
    with pytest.raises(LedgerRefused) as caught:
        PostgresLedger(ledger.address, limits=QUICK).prepare()
    assert str(caught.value) == (
        f"The ledger's schema exactlyonce at {ledger.address} has version {other}, and this release needs version "
        f"{SCHEMA_VERSION}; run the release that made it."
    )
    assert (versions(server, name), tables(server, name)) == ([(other,)], before)


def test_a_relation_of_somebody_elses_in_the_schema_refuses_the_ledger_by_its_name_and_nothing_is_made(
    server: Postgres, name: str
) -> None:
    ledger = of_a_role_with_rights(server, name)
    server.execute("create table exactlyonce.control (mine integer)", name)
    with pytest.raises(LedgerRefused, match='relation "control" already exists'):
        ledger.prepare()
    assert tables(server, name) == {"control"}


def test_a_database_without_a_ledger_holds_no_stream(server: Postgres, name: str) -> None:
    server.create_database(name)
    assert PostgresLedger(address_of(server, name)).view(STREAM) is None
    assert tables(server, name) == set(), "looking makes nothing"


@dataclass(frozen=True)
class Missing:
    """A right that is missing, the words of the refusal, and what an administrator then does."""

    grants: tuple[str, ...]
    said: tuple[str, ...]
    mended_by: str


GRANT = "Grant the role USAGE and CREATE on the ledger's schema"

MISSING = {
    "no schema": Missing(
        (SHOP, TABLE),
        ("The ledger's schema exactlyonce is missing", 'run: create schema "exactlyonce" authorization "{name}";'),
        SCHEMA,
    ),
    "no USAGE on the ledger's schema": Missing(
        ("create schema exactlyonce", CREATE, SHOP, TABLE), ("permission denied for schema exactlyonce", GRANT), USAGE
    ),
    "no CREATE on the ledger's schema": Missing(
        ("create schema exactlyonce", USAGE, SHOP, TABLE), ("permission denied for schema exactlyonce", GRANT), CREATE
    ),
    "no USAGE on the table's schema": Missing((SCHEMA, TABLE), ("permission denied for schema shop",), SHOP),
    "no SELECT": Missing(
        (SCHEMA, SHOP, "grant insert, update on shop.target to {name}"),
        ("permission denied for table target", "SELECT, INSERT and UPDATE on the target table"),
        "grant select on shop.target to {name}",
    ),
    "no INSERT": Missing(
        (SCHEMA, SHOP, "grant select, update on shop.target to {name}"),
        ("permission denied for table target", "SELECT, INSERT and UPDATE on the target table"),
        "grant insert on shop.target to {name}",
    ),
    "no UPDATE": Missing(
        (SCHEMA, SHOP, "grant select, insert on shop.target to {name}"),
        ("permission denied for table target", "SELECT, INSERT and UPDATE on the target table"),
        "grant update on shop.target to {name}",
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_a_missing_right_is_one_sentence_and_granting_it_is_enough(postgres_18: Postgres, name: str, case: str) -> None:
    missing = MISSING[case]
    ledger = of_a_role(postgres_18, name, *missing.grants)
    with pytest.raises(LedgerRefused) as caught:
        take_effect(ledger, batch=1)
    sentence = str(caught.value)
    assert [words for words in missing.said if words.format(name=name) not in sentence] == []
    assert str(ledger.address) in sentence
    assert "\n" not in sentence
    assert PASSWORD not in sentence
    assert ids(postgres_18, name) == []
    postgres_18.execute(missing.mended_by.format(name=name), name)
    take_effect(ledger, batch=1, epoch=2)
    assert ids(postgres_18, name) == [1, 2]


def test_a_ledger_that_another_role_made_asks_for_its_tables(postgres_18: Postgres, name: str) -> None:
    ledger = of_a_role(postgres_18, name, "create schema exactlyonce", USAGE, CREATE, SHOP, TABLE)
    PostgresLedger(address_of(postgres_18, name)).prepare()
    with pytest.raises(
        LedgerRefused, match=r"permission denied for table .*SELECT, INSERT, UPDATE and DELETE on its tables"
    ):
        take_effect(ledger, batch=1)
    postgres_18.execute(f"grant select, insert, update, delete on all tables in schema exactlyonce to {name}", name)
    take_effect(ledger, batch=1)
    assert ids(postgres_18, name) == [1, 2]


def test_a_role_that_takes_over_leaves_the_other_roles_staging_as_it_is(postgres_18: Postgres, name: str) -> None:
    ledger = of_a_role_with_rights(postgres_18, name)
    take_effect(ledger, batch=1)
    staging = {table for table in tables(postgres_18, name) if str(table).startswith("staging_")}
    successor = f"{name}_b"
    postgres_18.execute(f"create role {successor} login password '{PASSWORD}'")
    for grant in (
        USAGE,
        CREATE,
        SHOP,
        TABLE,
        "grant select, insert, update, delete on all tables in schema exactlyonce to {name}",
    ):
        postgres_18.execute(grant.format(name=successor), name)
    other = PostgresLedger(address_of(postgres_18, name, successor, PASSWORD), limits=QUICK)
    take_effect(other, batch=2, epoch=2)
    assert ids(postgres_18, name) == [1, 2, 101, 102]
    assert staging < tables(postgres_18, name)
