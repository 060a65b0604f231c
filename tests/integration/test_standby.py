"""A connection string that names a standby too, as operators of databases hand them out: only the primary is believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.positions.ranges import Epoch
from testbed.pgbouncer import PgBouncer
from testbed.postgres_replica import PostgresPair
from testbed.tcp_gate import TcpGate
from tests.conftest import QUICK
from tests.ledgers import STREAM, new_stream, started

DATABASE = "postgres"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresPair]:
    with PostgresPair(tmp_path_factory.mktemp("pair")) as made:
        yield made


def ledger_at(pair: PostgresPair, schema: str, *, host: str, port: str) -> PostgresLedger:
    login = {"dbname": DATABASE, "user": "postgres", "password": pair.password}
    return PostgresLedger(
        PostgresAddress.from_secret("warehouse", {"host": host, "port": port, **login}), schema, QUICK
    )


def test_of_several_hosts_the_one_that_takes_writes_is_asked_although_a_standby_comes_first(
    pair: PostgresPair, name: str
) -> None:
    ledger = ledger_at(pair, name, **pair.multi_host())
    ledger.prepare()
    started(ledger)
    pair.wait_for_standby()
    pair.cut_replication()
    try:
        raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
        view = ledger_at(pair, name, **pair.multi_host()).view(STREAM)
    finally:
        pair.mend_replication()
    assert view is not None
    assert view.stream.epoch == 2, "the standby still holds epoch 1"


def test_a_standby_alone_is_unreachable_and_not_an_older_truth(pair: PostgresPair, name: str) -> None:
    ledger = ledger_at(pair, name, **pair.multi_host())
    ledger.prepare()
    started(ledger)
    pair.wait_for_standby()
    alone = ledger_at(pair, name, host=pair.standby.host, port=str(pair.standby.port))
    for ask in (alone.prepare, lambda: alone.view(STREAM), alone.database_identity):
        with pytest.raises(LedgerUnreachable, match=r"is read-only: a standby, .+ session is read-only"):
            ask()


def test_a_pooler_that_has_switched_to_a_standby_since_is_found_out(
    pair: PostgresPair, pooler: PgBouncer, name: str, tmp_path: Path
) -> None:
    """The connection to the pooler was made while a primary was behind it; libpq asks only then."""
    del pooler  # asked for because it skips where there is none
    direct = ledger_at(pair, name, **pair.multi_host())
    direct.prepare()
    started(direct)
    pair.wait_for_standby()
    with (
        TcpGate() as gate,
        PgBouncer(tmp_path, gate.port, {"postgres": pair.password}) as between,
    ):
        gate.lead_to(pair.primary.port)
        ledger = ledger_at(pair, name, host="127.0.0.1", port=str(between.port))
        assert ledger.view(STREAM) is not None
        gate.cut()
        gate.lead_to(pair.standby.port)
        for ask in (lambda: ledger.view(STREAM), lambda: raise_epoch(ledger, new_stream(direct), Epoch(2), "ticket")):
            with pytest.raises(LedgerUnreachable, match="is read-only: a standby, "):
                ask()
