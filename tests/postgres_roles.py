"""A ledger of a role with chosen rights, run as a chosen release, and what operator, driver and tasks do there."""

from __future__ import annotations

import pyarrow as pa

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from exactlyonce_spark.connectors.postgres.table import read_table
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan
from exactlyonce_spark.landing import begin_batch, land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from exactlyonce_spark.target import DeadLetter, Staged
from testbed.postgres import Postgres
from tests.conftest import QUICK, address_of
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started

PASSWORD = "right-canary"
SCHEMA = "create schema exactlyonce authorization {name}"
USAGE, CREATE = "grant usage on schema exactlyonce to {name}", "grant create on schema exactlyonce to {name}"
SHOP = "grant usage on schema shop to {name}"
TABLE = "grant select, insert, update on shop.target to {name}"


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
        raise_epoch(self._ledger, new_stream(self._ledger), Epoch(epoch), "ticket")
        return claim_epoch(self._ledger, STREAM, Epoch(epoch), f"claim-{epoch}", "ticket")[0]

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
