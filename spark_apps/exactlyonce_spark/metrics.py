"""What a driver tells of its own batches, on a port of its own: seconds by part, rows, records, landings tried again.

The time of a batch is cut at the named points that it passes (`crash_points`), so that every delivery and commit has the
same parts. Written in Prometheus' text format by hand: the image of drivers has no client of it. No pyspark here.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from exactlyonce.bounded_text import one_line
from exactlyonce_spark.target import LoadState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"

PARTS: Mapping[str, str] = {
    "batch.planned": "plan",
    "batch.begun": "plan",
    "batch.rows-written": "read",
    "batch.source-checked": "read",
    "land.fenced": "write",
    "land.rows-moved": "write",
    "land.positions-advanced": "commit",
    "land.before-commit": "commit",
    "batch.landed": "commit",
}
"""The part of a batch that has ended at each point."""

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

log = logging.getLogger("exactlyonce.driver")


@dataclass(frozen=True)
class DriverSeries:
    """One metric: its name, Prometheus' kind, its labels and what it says."""

    name: str
    kind: str
    says: str
    labels: tuple[str, ...] = ()


BATCH_SECONDS = DriverSeries(
    "exactlyonce_driver_batch_seconds",
    "histogram",
    "How long the parts of batches that landed took: plan (until it is recorded), read (Spark runs the query; with many rows "
    "its tasks write too), write (rows in the landing transaction), commit (positions and COMMIT).",
    ("part",),
)
BATCHES = DriverSeries("exactlyonce_driver_batches_total", "counter", "Batches that this driver has landed.")
RECORDS = DriverSeries("exactlyonce_driver_records_total", "counter", "Offsets in the ranges of those batches.")
ROWS = DriverSeries("exactlyonce_driver_rows_total", "counter", "Rows that those batches wrote, as far as it is known.")
RETRIES = DriverSeries(
    "exactlyonce_driver_landing_retries_total",
    "counter",
    "Landing transactions that were run again because nobody knew how their COMMIT ended, and it had not landed.",
)
LOADS = DriverSeries(
    "exactlyonce_driver_loads_total",
    "counter",
    "Loads of decided batches of which this driver has asked a sink of two phases, each with a label of its own; `into` is "
    "what remembers labels, such as a database, and only so many.",
    ("into",),
)
NEWEST_LOADS = DriverSeries(
    "exactlyonce_driver_newest_loads",
    "gauge",
    "Loads of the latest batch that was decided in a sink of two phases, by what the sink has said of each: prepared (it was "
    "not asked yet, so the load is open), committed, aborted (its rows are made again), unknown (in doubt, or there in part).",
    ("state",),
)
NOT_LANDED_FILES = DriverSeries(
    "exactlyonce_driver_not_landed_files",
    "gauge",
    "Files of the source's folder that have not landed, as of the planner's latest listing: before each batch, and again and "
    "again while none waits; what a batch has landed since is taken off. This and the next three are absent until the first "
    "listing, and for a source that is no folder.",
)
NOT_LANDED_BYTES = DriverSeries(
    "exactlyonce_driver_not_landed_bytes", "gauge", "Bytes of those files, as they are stored."
)
OLDEST_NOT_LANDED = DriverSeries(
    "exactlyonce_driver_oldest_not_landed_timestamp_seconds",
    "gauge",
    "When the oldest of those files was last written to; `time()` less it is the lag in seconds. Absent while no file waits.",
)
LISTING_START = DriverSeries(
    "exactlyonce_driver_listing_start_timestamp_seconds",
    "gauge",
    "When the driver that tells these was started. Of several drivers of a stream, the one started last is right.",
)
OF_FOLDERS = (NOT_LANDED_FILES, NOT_LANDED_BYTES, OLDEST_NOT_LANDED, LISTING_START)
ALL = (BATCH_SECONDS, BATCHES, RECORDS, ROWS, RETRIES, LOADS, NEWEST_LOADS)


@dataclass(frozen=True, slots=True)
class NotLanded:
    """What of a source that is no log has not landed; `oldest_timestamp` is in seconds since 1970."""

    files: int
    size_bytes: int
    oldest_timestamp: float | None


