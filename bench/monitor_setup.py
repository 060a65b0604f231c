"""What the monitor is measured on: one Kafka and one Postgres with many streams, and the process that measures them."""

from __future__ import annotations

import signal
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg2.extensions
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from bench.figures import Figure
from bench.monitor_process import NAMESPACE, stream_name
from bench.operator_setup import core_seconds
from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.ledger import DEFAULT_SCHEMA, PostgresLedger
from testbed import processes
from testbed.kafka import Kafka
from testbed.postgres import Postgres

INTERVAL_SECONDS = 30.0
RECORDS = 8
"""Records per partition."""

_DATABASE = "warehouse"
_BATCHES = 20
"""Batches of each stream in the ledger before it is measured."""
_TOPICS_AT_ONCE = 100
_MEGABYTE = 1e6
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Interval:
    """What one interval takes, in core-seconds, and what the process holds when it has measured."""

    round: float
    scrape: float
    rest: float
    kafka: float
    postgres: float
    megabytes: float
    threads: int
    connections: int

    @property
    def share(self) -> float:
        """The share of a core, in hundredths."""
        return (self.round + self.scrape + self.rest) / INTERVAL_SECONDS * 100

    def parts(self, name: str) -> list[Figure]:
        """Return what it is made of, and what the servers take beside it."""
        return [
            Figure(f"  of a round, {name}", self.round, "core-s"),
            Figure(f"  of a scrape, {name}", self.scrape, "core-s"),
            Figure(f"  of the rest, {name}", self.rest, "core-s"),
            Figure(f"  beside it Kafka a round, {name}", self.kafka, "core-s"),
            Figure(f"  beside it Postgres a round, {name}", self.postgres, "core-s"),
            Figure(f"threads, {name}", self.threads, ""),
            Figure(f"connections, {name}", self.connections, ""),
        ]


@dataclass(frozen=True)
class Setup:
    """The servers with their streams, each of `partitions` partitions; `rounds` are measured after two that are not."""

    folder: Path
    kafka: Kafka
    postgres: Postgres
    streams: int
    partitions: int
    rounds: int
    rest_seconds: float

    def prepare(self) -> None:
        """Make topics with records, and a ledger in which all of them have landed."""
        names = [stream_name(number) for number in range(self.streams)]
        admin = self.kafka.admin()
        for first in range(0, len(names), _TOPICS_AT_ONCE):
            topics = [NewTopic(name, self.partitions, 1) for name in names[first : first + _TOPICS_AT_ONCE]]
            for future in admin.create_topics(topics, request_timeout=_PATIENCE_SECONDS).values():
                future.result(_PATIENCE_SECONDS)
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 500})
        for name in names:
            for number in range(self.partitions * RECORDS):
                producer.produce(name, bytes(200), partition=number % self.partitions)
            producer.poll(0)
        assert producer.flush(_PATIENCE_SECONDS) == 0
        dsn = self.postgres.create_database(_DATABASE)
        ledger = PostgresLedger(PostgresAddress(psycopg2.extensions.parse_dsn(dsn), "the benchmark"))
        ledger.prepare()
        ledger.close()
        self._fill_ledger(names)

    def land_until(self, offset: int) -> None:
        """Have one more batch of every stream land, at that offset of each partition; it need not be a later one."""
        statement = f"update {DEFAULT_SCHEMA}.streams set landed_batch = landed_batch + 1 returning landed_batch"
        batch = self.postgres.execute(statement, _DATABASE)[0][0]
        assert isinstance(batch, int)
        self._land(batch)
        self.postgres.execute(f"update {DEFAULT_SCHEMA}.offsets set next_offset = %s", _DATABASE, (offset,))

    @contextmanager
    def process(self, way: str) -> Iterator[Measured]:
        """Run the process that measures, until the block ends."""
        port, log = processes.free_port(), self.folder / f"monitor-{way}.log"
        options = {
            "way": way,
            "port": port,
            "brokers": self.kafka.bootstrap_servers,
            "dsn": self.postgres.dsn(_DATABASE),
        }
        command = [sys.executable, "-m", "bench.monitor_process", *(f"--{key}={it}" for key, it in options.items())]
        process = processes.start(command, log)
        try:
            processes.wait_until_ready(
                process, lambda: processes.port_answers(port), "The monitor", log, _PATIENCE_SECONDS
            )
            yield Measured(self, psutil.Process(process.pid), port)
        finally:
            processes.stop(process, signal.SIGKILL)

    def _fill_ledger(self, names: list[str]) -> None:
        self.postgres.execute(
            f"insert into {DEFAULT_SCHEMA}.streams (stream_id, token, owner_cluster, owner_uid, system_identifier, "
            "database_oid, epoch, ticket, landed_batch) "
            f"select '{NAMESPACE}/' || name, 't', 'c', 'u', 's', 1, 1, 't', %s from unnest(%s) as name",
            _DATABASE,
            (_BATCHES - 1, names),
        )
        self.postgres.execute(
            f"insert into {DEFAULT_SCHEMA}.offsets (stream_id, topic, partition, next_offset) "
            f"select '{NAMESPACE}/' || name, name, part, %s from unnest(%s) as name, generate_series(0, %s) as part",
            _DATABASE,
            (RECORDS, names, self.partitions - 1),
        )
        for batch in range(_BATCHES):
            self._land(batch)
        self.postgres.execute("analyze", _DATABASE)

    def _land(self, batch: int) -> None:
        self.postgres.execute(
            f"insert into {DEFAULT_SCHEMA}.batches (stream_id, batch, epoch, status, ranges, records_read, rows_written, "
            "dead_letters, landed_at) "
            f"select stream_id, %s, 1, 'Landed', '{{}}', 1, 1, 0, now() from {DEFAULT_SCHEMA}.streams",
            _DATABASE,
            (batch,),
        )


