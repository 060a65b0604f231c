"""The part of `make bench` about Doris: rows per second of stream loads. Writes bench/out/doris.json.

Every contender sends the same rows to the same stand-in (`doris_stand_in.py`), which parses them and keeps none, by as many
connections. Plain stream load is curl with the JSON lines in files. Ours is what tasks and driver do without Spark: rows of
Arrow batches in processes that are warm, prepared in two phases, then committed. Doris' own Spark connector makes its rows in
Spark, in a JVM that is warm, once as JSON and once as CSV, which is shorter. Goal: at least 0.9 of plain stream load. Where
others use the cores as well, core-seconds tell more than rates: what each contender costs client and server together.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.doris_rows import DATABASE, KINDS, ORDERS, PASSWORD, USER, Kind, Parts
from bench.figures import Figure, compared, table, write
from exactlyonce.ledger.decided import Committable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Ranges
from exactlyonce_spark.connectors.doris.client import DorisClient, Login
from exactlyonce_spark.connectors.doris.exchange import Node
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.load_labels import LoadLabels
from testbed.doris_connector import DorisConnector


@dataclass(frozen=True)
class Server:
    """The stand-in, in a process of its own."""

    frontend: str
    process: subprocess.Popen[str]

    def seen(self) -> dict[str, float]:
        """Return what it has seen since it was asked before."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))


@contextmanager
def stand_in() -> Iterator[Server]:
    """Start it."""
    command = [sys.executable, "-m", "bench.doris_stand_in"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process.stdout.readline().strip(), process)
        finally:
            process.terminate()


def plain(server: Server, kind: Kind, parts: Parts, batch: int) -> None:
    """Load every file by curl, all at once, under a label each."""
    headers = {"Expect": "100-continue", "format": "json", "read_json_by_line": "true"}
    headers["columns"] = ",".join(kind.columns)
    shown = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    url = f"http://{server.frontend}/api/{DATABASE}/{kind.table}/_stream_load"
    common = ["curl", "--silent", "--fail", "--noproxy", "*", "--location-trusted", "-u", f"{USER}:{PASSWORD}", *shown]
    running = [
        subprocess.Popen(
            [*common, "-H", f"label: plain-{batch}-{part}", "-T", str(file), url], stdout=subprocess.DEVNULL
        )
        for part, file in enumerate(parts.files)
    ]
    assert [one.wait() for one in running] == [0] * len(running), "curl has loaded every file"


def target_of(frontend: str, kind: Kind) -> DorisTarget:
    """Return our side of a table."""
    host, _, port = frontend.rpartition(":")
    client = DorisClient((Node(host, int(port)),), Login(USER, PASSWORD), DATABASE, kind.table)
    columns = tuple(DorisFit(name, f"`{name}`", is_plain=name not in kind.texts) for name in kind.columns)
    return DorisTarget(Loads(client), columns, LoadLabels(f"bench/{kind.table}", frontend), Epoch(1))


def _task(frontend: str, kind: Kind, rows: list[pa.RecordBatch], channel: Any) -> None:
    """Prepare the rows for each batch number that the driver sends."""
    target = target_of(frontend, kind)
    while (asked := channel.recv()) is not None:
        batch, part = asked
        before = time.process_time()
        load = target.prepare(BatchNumber(batch), part, iter(rows))
        channel.send((load, time.process_time() - before))


@dataclass
class Tasks:
    """Processes that are warm and have their rows, as Spark's Python workers have them from the JVM.

    `core_seconds` are those of tasks and driver.
    """

    target: DorisTarget
    channels: list[Any]
    core_seconds: float = 0.0

    def batch(self, batch: int) -> None:
        """Prepare a batch in all tasks at once, then commit it."""
        for part, channel in enumerate(self.channels):
            channel.send((batch, f"{part}-ab"))
        answers = [channel.recv() for channel in self.channels]
        before = time.process_time()
        for load, _ in answers:
            assert self.target.commit(Committable(load.label, load.transaction_id, load.rows, Ranges({})))
        self.core_seconds += time.process_time() - before + sum(seconds for _, seconds in answers)


@contextmanager
def tasks(server: Server, kind: Kind, parts: Parts) -> Iterator[Tasks]:
    """Start a process for each connection."""
    context = multiprocessing.get_context("fork")
    channels, processes = [], []
    for rows in parts.arrow:
        here, there = context.Pipe()
        processes.append(context.Process(target=_task, args=(server.frontend, kind, rows, there), daemon=True))
        channels.append(here)
    for process in processes:
        process.start()
    try:
        yield Tasks(target_of(server.frontend, kind), channels)
    finally:
        for channel in channels:
            channel.send(None)
        for process in processes:
            process.join()


def seconds_of(work: Callable[[int], None], first: int, batches: int) -> float:
    """Return the seconds of so many batches; one more before them warms up."""
    work(first)
    began = time.monotonic()
    for number in range(batches):
        work(first + 1 + number)
    return time.monotonic() - began


