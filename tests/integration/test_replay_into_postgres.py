"""What a replay writes to a table of Postgres in the transaction of the ledger, and what waits for it meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.replay import ReplayClaim, claim_ranges, land_pieces
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce_spark.connectors.ports import FittedColumn
from exactlyonce_spark.connectors.postgres.replaying import PreparedTableOfReplay, ReplayTarget, VersionTied
from exactlyonce_spark.connectors.postgres.table import read_table
from testbed.postgres import Postgres
from tests.conftest import QUICK, address_of
from tests.ledgers import STREAM, in_quarantine, ledger_on

MINE = ReplayClaim(STREAM, "mine")


def test_rows_of_an_older_version_do_not_replace_newer_ones_and_nothing_is_left_of_the_staging(
    postgres_18: Postgres, name: str
) -> None:
    ledger = ledger_on(postgres_18, name)
    postgres_18.execute("create table kept (id bigint primary key, amount bigint, at bigint)", name)
    postgres_18.execute("insert into kept values (1, 100, 7), (2, 200, 2)", name)
    rows = in_quarantine(ledger)
    (claimed,) = claim_ranges(ledger, MINE, [RangeKey.of(rows[0])]).rows
    target = upserting(ledger)
    old = pa.RecordBatch.from_pydict({"c0": ["1", "2", "3"], "c1": ["1", "2", "3"], "c2": ["5", "5", "5"]})

    def write(transaction: Any) -> int:
        return target.write(transaction, [old])

    land_pieces(ledger, MINE, [Piece(claimed, 20)], write)

    found = postgres_18.execute("select id, amount, at from kept order by id", name)
    assert found == [(1, 100, 7), (2, 2, 5), (3, 3, 5)]
    assert postgres_18.execute("select relname from pg_class where relname like 'exactlyonce_replay_%'", name) == []


def test_a_row_with_the_version_of_another_one_of_its_key_is_refused_unless_both_are_the_same(
    postgres_18: Postgres, name: str
) -> None:
    """Which of both is of the later record, nothing says: the stream may have landed either before."""
    ledger = ledger_on(postgres_18, name)
    postgres_18.execute("create table kept (id bigint primary key, amount bigint, at bigint)", name)
    postgres_18.execute("insert into kept values (1, 100, 7), (2, 200, 2), (3, 300, null)", name)
    rows = in_quarantine(ledger)
    (claimed,) = claim_ranges(ledger, MINE, [RangeKey.of(rows[0])]).rows
    target = upserting(ledger)

    def landing(*amounts: str, at: list[str | None]) -> int | None:
        batch = pa.RecordBatch.from_pydict({"c0": ["1", "2", "3"], "c1": list(amounts), "c2": at})

        def write(transaction: Any) -> int:
            return target.write(transaction, [batch])

        return land_pieces(ledger, MINE, [Piece(claimed, 20)], write)

    with pytest.raises(
        VersionTied, match="For 1 rows, kept has a row of the same key with the same at and other values"
    ):
        landing("1", "2", "3", at=["7", "5", "5"])
    with pytest.raises(VersionTied, match="For 1 rows"):
        landing("100", "2", "3", at=["7", "5", None])
    assert postgres_18.execute("select sum(amount) from kept", name) == [(600,)], "nothing was written"
    landing("100", "2", "3", at=["7", "5", "5"])
    assert postgres_18.execute("select amount, at from kept order by id", name) == [(100, 7), (2, 5), (3, 5)]


def upserting(ledger: PostgresLedger) -> ReplayTarget:
    sink = PostgresSink.model_validate(
        {"secretRef": {"name": "warehouse"}, "table": "kept", "write": "Upsert", "keys": ["id"], "version": "at"}
    )
    prepared = PreparedTableOfReplay(sink, ledger, STREAM, read_table(ledger, sink))
    return prepared.target([FittedColumn(column, column) for column in ("id", "amount", "at")], "mine")


def test_a_landing_of_the_stream_does_not_wait_for_a_replay_which_lands_once_all_the_same(
    postgres_18: Postgres, name: str
) -> None:
    ledger = ledger_on(postgres_18, name)
    rows = in_quarantine(ledger)
    (claimed,) = claim_ranges(ledger, MINE, [RangeKey.of(rows[0])]).rows
    replays, has_locked, may_go = PostgresLedger(address_of(postgres_18, name), limits=QUICK), Event(), Event()

    def write(transaction: Any) -> int:
        has_locked.set()
        assert may_go.wait(60)
        with transaction.cursor() as cursor:
            cursor.execute("insert into target values (1)")
        return 1

    with ThreadPoolExecutor(1) as pool:
        replay = pool.submit(land_pieces, replays, MINE, [Piece(claimed, 20)], write)
        assert has_locked.wait(60)
        with ledger.transaction(evicting=True) as transaction:
            transaction.lock_stream(STREAM, Lock.UPDATE)
        may_go.set()
        with pytest.raises(LedgerUnreachable):
            replay.result(60)
    assert postgres_18.execute("select id from target", name) == []
    assert land_pieces(replays, MINE, [Piece(claimed, 20)], write) == 1
    assert postgres_18.execute("select id from target", name) == [(1,)]
    replays.close()