@dataclass(frozen=True)
class Measured:
    """A process that measures streams when it is told to."""

    setup: Setup
    process: psutil.Process
    port: int

    @property
    def megabytes(self) -> float:
        """The memory of the process."""
        return float(self.process.memory_info().rss / _MEGABYTE)

    def interval(self, streams: int, waiting: Callable[[int], int] = lambda number: 0) -> Interval:
        """Return what an interval takes; `waiting` sets the scene of a round and tells how many records of a partition wait."""
        found = [self._round(streams, waiting(number)) for number in range(self.setup.rounds + 2)][2:]
        rounds, scrapes, kafka, postgres = (statistics.median(values) for values in zip(*found, strict=True))
        before = core_seconds(self.process)
        time.sleep(self.setup.rest_seconds)
        rest = (core_seconds(self.process) - before) / self.setup.rest_seconds * INTERVAL_SECONDS
        connections = [it for it in self.process.net_connections("tcp") if it.status == psutil.CONN_ESTABLISHED]
        threads = self.process.num_threads()
        return Interval(rounds, scrapes, rest, kafka, postgres, self.megabytes, threads, len(connections))

    def _round(self, streams: int, waiting: int) -> tuple[float, float, float, float]:
        """Measure and scrape, and see that it was done; return what both took, and what Kafka and Postgres took."""
        before = self._core_seconds()
        self._page(f"round/{streams}")
        between = self._core_seconds()
        text = self._page("metrics")
        scrape = core_seconds(self.process) - between[0]
        self._check(text, streams, waiting)
        own, kafka, postgres = (now - then for now, then in zip(between, before, strict=True))
        return own, scrape, kafka, postgres

    def _core_seconds(self) -> tuple[float, float, float]:
        kafka, postgres = psutil.Process(self.setup.kafka.pid), psutil.Process(self.setup.postgres.pid)
        return core_seconds(self.process), core_seconds(kafka), core_seconds(postgres, family=True)

    def _page(self, name: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{name}", timeout=_PATIENCE_SECONDS) as answer:
            return str(answer.read().decode())

    def _check(self, text: str, streams: int, waiting: int) -> None:
        """Every stream was asked for, its lag is what it is and has an age: else the round did not do its work."""
        found = dict.fromkeys(("source_up", "ledger_up", "lag_records", "oldest_not_landed_timestamp_seconds"), 0.0)
        for family in text_string_to_metric_families(text):
            name = family.name.removeprefix("exactlyonce_stream_")
            if name in found:
                is_age = name == "oldest_not_landed_timestamp_seconds"
                found[name] = sum(1 if is_age else sample.value for sample in family.samples)
        wanted = [streams, streams, streams * self.setup.partitions * waiting, streams if waiting else 0]
        assert list(found.values()) == wanted, f"{found} where {wanted} is so; a store was too slow: run it again"
