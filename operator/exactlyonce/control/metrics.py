"""The operator's own metrics: passes, verdicts, attempts and endings, refusals, stores, queue, event loop, Lease.

Names carry their unit and are never changed; docs/metrics.md is made from here and from `monitor.series`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from exactlyonce import __version__
from exactlyonce.api.status import StreamStatus
from exactlyonce.control.cluster import ClusterRefused, ClusterUnreachable
from exactlyonce.control.transitions import Happened
from exactlyonce.errors import (
    CommitOutcomeUnknown,
    GroupUnfit,
    LedgerRefused,
    LedgerUnreachable,
    LockHeldByOther,
    OriginMissing,
    SourceRefused,
    SourceUnreachable,
    StoreUnreachable,
)
from exactlyonce.launch.api_server import Answered, ApiServerUnreachable
from exactlyonce.launch.port import LaunchFailed
from exactlyonce.ledger.fence import EpochOvertaken
from exactlyonce.monitor.metric import Kind, Series
from exactlyonce.reconcile.verdicts import Verdict

PASS_SECONDS = Series(
    "exactlyonce_pass_seconds", Kind.HISTOGRAM, "How long passes took, by how they ended.", ("outcome",)
)
PASS_LATE_SECONDS = Series(
    "exactlyonce_pass_late_seconds", Kind.HISTOGRAM, "How long a stream that was due waited for a worker."
)
VERDICTS = Series("exactlyonce_verdicts_total", Kind.COUNTER, "Verdicts of reconciliation.", ("kind",))
ATTEMPTS = Series(
    "exactlyonce_attempts_total", Kind.COUNTER, "Attempts, that is, launches of a driver that were begun."
)
ENDINGS = Series("exactlyonce_driver_endings_total", Kind.COUNTER, "Drivers that ended, by reason.", ("reason",))
HALTS = Series(
    "exactlyonce_halts_total", Kind.COUNTER, "Streams that halted until a person acts, by reason.", ("reason",)
)
DRIVER_START_SECONDS = Series(
    "exactlyonce_driver_start_seconds",
    Kind.HISTOGRAM,
    "From the attempt being recorded until its pod was created (pod_created), its driver ran (running), and it had landed "
    "its first batch (first_batch).",
    ("until",),
)
FENCE_REFUSALS = Series(
    "exactlyonce_fence_refusals_total",
    Kind.COUNTER,
    "What the fence refused: drivers that found another epoch or claim (driver), and passes that another one overtook (pass).",
    ("whose",),
)
STORE_ERRORS = Series(
    "exactlyonce_store_errors_total",
    Kind.COUNTER,
    "Requests that a store did not answer or refused: source, ledger, checkpoint, kubernetes.",
    ("store",),
)
QUEUE_DEPTH = Series("exactlyonce_queue_depth", Kind.GAUGE, "Streams that are due and have no worker.")
EVENT_LOOP_DELAY_SECONDS = Series(
    "exactlyonce_event_loop_delay_seconds", Kind.HISTOGRAM, "How late the event loop ran what was due."
)
LEASE_HELD = Series("exactlyonce_lease_held", Kind.GAUGE, "Whether this operator holds the Lease and acts.")
SHARD_LEADER = Series(
    "exactlyonce_shard_leader",
    Kind.GAUGE,
    "Whether this operator holds the Lease of its shard (namespace/name) and acts. Releases of the chart that share the "
    "streams have a Lease each.",
    ("lease",),
)
BUILD_INFO = Series("exactlyonce_build_info", Kind.GAUGE, "1, with the release.", ("version",))

ALL = (
    PASS_SECONDS, PASS_LATE_SECONDS, QUEUE_DEPTH, LEASE_HELD, SHARD_LEADER, EVENT_LOOP_DELAY_SECONDS, VERDICTS, ATTEMPTS,
    DRIVER_START_SECONDS, ENDINGS, HALTS, FENCE_REFUSALS, STORE_ERRORS, BUILD_INFO,
)  # fmt: skip

STORES = ("source", "ledger", "checkpoint", "kubernetes")
_PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_START_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 120, 300, 600)
_DELAY_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BEAT_SECONDS = 0.5


@dataclass(frozen=True)
class _Begun:
    """When an attempt was recorded, and what of its start has been counted."""

    attempt: int
    at: float
    counted: frozenset[str] = frozenset()


class OperatorMetrics:
    """The counters of one operator process; safe to use from several threads. Streams are told apart by any hashable key."""

    def __init__(self, registry: CollectorRegistry, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._begun: dict[object, _Begun] = {}

        def counter(series: Series) -> Counter:
            return Counter(series.name, series.says, series.labels, registry=registry)

        def gauge(series: Series) -> Gauge:
            return Gauge(series.name, series.says, series.labels, registry=registry)

        def histogram(series: Series, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(series.name, series.says, series.labels, registry=registry, buckets=buckets)

        self._passes = histogram(PASS_SECONDS, _PASS_BUCKETS)
        self._late = histogram(PASS_LATE_SECONDS, _PASS_BUCKETS)
        self._verdicts = counter(VERDICTS)
        self._attempts = counter(ATTEMPTS)
        self._endings = counter(ENDINGS)
        self._halts = counter(HALTS)
        self._starts = histogram(DRIVER_START_SECONDS, _START_BUCKETS)
        self._refusals = counter(FENCE_REFUSALS)
        self._errors = counter(STORE_ERRORS)
        self._queue = gauge(QUEUE_DEPTH)
        self._delay = histogram(EVENT_LOOP_DELAY_SECONDS, _DELAY_BUCKETS)
        self._lease = gauge(LEASE_HELD)
        self._leader = gauge(SHARD_LEADER)
        gauge(BUILD_INFO).labels(__version__).set(1)
        # A series that begins with its first event hides that event from increase().
        for kind in get_args(Verdict):
            self._verdicts.labels(kind.__name__)
        for store in STORES:
            self._errors.labels(store)
        for whose in ("driver", "pass"):
            self._refusals.labels(whose)

    def measure(self, queue_depth: Callable[[], float], lease_held: Callable[[], bool], lease: str) -> None:
        """Read these two at each scrape; `lease` is the Lease's namespace and name."""
        self._queue.set_function(queue_depth)
        for gauge in (self._lease, self._leader.labels(lease)):
            gauge.set_function(lambda: float(lease_held()))

    def passed(self, outcome: str, seconds: float, late_seconds: float) -> None:
        """Count a pass."""
        self._passes.labels(outcome).observe(seconds)
        self._late.observe(late_seconds)

    def happened(self, key: object, happened: Happened, after: StreamStatus) -> None:
        """Count what one write of a stream's status tells."""
        if happened.attempt is not None:
            self._attempts.inc()
            self._begun[key] = _Begun(happened.attempt, self._now())
        if happened.verdict is not None:
            self._verdicts.labels(happened.verdict).inc()
        if happened.ending is not None:
            self._endings.labels(happened.ending).inc()
            if happened.ending == "Fenced":
                self._refusals.labels("driver").inc()
        if happened.halt is not None:
            self._halts.labels(happened.halt).inc()
        if happened.runs:
            self._started(key, after.attempt, "running", self._now())
        if happened.first_batch_at is not None:
            self._started(key, after.attempt, "first_batch", happened.first_batch_at.timestamp())

    def pod_created(self, key: object, attempt: int) -> None:
        """Count the start of an attempt whose pod is there; told again, it is counted once."""
        self._started(key, attempt, "pod_created", self._now())

    def gone(self, key: object) -> None:
        """Forget a stream."""
        self._begun.pop(key, None)

    def note_problem(self, problem: Exception) -> None:
        """Count what a store did not answer or refused; what is not a store's fault is passed over."""
        if isinstance(problem, EpochOvertaken):
            self._refusals.labels("pass").inc()
            return
        store = store_of(problem)
        if store is not None:
            self._errors.labels(store).inc()

    def store_failed(self, store: str) -> None:
        """Count that the monitor got no answer from a store."""
        self._errors.labels(store).inc()

    async def watch_event_loop(self) -> None:
        """Measure how late the loop is, until cancelled."""
        while True:
            due = time.monotonic() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            self._delay.observe(max(time.monotonic() - due, 0.0))

    def _started(self, key: object, attempt: int, until: str, at: float) -> None:
        begun = self._begun.get(key)
        if begun is None or begun.attempt != attempt or until in begun.counted:
            return
        self._starts.labels(until).observe(max(at - begun.at, 0.0))
        self._begun[key] = _Begun(begun.attempt, begun.at, begun.counted | {until})


def store_of(problem: Exception) -> str | None:
    """Return which store an error is about, if it is about one."""
    match problem:
        case SourceUnreachable() | SourceRefused() | OriginMissing() | GroupUnfit():
            return "source"
        case LedgerUnreachable() | LedgerRefused() | CommitOutcomeUnknown() | LockHeldByOther():
            return "ledger"
        case StoreUnreachable():
            return "checkpoint"
        case ClusterUnreachable() | ClusterRefused() | ApiServerUnreachable() | Answered() | LaunchFailed():
            return "kubernetes"
        case _:
            return None
