"""Postgres as a sink inside Spark: rows and ledger in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exactlyonce.api.format import OnTombstone
from exactlyonce.api.output_mode import OutputMode
from exactlyonce.api.spec import Delivery, StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.connectors.postgres.connector import LEDGER
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.ledger.connector import Use
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.connectors.postgres.deletions import without_deleted
from exactlyonce_spark.connectors.postgres.fit import fit_columns
from exactlyonce_spark.connectors.postgres.replacing import ReplacingTarget
from exactlyonce_spark.connectors.postgres.replaying import PreparedTableOfReplay
from exactlyonce_spark.connectors.postgres.table import Table, read_table
from exactlyonce_spark.connectors.postgres.target import PostgresTarget, TargetPlan


@dataclass(frozen=True)
class PostgresTaskSink:
    """A `TaskSink`: the plan of a target."""

    plan: TargetPlan

    @property
    def key(self) -> str:
        """The staging table, which is of one stream and one epoch."""
        return self.plan.staging_table

    def open(self, secrets: Secrets) -> tuple[PostgresLedger, PostgresTarget]:
        """Return a ledger with the limits of batches, and the table."""
        address = LEDGER.address(self.plan.sink, secrets(self.plan.sink.secret_ref))
        ledger = address.open(f"exactlyonce {self.plan.stream_id}", Use.BATCHES)
        return ledger, PostgresTarget(ledger, self.plan)


@dataclass(frozen=True)
class PreparedTable:
    """A `PreparedSink`: the target table as the database has it."""

    spec: StreamSpec
    sink: PostgresSink
    ledger: PostgresLedger
    permit: Permit
    table: Table

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return how each column is handed over as text that Postgres reads."""
        columns = without_deleted(yielded, self.table) if deletes else yielded
        return fit_columns(columns, self.table, self.sink)

    def target(self, columns: Sequence[FittedColumn], *, deletes: bool) -> tuple[PostgresTarget, PostgresTaskSink]:
        """Return the table with an empty staging table of this epoch; those of older epochs are dropped."""
        plan = TargetPlan(
            self.permit.stream_id,
            self.permit.epoch,
            self.sink.ledger_schema,
            self.table.schema,
            self.table.name,
            tuple(column.name for column in columns),
            self.sink,
            deletes,
        )
        replaces = self.spec.output_mode is OutputMode.COMPLETE
        target = (ReplacingTarget if replaces else PostgresTarget)(self.ledger, plan)
        target.create_staging()
        target.drop_older_staging()
        return target, PostgresTaskSink(plan)

    def finishing(self) -> None:
        """Rows are in the table with the transaction that lands them."""
        return


class PostgresConnector:
    """Postgres."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedTable:
        """Look at the table; remove the witnesses that fenced drivers have left, before AtMostOnce takes a batch."""
        sink = spec.sink.spec
        assert isinstance(sink, PostgresSink), "the registry gives each connector its own spec"
        assert isinstance(ledger, PostgresLedger), "its ledger is in the sink's database"
        if spec.delivery is not Delivery.EXACTLY_ONCE:
            with ledger.transaction(lasting=False) as transaction:
                transaction.take_witnesses(permit.stream_id, stream.landed_batch or BatchNumber(0))
        deletes = spec.source.format.on_tombstone is OnTombstone.DELETE or spec.output_mode is OutputMode.COMPLETE
        return PreparedTable(spec, sink, ledger, permit, read_table(ledger, sink, deletes=deletes))

    def prepare_replay(
        self, spec: StreamSpec, ledger: Ledger, stream_id: str, secrets: Secrets
    ) -> PreparedTableOfReplay:
        """Look at the table."""
        sink = spec.sink.spec
        assert isinstance(sink, PostgresSink), "the registry gives each connector its own spec"
        assert isinstance(ledger, PostgresLedger), "its ledger is in the sink's database"
        return PreparedTableOfReplay(sink, ledger, stream_id, read_table(ledger, sink))


SINK = PostgresConnector()
