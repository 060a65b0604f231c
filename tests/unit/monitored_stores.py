"""Stores that a test's monitor asks, and what its metrics say of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.status import StreamStatus
from exactlyonce.assembly import ledger_address, source_address
from exactlyonce.connectors.specs import Origins, SourceSpec
from exactlyonce.ledger.connector import Landed, TableSize
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.monitor import Clients, Monitor
from exactlyonce.monitor.targets import StreamKey, Target, target_of
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.schema.model import SecretRef
from exactlyonce.source.connector import Answer
from exactlyonce.source.port import Bounds
from tests.resource_documents import document

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORDERS = StreamKey("shop", "orders")
ZERO = Partition("orders", 0)
LABELS = (
    "namespace",
    "stream",
    "topic",
    "partition",
    "phase",
    "database",
    "schema",
    "table",
    "state",
    "outcome",
    "replay",
)


@dataclass
class Brokers:
    """A Kafka in memory, which counts what it is asked."""

    latest: dict[str, int]
    timestamp: float = NOON.timestamp() - 60
    asked: list[str] = field(default_factory=list)
    problem: Exception | None = None
    closed: bool = False

    def origins(self, specs: Collection[SourceSpec]) -> Origins:
        self.asked.append("topics")
        if self.problem is not None:
            raise self.problem
        return dict.fromkeys(self.latest, range(1))

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        self.asked.append("bounds") if partitions else None
        return Answer({key: Bounds(0, self.latest[key.origin]) for key in partitions}, {})

    def timestamps(
        self, positions: Mapping[Partition, int], *, committed_only: bool
    ) -> Mapping[Partition, float | None]:
        self.asked.append(f"{len(positions)} records")
        return dict.fromkeys(positions, self.timestamp)

    def close(self) -> None:
        self.closed = True


@dataclass
class Database:
    """A ledger in memory."""

    landed_at: dict[str, int]
    asked: int = 0
    problem: Exception | None = None
    held: threading.Event | None = None
    closed: bool = False
    asked_sizes: list[str] = field(default_factory=list)
    sizes_problem: Exception | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def landed(self, schema: str, since: Mapping[str, BatchNumber | None]) -> Mapping[str, Landed]:
        self.asked += 1
        if self.held is not None:
            assert self.held.wait(60)
        if self.problem is not None:
            raise self.problem
        number = BatchNumber(4)
        return {
            stream: Landed(number, NOON.timestamp(), number, {Partition(stream.split("/")[1], 0): at}, **self.more)
            for stream, at in self.landed_at.items()
            if stream in since
        }

    @property
    def name(self) -> str:
        return "db:5432/warehouse"

    def sizes(self, schema: str) -> tuple[TableSize, ...]:
        self.asked_sizes.append(schema)
        if self.sizes_problem is not None:
            raise self.sizes_problem
        return (TableSize("batches", 8192 * len(self.asked_sizes), 4096),)

    def close(self) -> None:
        self.closed = True


@dataclass
class Clock:
    """Time that the test lets pass."""

    seconds: float = 1000

    def now(self) -> float:
        return self.seconds


def measured(stream: Stream, secret: dict[str, str]) -> Target:
    """Where a stream is measured, with this login for its ledger."""
    login = {"warehouse": secret}

    def secrets(reference: SecretRef | None) -> dict[str, str]:
        return {} if reference is None else login[reference.name]

    return target_of(stream, source_address(stream.spec.source, secrets), ledger_address(stream.spec, secrets))


def target(name: str = "orders", brokers: str = "kafka:9092", database: str = "warehouse", **changes: Any) -> Target:
    """A stream that reads the topic of its name."""
    spec = {"spec.source.kafka": {"bootstrapServers": brokers, "topics": [name]}, **changes}
    stream = parse_stream(document({"metadata.name": name, "metadata.namespace": "shop", **spec}), "the resource")
    secret = {"host": "db", "dbname": database, "user": "u", "password": "hidden"}
    return measured(stream, secret)


def fleet(
    brokers: Brokers, database: Database, *streams: str, told: Callable[[str], None] = lambda store: None
) -> Monitor:
    """A monitor of streams that share one Kafka and one database."""
    monitor = Monitor(Clients(lambda key: brokers, lambda key: database), on_problem=told)
    for name in streams:
        monitor.watch(target(name))
    return monitor


def series_of(monitor: Monitor, *, leads: bool = True, partitions: bool = True) -> dict[str, dict[str, float]]:
    """What a scrape gets: the value of each series by its labels."""
    registry = CollectorRegistry()
    registry.register(StreamCollector(monitor, lambda: leads, NOON.timestamp, partitions))
    text = generate_latest(registry).decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [sample.labels[name] for name in LABELS if name in sample.labels]
            found.setdefault(sample.name, {})["/".join(labels)] = sample.value
    return found


def status(attempt: int = 1, **changes: Any) -> StreamStatus:
    return StreamStatus(attempt=attempt, **changes)
