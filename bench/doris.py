"""The part of `make bench` about Doris: rows a second of stream loads. Writes bench/out/doris.json.

Every contender sends the same rows to the same stand-in (`doris_stand_in.py`), which parses them and keeps none, by as many
connections. Plain stream load is curl with the JSON lines in files. Ours is what tasks and driver do without Spark: rows of
Arrow batches in processes that are warm, prepared in two phases, then committed. Doris' own Spark connector makes its rows in
Spark, in a JVM that is warm, once as JSON and once as CSV, which is shorter. Goal: at least 0.9 of plain stream load.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.doris_stand_in import COLUMNS, DATABASE, PASSWORD, TABLE, USER
from bench.figures import Figure, compared, table, write
from exactlyonce.ledger.decided import Committable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Ranges
from exactlyonce_spark.connectors.doris.client import DorisClient, Login
from exactlyonce_spark.connectors.doris.exchange import Node
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.rows import json_lines
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.load_labels import LoadLabels
from testbed.doris_connector import DorisConnector

ARROW_ROWS = 10_000
"""What Spark puts into an Arrow batch (spark.sql.execution.arrow.maxRecordsPerBatch)."""
SELECT = (
    "SELECT id, concat('customer-', lpad(id % 9973, 6, '0'), '-of-the-benchmark') AS customer, "
    "concat(id % 100000, '.', lpad(id % 100, 2, '0')) AS amount, "
    "concat('2026-01-02 ', lpad(id div 3600 % 24, 2, '0'), ':', lpad(id div 60 % 60, 2, '0'), ':', "
    "lpad(id % 60, 2, '0')) AS ts FROM ids"
)


def row(number: int) -> tuple[str, str, str, str]:
    """Return one row, all text as the fit hands it over; the same as `SELECT` makes."""
    time_of_day = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    return (
        str(number),
        f"customer-{number % 9973:06d}-of-the-benchmark",
        f"{number % 100000}.{number % 100:02d}",
        f"2026-01-02 {time_of_day}",
    )


@dataclass(frozen=True)
class Server:
    """The stand-in, in a process of its own."""

    frontend: str
    process: subprocess.Popen[str]

    def seen(self) -> dict[str, int]:
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


@dataclass
class Parts:
    """The rows of one batch, by connection, as Arrow batches and as files of JSON lines."""

    arrow: list[list[pa.RecordBatch]]
    files: list[Path]

    @staticmethod
    def of(rows: int, connections: int, folder: Path) -> Parts:
        """Make them."""
        parts = Parts([], [])
        for part in range(connections):
            found = [row(number) for number in range(part, rows, connections)]
            whole = pa.table(
                {
                    name: pa.array(values, pa.string())
                    for name, values in zip(COLUMNS, zip(*found, strict=True), strict=True)
                }
            )
            parts.arrow.append(whole.to_batches(max_chunksize=ARROW_ROWS))
            parts.files.append(folder / f"part-{part}.json")
            parts.files[-1].write_bytes(b"".join(json_lines(found, COLUMNS, ())))
        return parts


def plain(server: Server, parts: Parts, batch: int) -> None:
    """Load every file by curl, all at once, under a label each."""
    headers = {"Expect": "100-continue", "format": "json", "read_json_by_line": "true", "columns": ",".join(COLUMNS)}
    shown = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    url = f"http://{server.frontend}/api/{DATABASE}/{TABLE}/_stream_load"
    common = ["curl", "--silent", "--fail", "--noproxy", "*", "--location-trusted", "-u", f"{USER}:{PASSWORD}", *shown]
    running = [
        subprocess.Popen(
            [*common, "-H", f"label: plain-{batch}-{part}", "-T", str(file), url], stdout=subprocess.DEVNULL
        )
        for part, file in enumerate(parts.files)
    ]
    assert [one.wait() for one in running] == [0] * len(running), "curl has loaded every file"


def target_of(frontend: str) -> DorisTarget:
    """Return our side of a table."""
    host, _, port = frontend.rpartition(":")
    client = DorisClient((Node(host, int(port)),), Login(USER, PASSWORD), DATABASE, TABLE)
    columns = tuple(DorisFit(name, f"`{name}`") for name in COLUMNS)
    return DorisTarget(Loads(client), columns, LoadLabels("bench/orders", frontend), Epoch(1))


def _task(frontend: str, rows: list[pa.RecordBatch], channel: Any) -> None:
    """Prepare the rows for each batch number that the driver sends."""
    target = target_of(frontend)
    while (asked := channel.recv()) is not None:
        batch, part = asked
        before = time.process_time()
        load = target.prepare(BatchNumber(batch), part, iter(rows))
        channel.send((load, time.process_time() - before))


@dataclass
class Tasks:
    """Processes that are warm and have their rows, as Spark's Python workers have them from the JVM."""

    target: DorisTarget
    channels: list[Any]
    core_seconds: float = 0.0

    def batch(self, batch: int) -> None:
        """Prepare a batch in all tasks at once, then commit it."""
        for part, channel in enumerate(self.channels):
            channel.send((batch, f"{part}-ab"))
        answers = [channel.recv() for channel in self.channels]
        self.core_seconds += sum(seconds for _, seconds in answers)
        for load, _ in answers:
            assert self.target.commit(Committable(load.label, load.transaction_id, load.rows, Ranges({})))


