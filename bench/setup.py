"""What the benchmarks run on: a broker, a database, a topic full of orders, and processes that take them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
from confluent_kafka import Producer

from testbed import processes
from testbed.kafka import Kafka
from testbed.postgres import Postgres

SCHEMA = "id BIGINT, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP"
TABLE = "create table orders (id bigint, customer text, amount numeric(12,2), ts timestamptz)"
PARTITIONS = 4
PATIENCE_SECONDS = 900


@dataclass
class Setup:
    """The servers of a benchmark and a folder for what it leaves."""

    folder: Path
    kafka: Kafka
    postgres: Postgres
    _made: int = 0

    def fresh(self, name: str) -> Path:
        """Return a new folder."""
        self._made += 1
        folder = self.folder / f"{name}-{self._made}"
        folder.mkdir()
        return folder

    def fill(self, topic: str, records: int) -> None:
        """Create a topic and produce orders of about 136 bytes into its partitions."""
        self.kafka.create_topic(topic, PARTITIONS)
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 50, "batch.size": 1 << 20,
                             "queue.buffering.max.messages": 2_000_000, "log_level": 2})  # fmt: skip
        for number in range(records):
            producer.produce(topic, order(number), partition=number % PARTITIONS)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0, "the broker took every record"

    def database(self) -> str:
        """Create a database with an empty table of orders and return its name."""
        self._made += 1
        name = f"bench{self._made}"
        self.postgres.create_database(name)
        self.postgres.execute(TABLE, name)
        return name

    def count(self, database: str) -> int:
        """Return how many rows have landed."""
        return int(str(self.postgres.execute("select count(*) from orders", database)[0][0]))

    def first_row(self, database: str, beyond: int, deadline_seconds: float = 120) -> float:
        """Wait until the table has more than `beyond` rows and return the moment (time.monotonic)."""
        connection = psycopg2.connect(self.postgres.dsn(database))
        connection.autocommit = True
        deadline = time.monotonic() + deadline_seconds
        try:
            with connection.cursor() as cursor:
                while time.monotonic() < deadline:
                    cursor.execute("select count(*) from (select from orders limit %s) as found", (beyond + 1,))
                    if cursor.fetchone() == (beyond + 1,):
                        return time.monotonic()
                    time.sleep(0.01)
        finally:
            connection.close()
        raise AssertionError(f"no row landed in {deadline_seconds:.0f} s")

    def stream_file(self, folder: Path, topic: str, database: str, batch: int, **spec: Any) -> Path:
        """Write a stream's file and its secret below `folder` and return the file."""
        secret = folder / "secrets" / "warehouse"
        secret.mkdir(parents=True)
        keys = {"host": "127.0.0.1", "port": self.postgres.port, "dbname": database, "user": "postgres"}
        for key, value in {**keys, "password": self.postgres.password}.items():
            (secret / key).write_text(str(value))
        commit = spec.pop("commit", "Batch")
        document = {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": database, "namespace": "bench"},
            "spec": {
                "source": {
                    "kafka": {
                        "bootstrapServers": self.kafka.bootstrap_servers,
                        "topics": [topic],
                        "maxOffsetsPerTrigger": batch,
                    },
                    "format": {"schema": SCHEMA},
                },
                "sink": {"postgres": {"secretRef": {"name": "warehouse"}, "table": "public.orders", "commit": commit}},
                "checkpoint": {"local": {"path": str(folder / "checkpoint")}},
                "driver": {"cores": 2, "memory": "2Gi"},
                **spec,
            },
        }
        file = folder / "stream.yaml"
        file.write_text(json.dumps(document))
        return file

    def run_stream(self, folder: Path, file: Path) -> subprocess.Popen[bytes]:
        """Start `exactlyonce run`."""
        command = [sys.executable, "-m", "exactlyonce.cli.main", "run", str(file), "-o", "json"]
        command += ["--state", str(folder / "state"), "--secrets", str(folder / "secrets")]
        return processes.start(command, folder / "run.log", environment=dict(os.environ))

    def url(self, database: str) -> str:
        """Return what JDBC is told of a database."""
        return f"jdbc:postgresql://127.0.0.1:{self.postgres.port}/{database}?user=postgres&password={self.postgres.password}"

    def run_bare(
        self, folder: Path, sink: str, topic: str, database: str, batch: int, *, continuous: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a job of `bench.bare_job`."""
        url = self.url(database)
        command = [sys.executable, "-m", "bench.bare_job", sink, "--brokers", self.kafka.bootstrap_servers]
        command += ["--topic", topic, "--schema", SCHEMA, "--checkpoint", str(folder / "checkpoint" / "bare")]
        command += ["--batch", str(batch), "--url", url, "--path", str(folder / "out")]
        command += ["--continuous"] if continuous else []
        return processes.start(command, folder / "run.log", environment=dict(os.environ))


def order(number: int) -> bytes:
    """Return one record of about 136 bytes."""
    fields: Mapping[str, object] = {
        "id": number,
        "customer": f"customer-{number % 9973:06d}-of-the-benchmark",
        "amount": f"{number % 100000}.{number % 100:02d}",
        "ts": f"2026-01-02T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
    }
    return json.dumps(fields).encode()


def finish(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait for a process that ends by itself; its log tells why it failed."""
    if process.wait(PATIENCE_SECONDS):
        raise AssertionError(f"it failed: {(folder / 'run.log').read_text(errors='replace')[-3000:]}")


def batch_moments(folder: Path) -> list[float]:
    """Return when each batch was committed, from the files of Spark's commit log, seeds left out.

    The same clock for every contender: the modification times that the file system keeps.
    """
    commits = [file for file in folder.glob("checkpoint/*/commits/*") if file.name.isdigit()]
    moments = {int(file.name): file.stat().st_mtime_ns / 1e9 for file in commits}
    return [moments[number] for number in sorted(moments)]
