"""What it costs to authenticate and encrypt Spark's own network: core-seconds and seconds, against doing neither.

    make bench-network

Two executors in processes of their own (Spark's local-cluster) run a stateful query whose every record crosses a shuffle, and a
batch that is nothing but a shuffle of wide rows: the worst that a stream can ask of the network. Loopback is faster than any
network, so what is measured is the work of encryption, and no waiting hides it. Each way is run in turns, the medians compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from pyspark.sql.streaming.query import StreamingQuery

_REPEATS = int(os.environ.get("REPEATS", "3"))
_RECORDS = int(os.environ.get("RECORDS", "200000"))
_WIDE_ROWS = int(os.environ.get("WIDE_ROWS", "300000"))
_WARM_UP, _BATCHES = 2, 6
_TIMEOUT_SECONDS = 600

_CRYPTO = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
}
WAYS = {
    "off": {},
    "AES/GCM": {**_CRYPTO, "spark.network.crypto.cipher": "AES/GCM/NoPadding"},
    "AES/CTR": {**_CRYPTO, "spark.network.crypto.cipher": "AES/CTR/NoPadding"},
    "AES/GCM and spill files": {
        **_CRYPTO,
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.io.encryption.enabled": "true",
    },
}


def _job(settings: dict[str, str]) -> dict[str, float]:
    """Run both jobs once in this process and its executors; return the seconds of each."""
    import pyspark
    from pyspark.sql import SparkSession

    installed = Path(pyspark.__file__).parent
    home = Path(tempfile.mkdtemp(prefix="spark-home-"))  # executors leave their folders below it
    for part in installed.iterdir():
        (home / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings:
        settings = {**settings, "spark.authenticate.secret": secrets.token_hex(32)}
    builder = SparkSession.builder.master("local-cluster[2,1,700]").appName("network")
    fixed = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    for key, value in {**fixed, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as scratch:
        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", _RECORDS).load()
        counts = rows.selectExpr("value % 50000 as key", "repeat(cast(value as string), 8) as text")
        counts = counts.groupBy("key").agg({"text": "max"})
        writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", scratch)
        query = writer.start()
        _await(query, _WARM_UP)
        used, first = _core_seconds(), len(query.recentProgress)
        _await(query, first + _BATCHES)
        used, done = _core_seconds() - used, query.recentProgress[first:]
        query.stop()
        stateful = statistics.median(entry["durationMs"]["addBatch"] / 1000 for entry in done)
        stateful_cores = used / len(done)
    wide = session.range(_WIDE_ROWS).selectExpr("id", "sha2(cast(id as string), 512) || uuid() as text")
    wide.repartition(4).write.format("noop").mode("overwrite").save()
    started, used = time.monotonic(), _core_seconds()
    for _ in range(3):
        wide.repartition(4).write.format("noop").mode("overwrite").save()
    seconds, used = time.monotonic() - started, _core_seconds() - used
    session.stop()
    shutil.rmtree(home, ignore_errors=True)
    return {
        "a stateful batch": stateful,
        "its core-seconds": stateful_cores,
        "a shuffle": seconds / 3,
        "core-seconds of a shuffle": used / 3,
    }


def _await(query: StreamingQuery, batches: int) -> None:
    while len(query.recentProgress) < batches and query.isActive:
        time.sleep(0.1)


def _core_seconds() -> float:
    """Return what the processes below this one have used: the driver's JVM, the executors and their Python."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _run(way: str) -> dict[str, float]:
    """Run one way in a process of its own, whose JVM has no settings of another one."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.network", "--way", way],
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure every way in turns and print the medians, and their ratio to none of it."""
    if sys.argv[1:2] == ["--way"]:
        print(json.dumps(_job(WAYS[sys.argv[2]])))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for turn in range(1, _REPEATS + 1):
        for way, runs in found.items():
            runs.append(_run(way))
            print(f"  {turn}/{_REPEATS} {way}: {runs[-1]}", file=sys.stderr, flush=True)
    for what in found["off"][0]:
        off = statistics.median(run[what] for run in found["off"])
        for way, runs in found.items():
            value = statistics.median(run[what] for run in runs)
            print(f"{what:26} {way:24} {value:8.2f} s {value / off:6.2f} x")


if __name__ == "__main__":
    main()
