"""A stream that writes to a table with a log by Spark's own writer, and its drivers, which die at named points."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactlyonce.api.resource import parse_stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.connectors.ports import SinkConnector, YieldedColumn
from tests.delta_rig import Killed
from tests.files_rig import SOURCE, Batch
from tests.ledgers import STREAM, new_stream, started
from tests.resource_documents import document
from tests.simulation.database import MemoryDatabase, MemoryLedger

POINTS = (
    "files.written",
    "files.folder-removed",
    "batch.rows-written",
    "batch.landed",
    "table.before-commit",
    "table.committed",
)
"""Where a driver dies, one after another, each in the batch behind what its predecessor has landed."""


def daily(rows: DataFrame) -> DataFrame:
    """Add a column with two values, which folders can be named by once they are escaped."""
    return rows.withColumn("day", f.concat(f.lit("d/"), f.col("id") % 2))


@dataclass
class Stream:
    """A stream that writes to a table, and its drivers."""

    spark: SparkSession
    connector: SinkConnector
    sink: Mapping[str, Any]
    """The sink as a resource has it, by its connector's field."""
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    columns: Callable[[DataFrame], DataFrame] = daily
    ledger: Ledger = field(default_factory=lambda: MemoryLedger(MemoryDatabase()))
    permit: Permit = field(init=False)

    def __post_init__(self) -> None:
        self.permit = started(self.ledger)

    @property
    def spec(self) -> StreamSpec:
        changes = {"spec.sink": dict(self.sink), "spec.ledger": {"objectLog": {"location": "/ledger"}}}
        return parse_stream(document({**changes, "spec.checkpoint": {"local": {"path": "/c"}}}), "the test").spec

    def driver(self) -> BatchLoop:
        """A driver as the connector makes it."""
        view = self.ledger.view(STREAM)
        assert view is not None
        prepared = self.connector.prepare(self.spec, self._secret, self.ledger, self.permit, view.stream)
        fields = self.columns(self.spark.range(0)).schema
        yielded = [YieldedColumn(it.name, it.dataType.simpleString(), it.dataType.jsonValue()) for it in fields]
        target, _ = prepared.target(prepared.fit(yielded, {}, deletes=False), deletes=False)
        return BatchLoop(self.ledger, self.permit, target, SOURCE, BatchSettings())

    def _secret(self, named: SecretRef | None) -> Mapping[str, str]:
        return {} if named is None else self.secrets[named.name]

    def next_driver(self) -> BatchLoop:
        """The successor of a driver."""
        epoch = Epoch(self.permit.epoch + 1)
        raise_epoch(self.ledger, new_stream(self.ledger), epoch, "ticket")
        self.permit, _ = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")
        return self.driver()

    def land(self, loop: BatchLoop, first: int, last: int) -> None:
        """Land batches."""
        for number in range(first, last + 1):
            loop.run(Batch(self.spark, BatchNumber(number), self.columns))

    def landed(self) -> int:
        """How many batches have."""
        view = self.ledger.view(STREAM)
        assert view is not None
        return view.stream.landed_batch or 0


def records_told(positions: Sequence[str], topic: str) -> int:
    """Return how many records commits say that they hold, one after another: each begins where the one before it ended."""
    ends: dict[str, int] = {}
    for text in positions:
        for partition, (begin, end) in json.loads(text)[topic].items():
            assert begin == ends.get(partition, 0)
            ends[partition] = end
    return sum(ends.values())


def dies_at(monkeypatch: pytest.MonkeyPatch, point: str, batch: int) -> None:
    """Let a driver die at a point of a batch."""
    armed = [(point, batch)]

    def watcher(reached: str, at: int | None = None) -> None:
        if (reached, at) in armed:
            armed.clear()
            raise Killed

    of_files = (f"connectors.files.{module}" for module in ("writer", "local_folder"))
    for module in ("batch", "landing", "manifest_landing", "connectors.delta.target", *of_files):
        monkeypatch.setattr(f"exactlyonce_spark.{module}.reached", watcher)


def land_through_deaths(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[int], None], points: Sequence[str] = POINTS
) -> int:
    """Let a driver die at each point, and return how many batches have landed by the end."""
    driver = stream.driver()
    for point in points:
        number = stream.landed() + 1
        dies_at(monkeypatch, point, number)
        with pytest.raises(Killed):
            stream.land(driver, number, number)
        meanwhile(number)
        driver = stream.next_driver()
    last = stream.landed() + 1
    stream.land(driver, last, last)
    return last
