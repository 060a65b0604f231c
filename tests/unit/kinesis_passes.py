"""Passes over a stream that reads Kinesis, with everything in memory: the real bounds, starts and decisions, and no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

from exactlyonce.aws.calls import Clock
from exactlyonce.checkpoint import files
from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.codec import CODEC
from exactlyonce.connectors.kinesis.dynamo_db import DynamoDbAddress, DynamoDbClient
from exactlyonce.connectors.kinesis.lease_mirror import KnownTable, Seen
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from exactlyonce.reconcile.loop import PassResult, Wanted
from tests.kinesis_api import STREAM as NAME
from tests.kinesis_api import KinesisApi, client_of
from tests.unit.passes import STREAM, Machine


@dataclass
class DynamoDb:
    """Answers a Scan with these items, or with what is `refused`."""

    items: list[dict[str, Any]] = field(default_factory=list)
    refused: Callable[[], Exception] | None = None

    def scan(self, **_: Any) -> dict[str, Any]:
        if self.refused is not None:
            raise self.refused()
        return {"ResponseMetadata": {"RequestId": "1"}, "Items": self.items}


@dataclass
class RefusingKinesis(KinesisApi):
    """`refused` are the calls that are never answered, by what comes instead."""

    refused: dict[str, Callable[[], Exception]] = field(default_factory=dict)

    def _called(self, method: str) -> None:
        super()._called(method)
        if method in self.refused:
            raise self.refused[method]()


class KinesisMachine(Machine):
    """The world of one stream that reads `api`, from where `start` says."""

    def __init__(self, api: RefusingKinesis | None = None, *, start: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.api = api or RefusingKinesis()
        self.leases = DynamoDb()
        self.start = dict(start or {"from": "TrimHorizon"})

    @property
    def source_spec(self) -> dict[str, Any]:
        """The source as the resource names it."""
        return {
            "streamName": NAME,
            "region": "eu-west-1",
            "secretRef": {"name": "aws"},
            "start": self.start,
            **({"leaseTable": {"tableName": "app"}} if self.start["from"] == "LeaseTable" else {}),
        }

    def run_pass(self, wanted: Wanted = Wanted.RUN, plan: str | None = None) -> PassResult:
        """Let a new operator, which remembers nothing, do one pass."""
        self.spec = {**self.spec, "source": {"kinesis": self.source_spec, "format": {"schema": "id INT"}}}
        dynamo_db = DynamoDbClient(
            DynamoDbAddress("eu-west-1"), lambda: self.leases, Clock(elapsed_seconds=lambda: self.api.time.seconds)
        )
        leases = KnownTable(LeaseTable(dynamo_db, "app"), Seen()) if "leaseTable" in self.source_spec else None
        spec = KinesisSource.model_validate(self.source_spec)
        self.topic = cast(Any, KinesisBounds(spec, client_of(self.api, self.api.time), leases))
        return super().run_pass(wanted, plan)

    def lands(self, attempt: Epoch, **ends: int) -> None:
        """Be the driver of an attempt: plan one batch that moves these shards, and land it."""
        permit, row = claim_epoch(self.ledger, STREAM, attempt, f"claim {attempt}", self.drivers.ticket(attempt))
        assert row.landed_batch is not None
        assert row.checkpoint_path is not None
        number, folder = BatchNumber(row.landed_batch + 1), row.checkpoint_path.rsplit("/", 1)[-1]
        source = cast(KinesisBounds, self.topic)
        with self.ledger.transaction() as transaction:
            locked = transaction.lock_stream(STREAM, Lock.UPDATE)
            assert locked is not None
            before = transaction.read_positions(STREAM).positions
            end = Positions({**before, **{Partition(NAME, shard): at for shard, at in ends.items()}})
            ranges = before.ranges_until(end)
            kept = source.last_records(ranges).result()
            transaction.advance_positions(STREAM, ranges, source.origin_ids([NAME]), kept)
            landed_at = self.now + timedelta(minutes=number)
            transaction.write_batch(
                STREAM, BatchRow(number, permit.epoch, BatchStatus.LANDED, ranges, landed_at=landed_at)
            )
            transaction.update_stream(replace(locked, landed_batch=number))
        self.store.files.setdefault(f"{folder}/commits/{number - 1}", files.render_commit())
        self.store.files[f"{folder}/offsets/{number}"] = files.render_offsets(CODEC.render_entry(end), 8)
        self.store.files[f"{folder}/commits/{number}"] = files.render_commit()
