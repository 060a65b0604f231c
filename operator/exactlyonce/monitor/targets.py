"""What the monitor is told of a stream: where its source and its ledger are, and how it fares. Performs no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.resource import Stream
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.assembly import LedgerKey, SourceKey, ledger_key, source_key
from exactlyonce.checkpoint.store import SizedStore
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.ledger.connector import LedgerAddress
from exactlyonce.source.connector import SourceAddress
from exactlyonce.source.counted_files import FileCounter

_ANY_TIME = datetime.fromtimestamp(0, UTC)
"""Conditions also tell since when they hold; the monitor does not ask."""


class StreamKey(NamedTuple):
    """Which stream: the namespace and the name of its resource."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Target:
    """Where a stream is measured. Its text never shows a password."""

    key: StreamKey
    stream_id: str
    source: SourceSpec
    server: SourceKey
    ledger: LedgerKey
    ledger_space: str
    lag_objective_seconds: int | None = None
    most_quarantined: int | None = None
    """How many records may be in quarantine; None where the stream quarantines nothing by itself."""


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
    refused_rows: int = 0


Watch = Callable[[Target, SizedStore | None, FileCounter | None], None]
"""Is told where a stream is measured, with the store of its checkpoint where that tells its size, and what counts its files."""


def target_of(stream: Stream, source: SourceAddress, ledger: LedgerAddress) -> Target:
    """Return where a stream is measured, with the logins that its secrets give."""
    spec = stream.spec
    return Target(
        key=StreamKey(stream.metadata.namespace, stream.metadata.name),
        stream_id=stream.stream_id,
        source=spec.source.spec,
        server=source_key(spec, source),
        ledger=ledger_key(spec, ledger),
        ledger_space=ledger.space,
        lag_objective_seconds=spec.objectives.lag_seconds,
        most_quarantined=spec.recovery.max_quarantined if spec.recovery.on_poison_batch.continues else None,
    )


def life_of(status: StreamStatus, created_at: datetime | None = None, *, secret_missing: bool = False) -> Life:
    """Return what the monitor needs of a status, and of what a pass knows beside it."""
    consecutive_failures, progress = status.consecutive_failures, status.progress
    conditions = conditions_of(status, generation=0, now=_ANY_TIME)
    return Life(
        status.phase,
        status.attempt,
        consecutive_failures.endings,
        consecutive_failures.batch_failures,
        oldest_at=None if progress is None else progress.oldest_record_at,
        conditions=tuple((condition.type, str(condition.status)) for condition in conditions),
        has_landed=progress is not None and progress.batch is not None,
        created_timestamp=None if created_at is None else created_at.timestamp(),
        secret_missing=secret_missing,
        refused_rows=consecutive_failures.refused_rows or 0,
    )
