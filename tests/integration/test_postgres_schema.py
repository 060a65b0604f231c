"""The ledger's schema: made once, migrated, refused when it is newer; and the rights that are enough, and what each is for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.tables import MIGRATIONS, SCHEMA_VERSION, Migration
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from testbed.postgres import Postgres
from tests.conftest import QUICK, address_of
from tests.ledger_processes import prepare_together, process
from tests.ledgers import IDS, P0, STREAM, new_stream
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
    run_release,
    take_effect,
)

NEXT_RELEASE = Migration(
    version=SCHEMA_VERSION + 1,
    oldest_reader=SCHEMA_VERSION,
    sql="alter table {schema}.streams add column of_the_next_release text not null default 'x'; "
    "alter table {schema}.batches add column also_new bigint; "
    "create table {schema}.things_of_the_next_release (id bigint primary key)",
)
RELEASE_AFTER_THAT = Migration(SCHEMA_VERSION + 2, oldest_reader=SCHEMA_VERSION + 2, sql="select 1")


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def versions(server: Postgres, name: str) -> list[tuple[object, ...]]:
    return server.execute("select version, oldest_reader from exactlyonce.schema_versions order by version", name)


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
    assert versions(postgres_18, name) == [(migration.version, migration.oldest_reader) for migration in MIGRATIONS]


@pytest.mark.parametrize("before", [12, 13])
def test_a_ledger_of_an_earlier_version_is_migrated_to_that_of_the_last_migration(
    postgres_18: Postgres, name: str, before: int
) -> None:
    postgres_18.create_database(name)
    with pytest.MonkeyPatch.context() as release:
        run_release(release, *MIGRATIONS[:before])
        PostgresLedger(address_of(postgres_18, name)).prepare()
    assert versions(postgres_18, name)[-1][0] == before
    PostgresLedger(address_of(postgres_18, name)).prepare()
    assert versions(postgres_18, name)[-1][0] == MIGRATIONS[-1].version
    assert "backfills" in tables(postgres_18, name)


def test_a_ledger_of_an_older_release_is_migrated_and_that_release_goes_on(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = of_a_role_with_rights(server, name)
    take_effect(ledger, batch=1)
    before = ledger.view(STREAM)

    run_release(monkeypatch, *MIGRATIONS, NEXT_RELEASE)
    newer = PostgresLedger(ledger.address, limits=QUICK)
    newer.prepare()
    assert newer.view(STREAM) == before, "nothing that was there is lost"
    assert versions(server, name)[-1] == (SCHEMA_VERSION + 1, SCHEMA_VERSION)
    assert "things_of_the_next_release" in tables(server, name)
    monkeypatch.undo()

    older = PostgresLedger(ledger.address, limits=QUICK)
    older.prepare()
    raise_epoch(older, new_stream(older), Epoch(2))
    assert older.view(STREAM) is not None
    assert len(versions(server, name)) == len(MIGRATIONS) + 1, "the older release takes nothing back"


def test_a_driver_of_the_older_release_lands_on_after_the_migration(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = of_a_role_with_rights(server, name)
    target = take_effect(ledger, batch=1)
    run_release(monkeypatch, *MIGRATIONS, NEXT_RELEASE)
    PostgresLedger(ledger.address, limits=QUICK).prepare()
    monkeypatch.undo()
    target.land(2)
    assert ids(server, name) == [1, 2, 101, 102]


def test_a_driver_that_knows_no_fingerprints_moves_positions_on_and_its_predecessors_no_longer_count(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = of_a_role_with_rights(server, name)
    take_effect(ledger, batch=1)
    with ledger.transaction() as transaction:
        kept = {P0: Fingerprint(7, "digest", 1, 0)}
        stands = transaction.read_positions(STREAM).positions[P0]
        assert transaction.advance_positions(STREAM, Ranges({P0: OffsetRange(stands, 8)}), IDS, kept) == 1
    assert landed_fingerprints(ledger) == kept
    server.execute("update exactlyonce.offsets set next_offset = 20 where partition = 0", name)
    assert landed_fingerprints(ledger) == {}, "it was of the record before another position"


def test_a_driver_that_is_newer_than_the_ledger_lands_without_fingerprints(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[:3])
    ledger = of_a_role_with_rights(server, name)
    take_effect(ledger, batch=1)
    with ledger.transaction() as transaction:
        stands = transaction.read_positions(STREAM).positions[P0]
        ranges, kept = Ranges({P0: OffsetRange(stands, 90)}), {P0: Fingerprint(89, "digest", 1, 0)}
        assert transaction.advance_positions(STREAM, ranges, IDS, kept) == 1
    assert landed_fingerprints(ledger) == {}


def landed_fingerprints(ledger: PostgresLedger) -> Mapping[Partition, Fingerprint]:
    view = ledger.view(STREAM)
    assert view is not None
    return view.landed.fingerprints


def test_records_that_an_older_release_gave_up_may_be_given_up_again_after_the_migration(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[:2])
    ledger = of_a_role_with_rights(server, name)
    take_effect(ledger, batch=1)
    gave_up = FailureRow(BatchNumber(1), P0, 0, 5, FailureStatus.LOST, "brokers", "retention")
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (gave_up,))
    monkeypatch.undo()
    ledger.prepare()
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (replace(gave_up, batch=BatchNumber(9)),))
    found = server.execute("select batch, from_offset, until_offset from exactlyonce.failures order by 1", name)
    assert found == [(1, 0, 5), (9, 0, 5)]


def test_a_ledger_that_this_release_is_too_old_for_is_refused_by_name(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = of_a_role_with_rights(server, name)
    run_release(monkeypatch, *MIGRATIONS, NEXT_RELEASE, RELEASE_AFTER_THAT)
    ledger.prepare()
    monkeypatch.undo()
    before = versions(server, name)
    with pytest.raises(LedgerRefused) as caught:
        PostgresLedger(ledger.address, limits=QUICK).prepare()
    assert str(caught.value) == (
        f"The ledger's schema exactlyonce at {ledger.address} has version {SCHEMA_VERSION + 2}, which this release "
        f"(version {SCHEMA_VERSION}) cannot use; run the newer release."
    )
    assert versions(server, name) == before


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
