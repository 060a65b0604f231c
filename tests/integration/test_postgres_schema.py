"""The ledger's schema: made once, migrated, refused when it is newer; and the rights that are enough, and what each is for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres import migrating
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.connectors.postgres.tables import MIGRATIONS, NAMED_LETTERS_SINCE, SCHEMA_VERSION, Migration
from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from exactlyonce_spark.connectors.postgres.table import read_table
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.landing import begin_batch, land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from exactlyonce_spark.target import DeadLetter, Staged
from testbed.postgres import Postgres
from tests.conftest import QUICK, address_of
from tests.ledger_processes import prepare_together, process
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started

PASSWORD = "right-canary"
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


def run_release(monkeypatch: pytest.MonkeyPatch, *migrations: Migration) -> None:
    """Run this code as the release whose migrations these are."""
    monkeypatch.setattr(migrating, "MIGRATIONS", migrations)
    monkeypatch.setattr(migrating, "SCHEMA_VERSION", migrations[-1].version)


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


OLD_LETTER = (
    "insert into exactlyonce.dead_letters (stream_id, topic, partition, record_offset, batch, record_timestamp, key, value, "
    "error) values ('shop/orders', 'orders', 0, {offset}, {offset}, null, null, 'x', 'old') on conflict do nothing"
)
"""What a driver of the first two versions does with a malformed record."""


def test_dead_letters_of_a_topic_recreated_stand_beside_those_of_the_topic_before(server: Postgres, name: str) -> None:
    lander = take_effect(of_a_role_with_rights(server, name), batch=1)
    lander.keep_letters(1, [0, 1], "id-1")
    lander.keep_letters(7, [1, 2], "id-2")
    assert letters(server, name) == [("id-1", 0, 1), ("id-1", 1, 1), ("id-2", 1, 7), ("id-2", 2, 7)]


def test_a_record_that_is_read_again_is_one_dead_letter_of_the_batch_that_landed_it_last(
    server: Postgres, name: str
) -> None:
    lander = take_effect(of_a_role_with_rights(server, name), batch=1)
    lander.keep_letters(1, [0, 1], "id-1")
    lander.keep_letters(7, [1], "id-1")
    assert letters(server, name) == [("id-1", 0, 1), ("id-1", 1, 7)]


def test_a_driver_of_an_older_release_keeps_dead_letters_on_after_the_migration(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[:2])
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    server.execute(OLD_LETTER.format(offset=1), name)
    monkeypatch.undo()
    ledger.prepare()
    lander.land(2)
    server.execute(OLD_LETTER.format(offset=2), name)
    lander.keep_letters(3, [1], "id-2")
    assert letters(server, name) == [("", 1, 1), ("", 2, 2), ("id-2", 1, 3)]


def test_a_driver_that_is_newer_than_the_ledger_loses_no_dead_letter_of_its_batch(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[:2])
    lander = take_effect(of_a_role_with_rights(server, name), batch=1)
    server.execute(OLD_LETTER.format(offset=1), name)
    lander.keep_letters(3, [1, 2], "id-2")
    assert server.execute("select record_offset, batch from exactlyonce.dead_letters order by 1", name) == [
        (1, 3),
        (2, 3),
    ]


SHARD = Partition("clicks", "shardId-000000000000")
SEQUENCE = 49590338271490256608559692538361571095921575989136588898
FAR = 2**63 - 2
"""Two positions so far apart are the same to whoever keeps 63 bits of them."""


def test_dead_letters_of_shards_are_told_apart_by_the_whole_position_and_replaced_when_they_are_read_again(
    server: Postgres, name: str
) -> None:
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    at = SEQUENCE << 32
    lander.keep_letters(1, [at, at + 1, at + FAR], "made-1", SHARD)
    lander.keep_letters(2, [0, 1], "id-1")
    lander.keep_letters(7, [at + 1, at + 2], "made-1", SHARD)
    lander.keep_letters(8, [at + 1], "made-2", SHARD)
    question = (
        "select topic, partition_name, topic_id, position, batch, place ->> 'offset' from exactlyonce.dead_letters "
        "where position is not null order by topic_id, position"
    )
    told = [
        ("made-1", at, 1),
        ("made-1", at + 1, 7),
        ("made-1", at + 2, 7),
        ("made-1", at + FAR, 1),
        ("made-2", at + 1, 8),
    ]
    assert server.execute(question, name) == [
        (f"clicks/{SHARD.key}", SHARD.key, topic_id, position, batch, str(position))
        for topic_id, position, batch in told
    ]
    plain = (
        "select topic_id, record_offset, batch, place from exactlyonce.dead_letters where position is null order by 2"
    )
    assert server.execute(plain, name) == [("id-1", 0, 2, None), ("id-1", 1, 2, None)]
    with ledger.transaction() as transaction:
        assert transaction.delete_dead_letters(STREAM, timedelta(0), 1000) == 7, "the same retention takes both kinds"


def test_a_ledger_that_was_not_migrated_refuses_dead_letters_of_shards_and_keeps_those_of_topics(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[: NAMED_LETTERS_SINCE - 1])
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    with pytest.raises(LedgerRefused) as caught:
        lander.keep_letters(2, [SEQUENCE << 32], "made-1", SHARD)
    assert str(caught.value) == (
        f"The ledger's schema exactlyonce at {ledger.address} has version 8, and onMalformed: DeadLetter with named partitions "
        "needs 9: upgrade the operator first, which migrates the schema before its next attempt."
    )
    lander.keep_letters(2, [4], "id-1")
    monkeypatch.undo()
    ledger.prepare()
    lander.keep_letters(3, [4], "id-1")
    lander.keep_letters(3, [SEQUENCE << 32], "made-1", SHARD)
    found = "select topic_id, batch, position from exactlyonce.dead_letters order by 1"
    assert server.execute(found, name) == [("id-1", 3, None), ("made-1", 3, SEQUENCE << 32)]


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


def letters(server: Postgres, name: str) -> list[tuple[object, ...]]:
    return server.execute("select topic_id, record_offset, batch from exactlyonce.dead_letters order by 1, 2", name)


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


SCHEMA = "create schema exactlyonce authorization {name}"
USAGE, CREATE = "grant usage on schema exactlyonce to {name}", "grant create on schema exactlyonce to {name}"
SHOP = "grant usage on schema shop to {name}"
TABLE = "grant select, insert, update on shop.target to {name}"
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


def of_a_role(server: Postgres, name: str, *grants: str) -> PostgresLedger:
    """A ledger of a role without rights beyond these, and a table shop.target that it is to write."""
    server.create_database(name)
    server.execute(f"create role {name} login password '{PASSWORD}'")
    server.execute("create schema shop", name)
    server.execute("create table shop.target (id bigint primary key, note text)", name)
    for grant in grants:
        server.execute(grant.format(name=name), name)
    return PostgresLedger(address_of(server, name, name, PASSWORD), limits=QUICK)


def of_a_role_with_rights(server: Postgres, name: str) -> PostgresLedger:
    return of_a_role(server, name, SCHEMA, SHOP, TABLE)


def ids(server: Postgres, name: str) -> list[object]:
    return [row[0] for row in server.execute("select id from shop.target order by id", name)]


class Lander:
    """The life of a stream as far as the database sees it: what operator, driver and tasks do there, in their order."""

    def __init__(self, ledger: PostgresLedger, epoch: int) -> None:
        self._ledger = ledger
        ledger.prepare()
        self._permit = self._claim(epoch)
        sink = PostgresSink.model_validate(
            {"secretRef": {"name": "warehouse"}, "table": "shop.target", "write": "Upsert", "keys": ["id"]}
        )
        table = read_table(ledger, sink)
        plan = TargetPlan(STREAM, Epoch(epoch), "exactlyonce", table.schema, table.name, ("id", "note"), sink)
        self._target = PostgresTarget(ledger, plan)
        self._target.create_staging()
        self._target.drop_older_staging()

    def _claim(self, epoch: int) -> Permit:
        view = self._ledger.view(STREAM)
        if view is None or view.stream.landed_batch is None:
            return started(self._ledger, epoch)
        raise_epoch(self._ledger, new_stream(self._ledger), Epoch(epoch))
        return claim_epoch(self._ledger, STREAM, Epoch(epoch), f"claim-{epoch}")[0]

    def land(self, number: int) -> None:
        """Land a batch of two rows: staged, moved, cleared."""
        at = 5 * (number - 1)
        ranges = Ranges({P0: OffsetRange(at, at + 5), P1: OffsetRange(0, 0)})
        batch = PlannedBatch(BatchNumber(number), ranges, IDS)
        begin_batch(self._ledger, self._permit, batch)
        first = 100 * (number - 1)
        rows = pa.RecordBatch.from_pydict({"id": [first + 1, first + 2], "note": ["a", "b"]})
        staged = Staged(7, self._target.stage(batch.number, 7, [rows]))

        def write(transaction: LedgerTransaction) -> Written:
            assert isinstance(transaction, PostgresTransaction)
            return Written(self._target.move_staged(transaction, batch.number, [staged]).written)

        land_batch(self._ledger, self._permit, batch, write)
        self._target.clear_staging(batch.number)

    def keep_letters(self, number: int, offsets: list[int], topic_id: str, partition: Partition = P0) -> None:
        """Write malformed records of a batch."""
        is_shard = isinstance(partition.key, str)
        found = [
            DeadLetter(
                partition, offset, None, None, b"x", "malformed", f'{{"offset": {offset}}}' if is_shard else None
            )
            for offset in offsets
        ]
        with self._ledger.transaction() as transaction:
            self._target.write_dead_letters(transaction, BatchNumber(number), found, {partition.origin: topic_id})


def take_effect(ledger: PostgresLedger, batch: int, epoch: int = 1) -> Lander:
    lander = Lander(ledger, epoch)
    lander.land(batch)
    return lander