@dataclass
class DriverMetrics:
    """The counters of one driver; a batch counts when it has landed. Safe to read while batches run.

    `not_landed` is asked at each scrape, and returns None for a source that does not tell, or has not told yet.
    `note_landed` is called for each batch that has landed. `started_seconds` is when this driver was started, since 1970.
    """

    now: Callable[[], float] = time.monotonic
    loads_into: str = ""
    not_landed: Callable[[], NotLanded | None] = lambda: None
    note_landed: Callable[[], None] = lambda: None
    started_seconds: float = field(default_factory=time.time)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _at: float | None = None
    _laps: dict[str, float] = field(default_factory=dict)
    _fenced: bool = False
    _counts: dict[str, int] = field(default_factory=dict)
    _sums: dict[str, float] = field(default_factory=dict)
    _buckets: dict[str, list[int]] = field(default_factory=dict)
    _newest: Counter[LoadState] = field(default_factory=Counter)

    def begun(self) -> None:
        """Note that a batch has begun."""
        with self._guard:
            self._at, self._laps, self._fenced = self.now(), {}, False

    def reached(self, point: str) -> None:
        """Give the time since the last point to the part that ends at this one."""
        part = PARTS.get(point)
        with self._guard:
            if point == "commit.answered":
                self._add(LOADS, 1)
            if part is None or self._at is None:
                return
            at = self.now()
            self._laps[part] = self._laps.get(part, 0.0) + at - self._at
            self._at = at
            if point == "land.fenced":
                if self._fenced:
                    self._add(RETRIES, 1)
                self._fenced = True

    def loads_decided(self, count: int) -> None:
        """Note that so many loads are to be committed."""
        with self._guard:
            self._newest = Counter({LoadState.PREPARED: count})

    def load_answered(self, state: LoadState) -> None:
        """Note what the sink says of one of them."""
        with self._guard:
            self._newest[LoadState.PREPARED] -= 1
            self._newest[state] += 1

    def landed(self, records: int, rows: int | None) -> None:
        """Count the batch that was begun last."""
        self.note_landed()
        with self._guard:
            self._add(BATCHES, 1)
            self._add(RECORDS, records)
            self._add(ROWS, rows or 0)
            for part, seconds in self._laps.items():
                self._sums[part] = self._sums.get(part, 0.0) + seconds
                buckets = self._buckets.setdefault(part, [0] * (len(_BUCKETS) + 1))
                buckets[bisect_left(_BUCKETS, seconds)] += 1
            self._at, self._laps = None, {}

    def text(self) -> str:
        """Return the page that Prometheus reads."""
        not_landed = self.not_landed()
        with self._guard:
            return "".join(f"{line}\n" for line in (*self._lines(), *_of_folder(not_landed, self.started_seconds)))

    def _add(self, series: DriverSeries, count: int) -> None:
        self._counts[series.name] = self._counts.get(series.name, 0) + count

    def _lines(self) -> Iterator[str]:
        for series in ALL:
            yield f"# HELP {series.name} {series.says}"
            yield f"# TYPE {series.name} {series.kind}"
            if series is BATCH_SECONDS:
                for part in dict.fromkeys(PARTS.values()):
                    yield from self._histogram(series.name, part)
            elif series is NEWEST_LOADS:
                for state in LoadState:
                    yield f'{series.name}{{state="{state.value}"}} {self._newest[state]}'
            else:
                into = f'{{into="{_escaped(self.loads_into)}"}}' if series is LOADS and self.loads_into else ""
                yield f"{series.name}{into} {self._counts.get(series.name, 0)}"

    def _histogram(self, name: str, part: str) -> Iterator[str]:
        total = 0
        for edge, count in zip((*_BUCKETS, "+Inf"), self._buckets.get(part, [0] * (len(_BUCKETS) + 1)), strict=True):
            total += count
            yield f'{name}_bucket{{part="{part}",le="{edge}"}} {total}'
        yield f'{name}_sum{{part="{part}"}} {self._sums.get(part, 0.0)}'
        yield f'{name}_count{{part="{part}"}} {total}'


def _of_folder(found: NotLanded | None, started_seconds: float) -> Iterator[str]:
    values = () if found is None else (found.files, found.size_bytes, found.oldest_timestamp, started_seconds)
    for series, value in zip(OF_FOLDERS, values, strict=False):
        if value is not None:
            yield f"# HELP {series.name} {series.says}"
            yield f"# TYPE {series.name} {series.kind}"
            yield f"{series.name} {value}"


def _escaped(value: str) -> str:
    """Return a value of a label, which a tenant may have chosen, as Prometheus' text format has it, and not too long."""
    return one_line(value).replace("\\", r"\\").replace('"', r"\"")


class MetricsServer(ThreadingHTTPServer):
    """Serves the page at `address` from threads that end with the process."""

    daemon_threads = True

    def __init__(self, metrics: DriverMetrics, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _page(metrics))
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()


def serve(metrics: DriverMetrics, address: str, port: int) -> MetricsServer | None:
    """Serve the metrics; a port that is taken costs the metrics, not the stream."""
    try:
        return MetricsServer(metrics, address, port)
    except OSError as problem:
        log.warning("The driver's metrics are not served at %s:%s: %s", address, port, problem)
        return None


def _page(metrics: DriverMetrics) -> type[BaseHTTPRequestHandler]:
    class Page(BaseHTTPRequestHandler):
        timeout = 10  # seconds, for who connects and asks nothing

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == PATH
            body = metrics.text().encode() if found else b"The metrics are at /metrics.\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """A scrape is nothing to tell."""

    return Page
