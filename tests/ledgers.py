"""A stream in a ledger as a test needs it."""

from __future__ import annotations

from contextlib import closing

from exactlyonce.connectors.postgres.connection import Limits
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.ledger.fence import NewStream, Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus, LandedPositions, Owner, QueryMark
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection
from testbed.postgres import Postgres
from tests.conftest import QUICK, address_of
from tests.rig import eventually

STREAM = "shop/orders"
P0, P1 = Partition("orders", 0), Partition("orders", 1)
IDS = {"orders": "id-1"}

LAST_IN_QUARANTINE = Fingerprint(19, "digest", 1_000, 3)

QUERY = QueryMark(Selection(origins=frozenset({"orders"})), "query-1", "no limit")
"""What the drivers of a stream of these tests are started to do."""

PATIENT = Limits(connect_seconds=3, lock_seconds=60, patience_seconds=60, transaction_seconds=120)
"""Limits under which a holder of a lock is never ended while a test runs."""


def ledger_on(server: Postgres, database: str, limits: Limits = QUICK, port: int | None = None) -> PostgresLedger:
    """A ledger and a table `target` in a new database."""
    server.create_database(database)
    server.execute("create table target (id bigint)", database)
    ledger = PostgresLedger(address_of(server, database, port=port), limits=limits)
    ledger.prepare()
    return ledger


def landed(server: Postgres, database: str) -> tuple[list[object], list[object]]:
    """The ids in the target table and the numbers of the batches that landed, as the database has them."""
    ids = server.execute("select id from target order by id", database)
    batches = server.execute("select batch from exactlyonce.batches where status = 'Landed' order by batch", database)
    return [row[0] for row in ids], [row[0] for row in batches]


def new_stream(ledger: Ledger, token: str = "token-1") -> NewStream:
    """What the stream's row says when a raise makes it."""
    return NewStream(STREAM, token, Owner("cluster-1", "uid-1"), ledger.database_identity())


def started(ledger: Ledger, epoch: int = 1, token: str = "token-1") -> Permit:
    """A stream at position 0 of two partitions, its epoch claimed."""
    raise_epoch(ledger, new_stream(ledger, token), Epoch(epoch), "ticket")
    seed = Publication(
        epoch=Epoch(epoch),
        generation=1,
        path=f"/c/generation-000001-a{epoch}",
        seed_batch=BatchNumber(0),
        before=Positions(),
        after=LandedPositions(Positions({P0: 0, P1: 0}), IDS),
        note="first",
        query=QUERY,
    )
    publish(ledger, STREAM, seed)
    permit, _ = claim_epoch(ledger, STREAM, Epoch(epoch), "claim-1", "ticket")
    return permit


def in_quarantine(ledger: Ledger) -> tuple[FailureRow, ...]:
    """Two ranges in quarantine, of a stream that has landed nothing."""
    started(ledger)
    view = ledger.view(STREAM)
    assert view is not None
    rows = tuple(
        FailureRow(
            BatchNumber(3),
            partition,
            10,
            20,
            FailureStatus.QUARANTINED,
            "broker",
            "it failed",
            origin_id="id-1",
            fingerprint=LAST_IN_QUARANTINE,
            life=view.stream.life,
        )
        for partition in (P0, P1)
    )
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, rows)
    return rows


def batch_row(batch: int, status: BatchStatus = BatchStatus.LANDED) -> BatchRow:
    """A batch of five records of one partition."""
    return BatchRow(
        BatchNumber(batch), Epoch(1), status, Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)}), 5, 5, 0
    )


def sessions_where(ledger: PostgresLedger, condition: str) -> int:
    """How many sessions of the ledger's database are as the condition on pg_stat_activity says."""
    with closing(ledger.open_connection()) as connection, connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
            f"and {condition}"
        )
        found = cursor.fetchone()
        assert found is not None
        return int(found[0])


def wait_until_blocked(ledger: PostgresLedger) -> None:
    """Wait until some session of the database waits for a lock."""
    eventually(lambda: sessions_where(ledger, "wait_event_type = 'Lock'") > 0, "a session waits for a lock")