def main() -> int:
    """Measure all contenders in turns and print medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.doris", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000, help="of a batch of orders (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=4, help="of a run, beside the first (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=4, help="at once (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each contender (default: %(default)s)")
    parser.add_argument(
        "--without-connector", action="store_true", help="leave out Doris' own connector, which is slow"
    )
    options = parser.parse_args()
    figures = []
    for kind in KINDS:
        # Readings are four times as long.
        rows = options.rows if kind is ORDERS else options.rows // 4
        size = Size(rows, options.batches, options.connections, options.repeats)
        figures += measured(kind, size, with_connector=not options.without_connector)
    print(f"\n{table(figures)}\n\n{write(figures, 'doris')}")
    return 0


@dataclass(frozen=True)
class Size:
    """How much is measured: rows of a batch, batches of a run, connections at once, runs of each contender."""

    rows: int
    batches: int
    connections: int
    repeats: int


@dataclass
class Measured:
    """What runs of a contender gave: rows per second, core-seconds of both sides for a million rows, and the last calls."""

    rates: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    clients: list[float] = field(default_factory=list)
    calls: dict[str, float] = field(default_factory=dict)


def measured(kind: Kind, size: Size, *, with_connector: bool) -> list[Figure]:
    """Return rows per second of each contender, what they cost both sides, and what a batch of ours takes."""
    found: dict[str, Measured] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-bench-")))
        server = stack.enter_context(stand_in())
        parts = Parts.of(kind, size.rows, size.connections, folder)
        ours = stack.enter_context(tasks(server, kind, parts))
        contenders: dict[str, Callable[[int], None]] = {
            "plain": lambda number: plain(server, kind, parts, number),
            "ours": ours.batch,
        }
        if with_connector:
            told = DorisConnector(folder / "connector.log", server.frontend, USER, PASSWORD, quick=False)
            connector = stack.enter_context(told)
            contenders |= {name: by_connector(connector, kind, size, name) for name in ("json", "csv")}
        for turn in range(size.repeats):
            for name, work in contenders.items():
                one = found.setdefault(name, Measured())
                run(server, ours, size, work, one, first=1 + turn * (size.batches + 1))
                rate, cores = one.rates[-1], one.cores[-1]
                told_turn = f"  {turn + 1}/{size.repeats} {kind.table} {name}"
                print(f"{told_turn}: {rate:,.0f} rows/s, {cores:.2f} core-seconds for a million", flush=True)
        return figures_of(kind, size, found, parts.bytes_of_json / size.rows)


def by_connector(connector: DorisConnector, kind: Kind, size: Size, body: str) -> Callable[[int], None]:
    """Return what appends a batch by Doris' own connector, as JSON or CSV."""
    options = {"doris.sink.enable-2pc": "true", "doris.sink.properties.format": body}

    def append(_: int) -> None:
        target = f"{DATABASE}.{kind.table}"
        told = connector.append(target, options, size.rows, size.connections, select=kind.select)
        assert told == "done", told

    return append


def run(server: Server, ours: Tasks, size: Size, work: Callable[[int], None], into: Measured, first: int) -> None:
    """Measure one run. The core-seconds are those of curl or of our tasks and driver; a JVM's are not counted."""
    work(first)
    server.seen()
    ours.core_seconds, curls = 0.0, resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    for number in range(size.batches):
        work(first + 1 + number)
    seconds, rows = time.monotonic() - began, size.rows * size.batches
    into.calls, ended = server.seen(), resource.getrusage(resource.RUSAGE_CHILDREN)
    assert into.calls["rows"] == rows, "every row counts once"
    client = ours.core_seconds + ended.ru_utime + ended.ru_stime - curls.ru_utime - curls.ru_stime
    into.rates.append(rows / seconds)
    into.clients.append(client / rows * 1e6)
    into.cores.append((client + into.calls["core_seconds"]) / rows * 1e6)


def figures_of(kind: Kind, size: Size, found: dict[str, Measured], row_bytes: float) -> list[Figure]:
    """Return the medians."""
    rate = {name: statistics.median(one.rates) for name, one in found.items()}
    cores = {name: statistics.median(one.cores) for name, one in found.items()}
    ours, plainly, name = found["ours"], found["plain"], kind.table
    of_plain = Figure(f"{name}: plain stream load (curl)", rate["plain"], "rows/s")
    of_cores = Figure(f"{name}: core-seconds of ours and the server", cores["ours"], "s/1e6")
    figures = [
        of_plain,
        compared(f"{name}: exactly once, tasks and driver", rate["ours"], "rows/s", of_plain),
        of_cores,
        compared(f"{name}: core-seconds of curl and the server", cores["plain"], "s/1e6", of_cores),
        Figure(f"{name}: core-seconds of our tasks and driver", statistics.median(ours.clients), "s/1e6"),
        Figure(f"{name}: core-seconds of curl", statistics.median(plainly.clients), "s/1e6"),
        Figure(f"{name}: bytes of a row as JSON", row_bytes, "bytes"),
        Figure(f"{name}: requests per batch, ours", ours.calls["requests"] / size.batches, ""),
        Figure(f"{name}: requests per batch, plain", plainly.calls["requests"] / size.batches, ""),
        Figure(f"{name}: labels per batch, ours", ours.calls["labels"] / size.batches, ""),
    ]
    for body in [body for body in ("json", "csv") if body in rate]:
        figures += [
            compared(f"{name}: Doris' Spark connector, {body}, with Spark", rate[body], "rows/s", of_plain),
            Figure(f"{name}: exactly once / the connector, {body}", rate["ours"] / rate[body], ""),
        ]
    return figures


if __name__ == "__main__":
    sys.exit(main())
