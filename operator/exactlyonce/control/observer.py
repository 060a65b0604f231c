"""What passes tell of themselves, to the monitor and to the metrics, and the lag that a status shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from exactlyonce.api.status import Progress, StreamStatus
from exactlyonce.checkpoint.store import SizedStore
from exactlyonce.control.cluster import ClusterRefused
from exactlyonce.control.incomplete import Lack
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.transitions import happened_between
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import SecretMissing
from exactlyonce.monitor.monitor import Monitor
from exactlyonce.monitor.replays import ReplaysView
from exactlyonce.monitor.snapshot import Snapshot
from exactlyonce.monitor.targets import StreamKey, Target, life_of
from exactlyonce.reconcile.progress import RateLimit
from exactlyonce.source.counted_files import FileCounter


@dataclass(frozen=True)
class Observer:
    """Stands beside the passes; safe to use from several threads. Nothing that it does can fail a pass."""

    monitor: Monitor
    metrics: OperatorMetrics
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    rate_limit: RateLimit = field(default_factory=lambda: RateLimit(time.monotonic))

    def watch(self, target: Target, checkpoint: SizedStore | None = None, files: FileCounter | None = None) -> None:
        """Measure a stream there from now on; `checkpoint` is None where it is out of reach, `files` for no folder."""
        self.monitor.watch(target, checkpoint, files)

    def written(self, key: Key, before: StreamStatus, after: StreamStatus) -> None:
        """Count what a write of a status says."""
        self.metrics.happened(key, happened_between(before, after), after)

    def seen(
        self,
        key: Key,
        status: StreamStatus,
        *,
        has_driver: bool,
        created_at: datetime | None = None,
        lacks: Lack | None = None,
    ) -> None:
        """Note how a stream fares at the end of a pass.

        `has_driver` tells whether its driver's pod is there; `lacks` is why the stream could not be put together, if so.
        """
        secret_missing = isinstance(lacks, SecretMissing | ClusterRefused)
        self.monitor.noted(StreamKey(*key), life_of(status, created_at, secret_missing=secret_missing))
        if has_driver:
            self.metrics.pod_created(key, status.attempt)

    def replays(self, key: Key, view: ReplaysView | None) -> None:
        """Note how the replays of a stream fare; None where none is left."""
        self.monitor.noted_replays(StreamKey(*key), view)

    def gone(self, key: Key) -> None:
        """Drop a stream that is gone, with its series."""
        self.monitor.forget(StreamKey(*key))
        self.metrics.gone(key)

    def with_lag(self, key: Key, status: StreamStatus) -> StreamStatus:
        """Return a status that shows the lag as it was measured last, at most every few seconds another one."""
        snapshot = self.monitor.snapshot(StreamKey(*key))
        if snapshot is None:
            return status
        progress = progress_with_lag(status.progress, snapshot, self.now())
        if progress == status.progress or not self.rate_limit.is_due(f"lag of {key}"):
            return status
        return status.model_copy(update={"progress": progress})


HELD_BACK_SECONDS = 60.0
"""How long a transaction may be open before the status says that it holds records back: most take seconds."""


def progress_with_lag(before: Progress | None, snapshot: Snapshot, now: datetime) -> Progress:
    """Return how far a stream has come, with what is known of its lag. Performs no I/O.

    An age is shown again when it is another by a tenth or more: the moment beside it tells it exactly.
    """
    known, at = before or Progress(), now.timestamp()
    if snapshot.measured_at is None and snapshot.problem is not None:
        return known.model_copy(update={"lag_problem": snapshot.problem})  # what another operator measured stands
    lag, oldest, files = snapshot.lag(at), snapshot.oldest_timestamp(at), snapshot.not_landed
    if oldest is not None:
        age: int | None = max(round(at - oldest), 0)
    else:
        age = 0 if lag is not None and lag.is_caught_up else None
    if age is not None and known.lag_seconds is not None and abs(age - known.lag_seconds) * 10 < age:
        age = known.lag_seconds
    since = None if lag is None else lag.held_back_since
    is_held = lag is not None and since is not None and at - since >= HELD_BACK_SECONDS
    return known.model_copy(
        update={
            "held_back_records": lag.held_back_records if lag is not None and is_held else None,
            "held_back_since": datetime.fromtimestamp(int(since), UTC) if since is not None and is_held else None,
            "lag_records": None if lag is None else lag.records,
            "lag_files": None if files is None else files.files,
            "lag_bytes": None if files is None else files.size_bytes,
            "lag_seconds": age,
            "oldest_record_at": None if oldest is None else datetime.fromtimestamp(int(oldest), UTC),
            "lag_problem": snapshot.problem,
            "held_records": known.held_records if snapshot.landed is None else snapshot.landed.quarantined_records,
        }
    )
