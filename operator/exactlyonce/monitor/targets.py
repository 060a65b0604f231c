"""What the monitor is told of a stream: where its source and its ledger are, and how it fares. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.resource import Stream
from exactlyonce.api.source import KafkaSource
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.ledger.postgres_connection import PostgresAddress
from exactlyonce.source.kafka_properties import ISOLATION, READ_COMMITTED, librdkafka_properties

_ANY_TIME = datetime.fromtimestamp(0, UTC)
"""Conditions also tell since when they hold; the monitor does not ask."""


class StreamKey(NamedTuple):
    """Which stream: the namespace and the name of its resource."""

    namespace: str
    name: str


class BrokersKey(NamedTuple):
    """Which Kafka: brokers and login. Streams with the same key share one client."""

    properties: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"BrokersKey({dict(self.properties)['bootstrap.servers']})"


class DatabaseKey(NamedTuple):
    """Which database: address and login. Streams with the same key share one connection."""

    parameters: tuple[tuple[str, str], ...]
    shown: str

    def __repr__(self) -> str:
        return f"DatabaseKey({self.shown})"


@dataclass(frozen=True)
class Target:
    """Where a stream is measured. Its text never shows a password."""

    key: StreamKey
    stream_id: str
    source: KafkaSource
    brokers: BrokersKey
    database: DatabaseKey
    ledger_schema: str
    lag_objective_seconds: int | None = None

    @property
    def committed_only(self) -> bool:
        """Whether the stream reads what was committed only."""
        return self.source.properties.get(ISOLATION, READ_COMMITTED) == READ_COMMITTED


@dataclass(frozen=True, slots=True)
class Life:
    """How a stream fares, as its resource and the latest pass tell.

    `oldest_at` is what was last known of its oldest record not landed. `conditions` are pairs of a type and its status.
    `has_landed` is what the status remembers. `secret_missing` also stands for a secret that the operator may not read.
    """

    phase: Phase
    attempt: int
    endings: int
    batch_failures: int
    oldest_at: datetime | None = None
    conditions: tuple[tuple[str, str], ...] = ()
    has_landed: bool = False
    created_timestamp: float | None = None
    secret_missing: bool = False


def target_of(stream: Stream, kafka_secret: Mapping[str, str], address: PostgresAddress) -> Target:
    """Return where a stream is measured, with the logins that its secrets give.

    Raises:
        SecretMissing: if the source's secret lacks what its properties need.
    """
    spec = stream.spec
    kafka = spec.source.kafka
    return Target(
        key=StreamKey(stream.metadata.namespace, stream.metadata.name),
        stream_id=stream.stream_id,
        source=kafka,
        brokers=BrokersKey(tuple(sorted(librdkafka_properties(kafka, kafka_secret).items()))),
        database=DatabaseKey(tuple(sorted(address.parameters.items())), address.shown),
        ledger_schema=spec.sink.postgres.ledger_schema,
        lag_objective_seconds=spec.objectives.lag_seconds,
    )


def life_of(status: StreamStatus, created_at: datetime | None = None, *, secret_missing: bool = False) -> Life:
    """Return what the monitor needs of a status, and of what a pass knows beside it."""
    trouble, progress = status.trouble, status.progress
    conditions = conditions_of(status, generation=0, now=_ANY_TIME)
    return Life(
        status.phase,
        status.attempt,
        trouble.endings,
        trouble.batch_failures,
        oldest_at=None if progress is None else progress.oldest_record_at,
        conditions=tuple((condition.type, str(condition.status)) for condition in conditions),
        has_landed=progress is not None and progress.batch is not None,
        created_timestamp=None if created_at is None else created_at.timestamp(),
        secret_missing=secret_missing,
    )