@contextmanager
def tasks(server: Server, parts: Parts) -> Iterator[Tasks]:
    """Start a process for each connection."""
    context = multiprocessing.get_context("fork")
    channels, processes = [], []
    for rows in parts.arrow:
        here, there = context.Pipe()
        processes.append(context.Process(target=_task, args=(server.frontend, rows, there), daemon=True))
        channels.append(here)
    for process in processes:
        process.start()
    try:
        yield Tasks(target_of(server.frontend), channels)
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
    parser.add_argument("--rows", type=int, default=500_000, help="of a batch (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=4, help="of a run, beside the first (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=4, help="at once (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each contender (default: %(default)s)")
    options = parser.parse_args()
    figures = measured(options.rows, options.batches, options.connections, options.repeats)
    print(f"\n{table(figures)}\n\n{write(figures, 'doris')}")
    return 0


def measured(rows: int, batches: int, connections: int, repeats: int) -> list[Figure]:
    """Return rows a second of each contender, and what a batch of ours takes."""
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="exactlyonce-bench-") as folder, stand_in() as server:
        parts = Parts.of(rows, connections, Path(folder))
        bytes_of_json = sum(file.stat().st_size for file in parts.files)
        connector = DorisConnector(Path(folder) / "connector.log", server.frontend, USER, PASSWORD, quick=False)
        with tasks(server, parts) as ours, connector:

            def by_connector(kind: str) -> Callable[[int], None]:
                options = {"doris.sink.enable-2pc": "true", "doris.sink.properties.format": kind}

                def run(_: int) -> None:
                    told = connector.append(f"{DATABASE}.{TABLE}", options, rows, connections, select=SELECT)
                    assert told == "done", told

                return run

            contenders: dict[str, Callable[[int], None]] = {
                "plain": lambda number: plain(server, parts, number),
                "ours": ours.batch,
                "json": by_connector("json"),
                "csv": by_connector("csv"),
            }
            calls: dict[str, dict[str, int]] = {}
            for turn in range(repeats):
                for name, work in contenders.items():
                    server.seen()
                    seconds = seconds_of(work, 1 + turn * (batches + 1), batches)
                    calls[name] = server.seen()
                    assert calls[name]["rows"] == rows * (batches + 1), f"{name}: every row counts once"
                    rates.setdefault(name, []).append(rows * batches / seconds)
                    print(f"  {turn + 1}/{repeats} {name}: {rates[name][-1]:,.0f} rows/s", flush=True)
        done = rows * (batches + 1) * repeats
    middle = {name: statistics.median(found) for name, found in rates.items()}
    of_plain = Figure("plain stream load (curl)", middle["plain"], "rows/s")
    of_json = Figure("Doris' Spark connector, JSON", middle["json"], "rows/s")
    return [
        of_plain,
        compared("exactly once, the tasks' and the driver's part", middle["ours"], "rows/s", of_plain),
        compared("Doris' Spark connector, JSON, with Spark", middle["json"], "rows/s", of_plain),
        compared("Doris' Spark connector, CSV, with Spark", middle["csv"], "rows/s", of_plain),
        compared("exactly once / the connector", middle["ours"], "rows/s", of_json),
        Figure("core-seconds of our tasks for a million rows", ours.core_seconds / done * 1e6, "s"),
        Figure("bytes of a row as JSON", bytes_of_json / rows, "bytes"),
        Figure("requests per batch, ours", calls["ours"]["requests"] / (batches + 1), ""),
        Figure("requests per batch, plain", calls["plain"]["requests"] / (batches + 1), ""),
        Figure("labels per batch, ours", calls["ours"]["labels"] / (batches + 1), ""),
    ]


if __name__ == "__main__":
    sys.exit(main())
