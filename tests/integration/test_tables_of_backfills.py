"""A backfill lands into no table that a stream lands into, whatever it is called and a part of, and into none of the ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.ledger.backfills import OF_NO_BATCH, Backfill
from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.other_tables import IntoOwnTable, IntoTakenTable, OtherTable, require_other_table
from exactlyonce.ledger.planned_backfills import plan_backfill
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.replay import ReplayClaim, claim_ranges, land_pieces
from exactlyonce.ledger.replay_rules import Piece
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import Epoch
from testbed.postgres import Postgres
from tests.ledgers import P0, STREAM, ledger_on, new_stream, started

TABLES = """
create schema shop;
create schema hidden;
create table orders (id bigint) partition by range (id);
create table orders_low partition of orders for values from (0) to (100) partition by range (id);
create table orders_lowest partition of orders_low for values from (0) to (10);
create table everything (id bigint);
create table shop.sold (id bigint) inherits (everything);
create table "Orders" (id bigint);
create table "odd.name" (id bigint);
create table shop.orders (id bigint);
create table hidden.orders (id bigint);
create table orders_v2 (id bigint)
"""
OTHER = "shop/another"


@pytest.fixture(scope="module")
def ledger(postgres_18: Postgres) -> PostgresLedger:
    found = ledger_on(postgres_18, "tables_of_backfills")
    for statement in TABLES.split(";"):
        postgres_18.execute(statement, "tables_of_backfills")
    started(found)
    raise_epoch(found, new_stream(found), Epoch(2), "ticket")
    claim_epoch(found, STREAM, Epoch(2), "claim-2", "ticket", sink="table orders")
    raise_epoch(found, replace(new_stream(found), stream_id=OTHER), Epoch(1), "ticket")
    with found.transaction() as transaction:
        transaction.write_sink(OTHER, Epoch(1), "table shop.sold")
    return found


def require(ledger: PostgresLedger, into: str, own: str = "") -> None:
    with ledger.transaction() as transaction:
        require_other_table(transaction, STREAM, OtherTable(f"table {into}", own and f"table {own}"))


@pytest.mark.parametrize("into", ["orders", "public.orders", '"orders"', "orders_low", "public.orders_lowest"])
def test_the_streams_own_table_is_known_by_each_of_its_names_and_parts(ledger: PostgresLedger, into: str) -> None:
    with pytest.raises(IntoOwnTable, match="itself lands into table"):
        require(ledger, into)


@pytest.mark.parametrize(
    ("into", "sentence"),
    [
        ("shop.sold", f"The stream {OTHER} lands into table shop.sold, or rows"),
        ("everything", f"The stream {OTHER} lands into table everything, or rows"),
        ("exactlyonce.failures", "table exactlyonce.failures is a table of the ledger, which a backfill would damage"),
        ("exactlyonce.backfills", "table exactlyonce.backfills is a table of the ledger"),
    ],
)
def test_the_table_of_another_stream_and_of_the_ledger_is_refused(
    ledger: PostgresLedger, into: str, sentence: str
) -> None:
    with pytest.raises(IntoTakenTable, match=sentence) as caught:
        require(ledger, into)
    assert not isinstance(caught.value, IntoOwnTable)


def test_what_the_resource_names_counts_where_no_driver_has_recorded_it(ledger: PostgresLedger) -> None:
    require(ledger, "orders_v2", "shop.orders")
    with pytest.raises(IntoOwnTable):
        require(ledger, "orders_v2", "public.orders_v2")


@pytest.mark.parametrize(
    "into", ["orders_v2", '"Orders"', '"odd.name"', "shop.orders", "hidden.orders", "absent", "no.no"]
)
def test_a_table_that_is_nobodys_is_taken(ledger: PostgresLedger, into: str) -> None:
    require(ledger, into, "orders")


def test_a_table_of_a_schema_that_the_login_may_not_use_is_compared_all_the_same(
    postgres_18: Postgres, ledger: PostgresLedger
) -> None:
    role = "login_of_one_schema"
    postgres_18.execute(f"create role {role}")
    with ledger.transaction() as transaction:
        with transaction.cursor() as cursor:
            cursor.execute(f"grant usage on schema exactlyonce to {role}")
            cursor.execute(f"grant select on all tables in schema exactlyonce to {role}")
            cursor.execute(f"set local role {role}")
        require_other_table(transaction, STREAM, OtherTable("table orders_v2", "table hidden.orders"))
        with pytest.raises(IntoTakenTable):
            require_other_table(transaction, STREAM, OtherTable("table shop.sold"))


def test_a_table_that_becomes_a_part_of_the_streams_own_gets_nothing_more(
    postgres_18: Postgres, ledger: PostgresLedger
) -> None:
    postgres_18.execute("create table orders_high (id bigint)", "tables_of_backfills")
    asked = FailureRow(OF_NO_BATCH, P0, 0, 20, FailureStatus.QUARANTINED, "brokers", "", origin_id="id-1")
    plan_backfill(ledger, STREAM, Backfill("high", "table orders_high", "asked", (asked,)), "table orders")
    claim = ReplayClaim(STREAM, "mine", "table orders_high", "high", "table orders")
    (part,) = claim_ranges(ledger, claim, ()).rows

    def write(transaction: LedgerTransaction) -> int:
        with transaction.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute("insert into orders_high values (150)")
        return 1

    assert land_pieces(ledger, claim, [Piece(part, 5)], write) == 1
    attach = "alter table orders attach partition orders_high for values from (100) to (200)"
    postgres_18.execute(attach, "tables_of_backfills")
    with pytest.raises(IntoOwnTable):
        land_pieces(ledger, claim, [Piece(replace(part, from_offset=5), 9)], write)
    assert postgres_18.execute("select count(*) from orders_high", "tables_of_backfills") == [(1,)]
