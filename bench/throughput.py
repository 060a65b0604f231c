"""Rows per second from Kafka to Postgres, and milliseconds a tiny batch, ours against what people run today."""

from __future__ import annotations

import csv
import statistics
import subprocess
import time
from itertools import pairwise
from pathlib import Path

from bench.core_seconds import CoreSeconds, counted
from bench.figures import Figure, compared
from bench.setup import PARTITIONS, Setup, batch_moments, finish

OURS = ("Partition", "Batch")
PEERS = ("noop", "jdbc", "jdbc-rewrite")


def throughput(setup: Setup, records: int, batch: int, repeats: int) -> list[Figure]:
    """Measure each contender `repeats` times, in turns, and return medians; the first batch of each run warms up."""
    setup.fill("throughput", records)
    rates: dict[str, list[float]] = {name: [] for name in (*PEERS, *OURS)}
    copies = []
    used: list[Figure] = []
    files = _csv_files(setup, records)
    for turn in range(1, repeats + 1):
        copies.append(_copy_rate(setup, files, records))
        for name in rates:
            core_seconds = CoreSeconds(setup.kafka.pid)
            with counted(core_seconds):
                rates[name].append(_rate(setup, name, records, batch))
            if turn == repeats:
                used += core_seconds.figures(name, records / 1e6)
            print(f"  {turn}/{repeats} {name}: {rates[name][-1]:,.0f} rows/s", flush=True)
    middle = {name: statistics.median(found) for name, found in rates.items()}
    noop = Figure("(a) Kafka and from_json to noop", middle["noop"], "rows/s")
    copy = Figure("(b) COPY by psql, 4 connections", statistics.median(copies), "rows/s")
    limit = Figure("(c) limit 1/(1/a + 1/b)", 1 / (1 / noop.value + 1 / copy.value), "rows/s")
    jdbc = Figure("(d) write.jdbc in foreachBatch", middle["jdbc"], "rows/s")
    rewrite = Figure("(d') with reWriteBatchedInserts", middle["jdbc-rewrite"], "rows/s")
    ours = [Figure(f"exactly once, commit: {name}", middle[name], "rows/s") for name in OURS]
    against = [compared(f"{figure.name} / {peer.name[:4].strip()}", figure.value, "rows/s", peer)
               for figure in ours for peer in (limit, jdbc, rewrite)]  # fmt: skip
    return [noop, copy, limit, jdbc, rewrite, *ours, *against, *used]


def tiny_batches(setup: Setup, repeats: int) -> list[Figure]:
    """Measure batches of four rows back to back: the median distance of commits, after ten batches of warm-up."""
    setup.fill("tiny", 4 * 60)
    found: dict[str, list[float]] = {name: [] for name in (*PEERS, *OURS)}
    for turn in range(1, repeats + 1):
        for name, seconds in found.items():
            moments = _run(setup, name, "tiny", 4, 4 * 60)
            distances = [after - before for before, after in pairwise(moments)]
            seconds.append(statistics.median(distances[10:]) * 1000)
            print(f"  {turn}/{repeats} {name}: {seconds[-1]:.0f} ms", flush=True)
    middle = {name: statistics.median(values) for name, values in found.items()}
    jdbc = Figure("tiny batch, write.jdbc in foreachBatch", middle["jdbc"], "ms")
    noop = Figure("tiny batch, noop", middle["noop"], "ms")
    return [noop, jdbc, *(compared(f"tiny batch, commit: {name}", middle[name], "ms", jdbc) for name in OURS)]


def _rate(setup: Setup, name: str, records: int, batch: int) -> float:
    moments = _run(setup, name, "throughput", batch, records)
    return (len(moments) - 1) * batch / (moments[-1] - moments[0])


def _run(setup: Setup, name: str, topic: str, batch: int, records: int) -> list[float]:
    """Run one contender over the whole topic and return when each batch with data was committed."""
    folder, database = setup.fresh(name.lower()), setup.database()
    if name in OURS:
        file = setup.stream_file(folder, topic, database, batch, commit=name, trigger={"availableNow": True})
        finish(setup.run_stream(folder, file), folder)
    else:
        finish(setup.run_bare(folder, name, topic, database, batch), folder)
    if name != "noop":
        assert setup.count(database) == records, f"{name} has written every row"
    moments = batch_moments(folder)
    setup.postgres.execute(f"drop database {database}")
    return moments[1:] if name in OURS else moments  # our first is the seed, an empty batch


def _csv_files(setup: Setup, records: int) -> list[Path]:
    """Write the same rows as one CSV file a connection."""
    files = [setup.folder / f"rows-{part}.csv" for part in range(PARTITIONS)]
    for part, file in enumerate(files):
        with file.open("w", newline="") as out:
            writer = csv.writer(out)
            for number in range(part, records, PARTITIONS):
                writer.writerow((
                    number, f"customer-{number % 9973:06d}-of-the-benchmark", f"{number % 100000}.{number % 100:02d}",
                    f"2026-01-02T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
                ))  # fmt: skip
    return files


def _copy_rate(setup: Setup, files: list[Path], records: int) -> float:
    database = setup.database()
    psql, dsn = str(setup.postgres.psql()), setup.postgres.dsn(database)
    started = time.monotonic()
    running = [
        subprocess.Popen([psql, dsn, "-q", "-c", f"\\copy orders from '{file}' with (format csv)"]) for file in files
    ]
    assert [process.wait() for process in running] == [0] * len(files), "psql has copied every file"
    seconds = time.monotonic() - started
    assert setup.count(database) == records
    setup.postgres.execute(f"drop database {database}")
    return records / seconds
