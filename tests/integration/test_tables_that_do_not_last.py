"""A table that a crash of the server empties, or that another server commits, holds nothing exactly once: it is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import psycopg2.errors
import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres.lasting import LEDGER_TABLES
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.connectors.postgres.spec import Write as SinkWrite
from exactlyonce.errors import LedgerRefused
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.reconcile.loop import Halted
from exactlyonce_spark.connectors.postgres.table import TargetUnfit, read_table
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.target import Staged
from testbed.postgres import Postgres
from tests.ledgers import STREAM, ledger_on
from tests.rig import Rig

ROWS = pa.RecordBatch.from_pydict({"id": [1, 2, 3, 4, 5]})
BATCH = BatchNumber(1)
TAGS = itertools.count(1)
PARTITIONED = (
    "drop table target; create table target (id bigint primary key) partition by range (id); "
    "create table low partition of target for values from (0) to (3) partition by range (id); "
    "create table lowest partition of low for values from (0) to (3); "
    "create table high partition of target for values from (3) to (9)"
)
EMPTIED = (
    'is UNLOGGED, so a crash of the server empties it; run: alter table "public"."{name}" set logged; and if the server has '
    "crashed since the table became unlogged, what had landed there is gone."
)

RULED = (
    '"public"."target" has the rule {name} ON {event}, by which {event} could do something else, or nothing; run: drop '
    'rule {name} on "public"."target".'
)
FOREIGN = "create foreign data wrapper elsewhere; create server elsewhere foreign data wrapper elsewhere"
ELSEWHERE = "create unlogged table other (id bigint)"

Write = Callable[[PostgresLedger, PostgresTarget], int]


def directly(ledger: PostgresLedger, target: PostgresTarget) -> int:
    """As the driver writes a small batch, and a task its partition."""
    with ledger.transaction() as transaction:
        return target.write(transaction, [ROWS])


def staged(ledger: PostgresLedger, target: PostgresTarget) -> int:
    """As tasks stage a batch and the driver moves it."""
    tag = next(TAGS)
    parts = [Staged(tag, target.stage(BATCH, tag, [ROWS]))]
    with ledger.transaction() as transaction:
        return target.move_staged(transaction, BATCH, parts).written


def confirmed(ledger: PostgresLedger, target: PostgresTarget) -> int:
    """As the driver moves the positions of what tasks have written (AtLeastOnce)."""
    with ledger.transaction() as transaction:
        target.require_lasting(transaction)
    return 0


WAYS = (directly, staged, confirmed)


@pytest.fixture(params=["Append", "Upsert"])
def sink(request: pytest.FixtureRequest) -> PostgresSink:
    document = {"secretRef": {"name": "warehouse"}, "table": "target", "write": request.param}
    return PostgresSink.model_validate({**document, **({"keys": ["id"]} if request.param == "Upsert" else {})})


@pytest.fixture
def ledger(postgres_18: Postgres, name: str) -> PostgresLedger:
    made = ledger_on(postgres_18, name)
    postgres_18.execute("alter table target add primary key (id)", name)
    return made


def target_of(ledger: PostgresLedger, sink: PostgresSink) -> PostgresTarget:
    made = PostgresTarget(ledger, TargetPlan(STREAM, Epoch(1), "exactlyonce", "public", "target", ("id",), sink))
    made.create_staging()
    return made


@dataclass(frozen=True)
class Passing:
    """What makes a target pass away, what makes it last again, and what is said of it."""

    made_by: str
    mended_by: str
    said: str


SITUATIONS = {
    "the table is unlogged": Passing(
        "alter table target set unlogged", "alter table target set logged",
        f'"public"."target" {EMPTIED.format(name="target")}',
    ),
    "a partition is unlogged": Passing(
        f"{PARTITIONED}; alter table high set unlogged", "alter table high set logged",
        f'"public"."high", which is part of target, {EMPTIED.format(name="high")}',
    ),
    "a partition of a partition is unlogged": Passing(
        f"{PARTITIONED}; alter table lowest set unlogged", "alter table lowest set logged",
        f'"public"."lowest", which is part of target, {EMPTIED.format(name="lowest")}',
    ),
    "an inheritor is unlogged": Passing(
        'create unlogged table "in""heritor" () inherits (target)', 'drop table "in""heritor"',
        '"public"."in""heritor", which is part of target, ' + EMPTIED.format(name='in""heritor'),
    ),
    "a rule puts rows elsewhere": Passing(
        f"{ELSEWHERE}; create rule \"el\"\"sewhere\" as on insert to target do instead insert into other values (new.id)",
        'drop rule "el""sewhere" on target',
        RULED.format(name='"el""sewhere"', event="INSERT"),
    ),
    "a rule does something else besides": Passing(
        f"{ELSEWHERE}; create rule besides as on insert to target do also insert into other values (new.id)",
        "alter table target disable rule besides",
        RULED.format(name='"besides"', event="INSERT"),
    ),
    "a rule that replication alone used to fire": Passing(
        "create rule dropped as on insert to target do instead nothing; alter table target enable replica rule dropped; "
        "alter table target enable always rule dropped",
        "alter table target enable replica rule dropped",
        RULED.format(name='"dropped"', event="INSERT"),
    ),
    "an inheritor is foreign": Passing(
        f"{FOREIGN}; create foreign table far () inherits (target) server elsewhere",
        "drop foreign table far",
        '"public"."far", which is part of target, is a foreign table, whose rows another server commits on its own; '
        "detach it, or name an ordinary table.",
    ),
    "a partition is a foreign table": Passing(
        f"{PARTITIONED}; alter table target drop constraint target_pkey; {FOREIGN}; "
        "create foreign table far partition of target for values from (9) to (12) server elsewhere",
        "alter table target detach partition far; alter table target add primary key (id)",
        '"public"."far", which is part of target, is a foreign table, whose rows another server commits on its own; '
        "detach it, or name an ordinary table.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_table_that_does_not_last_is_refused_before_spark_starts(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, sink: PostgresSink, situation: str
) -> None:
    passing = SITUATIONS[situation]
    postgres_18.execute(passing.made_by, name)
    with pytest.raises(TargetUnfit) as caught:
        read_table(ledger, sink)
    assert str(caught.value) == f"Nothing was written to public.target: {passing.said}"
    postgres_18.execute(passing.mended_by, name)
    assert str(read_table(ledger, sink)) == "public.target"


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize(
    "situation",
    [
        "the table is unlogged",
        "a partition of a partition is unlogged",
        "a rule does something else besides",
        "an inheritor is foreign",
    ],
)
def test_a_table_that_ceases_to_last_between_two_batches_is_found_by_every_way_to_land(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, sink: PostgresSink, situation: str, write: Write
) -> None:
    passing = SITUATIONS[situation]
    target = target_of(ledger, sink)
    postgres_18.execute(passing.made_by, name)
    with pytest.raises((TargetUnfit, psycopg2.errors.FeatureNotSupported)) as caught:
        write(ledger, target)
    if isinstance(caught.value, TargetUnfit):
        assert passing.said in str(caught.value)
    else:  # PostgreSQL itself has no ON CONFLICT beside rules; the next start names the rule
        assert ("rule" in situation, sink.write) == (True, SinkWrite.UPSERT)
    postgres_18.execute(passing.mended_by, name)
    assert postgres_18.execute("select * from target", name) == []
    write(ledger, target)


@pytest.mark.parametrize("write", WAYS)
def test_rows_that_a_rule_puts_elsewhere_do_not_count_as_landed(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, sink: PostgresSink, write: Write
) -> None:
    target = target_of(ledger, sink)
    postgres_18.execute(SITUATIONS["a rule puts rows elsewhere"].made_by, name)
    with pytest.raises(
        (TargetUnfit, psycopg2.errors.FeatureNotSupported)
    ):  # PostgreSQL has no ON CONFLICT beside rules
        write(ledger, target)
    assert postgres_18.execute("select id from target union all select id from other", name) == []


@pytest.mark.parametrize("event", ["update", "delete"])
def test_only_rules_for_what_the_stream_does_are_refused(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, sink: PostgresSink, event: str
) -> None:
    """Such as those that keep what is there from being changed. A disabled one keeps ON CONFLICT away as well."""
    postgres_18.execute(
        f"create rule kept as on {event} to target do instead nothing; alter table target disable rule kept", name
    )
    if sink.write is SinkWrite.UPSERT and event == "update":
        with pytest.raises(TargetUnfit, match='has the rule "kept" ON UPDATE'):
            read_table(ledger, sink)
        return
    assert staged(ledger, target_of(ledger, sink)) == 5
    read_table(ledger, sink, deletes=True)
    postgres_18.execute("alter table target enable rule kept", name)
    read_table(ledger, sink)
    if event == "delete":
        with pytest.raises(TargetUnfit, match='has the rule "kept" ON DELETE'):
            read_table(ledger, sink, deletes=True)


def test_a_rule_of_a_partition_does_not_concern_rows_that_come_through_the_table(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, sink: PostgresSink
) -> None:
    postgres_18.execute(
        f"{PARTITIONED}; {ELSEWHERE}; create rule away as on insert to high do instead insert into other values (new.id); "
        "create rule kept as on update to high do instead nothing",
        name,
    )
    read_table(ledger, sink)
    assert staged(ledger, target_of(ledger, sink)) == 5
    assert postgres_18.execute("select id from target order by id", name) == [(1,), (2,), (3,), (4,), (5,)]
    assert postgres_18.execute("select count(*) from other", name) == [(0,)]


def test_a_foreign_or_temporary_target_is_refused(postgres_18: Postgres, name: str, ledger: PostgresLedger) -> None:
    def refused(table: str) -> str:
        with pytest.raises(TargetUnfit) as caught:
            read_table(ledger, PostgresSink.model_validate({"secretRef": {"name": "warehouse"}, "table": table}))
        return str(caught.value)

    postgres_18.execute(f"{FOREIGN}; create foreign table far (id bigint) server elsewhere", name)
    assert refused("far").startswith("far at ")
    assert "is not a table (relkind f)" in refused("far")
    with closing(psycopg2.connect(postgres_18.dsn(name))) as session, session.cursor() as cursor:
        cursor.execute("create temporary table passing (id bigint)")
        cursor.execute("select nspname from pg_namespace where oid = pg_my_temp_schema()")
        ((schema,),) = cursor.fetchall()
        session.commit()
        assert refused(f"{schema}.passing").endswith(
            f'"{schema}"."passing" is a temporary table; name an ordinary table.'
        )
        cursor.execute("create temporary table heir () inherits (target)")
        session.commit()
        said = f'"{schema}"."heir", which is part of target, is a temporary table'
        assert said in refused("target")


@pytest.mark.parametrize("part", ["target", "lowest", "high"])
def test_what_has_got_rows_cannot_cease_to_last_before_they_are_committed(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, part: str
) -> None:
    postgres_18.execute(PARTITIONED, name)
    sink = PostgresSink.model_validate({"secretRef": {"name": "warehouse"}, "table": "target"})
    target = target_of(ledger, sink)
    with ledger.transaction() as transaction:
        target.write(transaction, [ROWS])
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            postgres_18.execute(f"set lock_timeout = '50ms'; alter table {part} set unlogged", name)
    assert postgres_18.execute("select count(*) from target", name) == [(5,)]


@pytest.mark.parametrize("table", ["streams", "offsets", "batches"])
def test_a_ledger_that_does_not_last_is_refused_before_each_attempt_and_by_each_landing(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, sink: PostgresSink, table: str
) -> None:
    target = target_of(ledger, sink)
    if table == "streams":  # PostgreSQL keeps a permanent table from referring to an unlogged one
        postgres_18.execute(
            "do $$ declare c record; begin for c in select conrelid::regclass t, conname from pg_constraint "
            "where confrelid = 'exactlyonce.streams'::regclass "
            "loop execute format('alter table %s drop constraint %I', c.t, c.conname); end loop; end $$",
            name,
        )
    postgres_18.execute(f"alter table exactlyonce.{table} set unlogged", name)
    said = f'"exactlyonce"."{table}" is UNLOGGED'
    with pytest.raises(LedgerRefused) as refused:
        ledger.prepare()
    assert str(refused.value).startswith(f"The ledger at {ledger.address} may lose what has landed: {said}")
    with pytest.raises(TargetUnfit) as caught:
        directly(ledger, target)
    assert said in str(caught.value)


def test_every_table_of_the_ledger_is_looked_at_and_staging_is_not(
    postgres_18: Postgres, name: str, ledger: PostgresLedger, sink: PostgresSink
) -> None:
    target_of(ledger, sink)
    found = postgres_18.execute(
        "select relname, relpersistence::text from pg_class where relnamespace = 'exactlyonce'::regnamespace "
        "and relkind = 'r'",
        name,
    )
    assert {table for table, persistence in found if persistence == "p"} == {*LEDGER_TABLES}
    assert [persistence for table, persistence in found if str(table).startswith("staging_")] == ["u"]
    ledger.prepare()


def test_a_stream_into_an_unlogged_table_halts_and_says_what_to_do(rig: Rig) -> None:
    rig.sql("alter table orders set unlogged")
    rig.produce(40)
    result = rig.run()
    assert isinstance(result, Halted)
    assert 'run: alter table "public"."orders" set logged' in result.message
    assert rig.landed() == 0
