"""A real stream for a test: its topic, table, resource and loop, and an oracle that counts unique ids."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import psycopg2
from confluent_kafka import Producer

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.cli.local_stream import LocalStream, open_stream
from exactlyonce.cli.run import start_over
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted, PassResult, StreamLoop, Waiting, Watching
from exactlyonce_spark.crash_points import VARIABLE
from testbed.kafka import Kafka
from testbed.postgres import Reachable
from tests.warm.launcher import WarmLauncher, pool_log

PATIENCE_SECONDS = 180.0
SHARED_MACHINE = 4
"""How much longer is waited than a machine of one's own needs: a wait that ends well costs nothing, and beside twenty busy
processes on two cores a driver took eight times as long to start as alone."""

# A test's driver lives for seconds: compiling less is what makes it start sooner.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


class TookTooLong(AssertionError):
    """What a test waited for did not come."""


@dataclass
class Rig:
    """One stream over real servers. `events` holds what the loop reported, as (reason, sentence)."""

    kafka: Kafka
    postgres: Reachable
    folder: Path
    name: str
    overrides: dict[str, Any] = field(default_factory=dict)
    partitions: int = 4
    events: list[tuple[str, str]] = field(default_factory=list)
    produced: list[int] = field(default_factory=list)
    user: str = "postgres"
    password: str | None = None
    cold: bool = False
    """Whether each driver has a JVM of its own, as in production; else it may get one that was used before (tests/warm)."""

    def __post_init__(self) -> None:
        self.kafka.create_topic(self.name, self.partitions)
        self.postgres.create_database(self.name)
        self.sql("create table orders (id bigint, customer text, amount numeric(12,2), ts timestamptz)")
        self.write_secret()

    @property
    def secrets(self) -> Path:
        """The folder of secrets."""
        return self.folder / "secrets"

    @property
    def location(self) -> Path:
        """The checkpoint location."""
        return self.folder / "checkpoint"

    def write_secret(self, **changes: str) -> None:
        """Write the secret of the sink, with changes."""
        keys = {
            "host": self.postgres.host,
            "port": str(self.postgres.port),
            "dbname": self.name,
            "user": self.user,
            "password": self.postgres.password if self.password is None else self.password,
            **changes,
        }
        self.write_login("warehouse", keys)

    def write_login(self, secret: str, keys: Mapping[str, str]) -> None:
        """Write the keys of a secret that the resource names."""
        home = self.secrets / secret
        home.mkdir(parents=True, exist_ok=True)
        for key, value in keys.items():
            (home / key).write_text(value)

    def document(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the resource with `overrides` and then `changes`: values by paths with dots, such as `spec.delivery`."""
        document: dict[str, Any] = {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": self.name, "namespace": "tests", "annotations": {}},
            "spec": {
                "source": {
                    "kafka": {"bootstrapServers": self.kafka.bootstrap_servers, "topics": [self.name]},
                    "format": {"schema": "id BIGINT, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP"},
                },
                "sink": {"postgres": {"secretRef": {"name": "warehouse"}, "table": "public.orders"}},
                "checkpoint": {"local": {"path": str(self.location)}},
                "recovery": {"backoff": {"initial": "0s", "max": "1s"}, "maxFailuresPerBatch": 5},
                "sparkConf": {"spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "2"},
                "driver": {"cores": 2, "memory": "700Mi"},
            },
        }
        for path, value in {**self.overrides, **(changes or {})}.items():
            _set(document, path.split("."), value)
        return document

    def stream(self, changes: Mapping[str, Any] | None = None) -> Stream:
        """Return the parsed resource."""
        return parse_stream(self.document(changes), "the test")

    def open(self, changes: Mapping[str, Any] | None = None, *, state: str = "state") -> LocalStream:
        """Put the stream together."""
        opened = open_stream(self.stream(changes), self.folder / state, self.secrets)
        return opened if self.cold else replace(opened, launcher=WarmLauncher.of(opened.launcher))

    def loop(self, opened: LocalStream) -> StreamLoop:
        """Return a loop that reports into `events`."""
        return opened.loop(lambda kind, words: self.events.append((kind, words)))

    def verdicts(self) -> list[str]:
        """Return the kinds of verdict so far, in order."""
        kinds = {
            "FirstStart", "Resume", "ReplayBatch", "ReplanBatch", "SkipLanded", "FinishBatch", "FinishCommit",
            "RebuildFromSink", "RewindToSink", "SourceTruncated", "SourceReplaced", "Contradiction",
        }  # fmt: skip
        return [kind for kind, _ in self.events if kind in kinds]

    def produce(self, count: int, *, partition: int | None = None, **fields: Any) -> list[int]:
        """Produce `count` orders with new ids, spread over the partitions, and return the ids."""
        first = len(self.produced)
        ids = list(range(first, first + count))
        self.send(
            [(number % self.partitions if partition is None else partition, _order(number, fields)) for number in ids]
        )
        self.produced += ids
        return ids

    def send(self, records: Sequence[tuple[int, bytes | None]], key: bytes | None = None) -> None:
        """Produce raw values to partitions and wait until the broker has them."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 5})
        for partition, value in records:
            producer.produce(self.name, value, key=key, partition=partition)
            producer.poll(0)
        assert producer.flush(30) == 0, "the broker took every record"

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser in the stream's database."""
        connection = psycopg2.connect(self.postgres.dsn(self.name))
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, parameters or None)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def counts(self, table: str = "orders") -> Counter[int]:
        """Return how often each id is in the table."""
        return Counter(dict(self.sql(f"select id, count(*) from {table} group by id")))

    def assert_exactly_once(self, *, without: Sequence[int] = ()) -> None:
        """Every id that was produced is in the table once, and no other."""
        expected = Counter(set(self.produced) - set(without))
        found = self.counts()
        lost = sorted((expected - found).elements())
        doubled = sorted((found - expected).elements())
        assert (lost[:20], doubled[:20]) == ([], []), f"{len(lost)} lost, {len(doubled)} doubled\n{self.story()}"

    def run(
        self,
        until: Callable[[], bool] | None = None,
        *,
        crash: str | None = None,
        environment: Mapping[str, str] | None = None,
        opened: LocalStream | None = None,
        seconds: float = PATIENCE_SECONDS,
        changes: Mapping[str, Any] | None = None,
    ) -> PassResult:
        """Run the loop until `until()`, then drain; without it, until the stream is done or halts.

        `crash` is one or more `POINT[@BATCH]=ACTION` for the drivers; each fires once.
        """
        if until is None:
            changes = {"spec.trigger": {"availableNow": True}, **(changes or {})}
        opened = opened or self.open(changes)
        opened.launcher.environment = {**(environment or {}), **self.crash_environment(crash)}
        loop = self.loop(opened)
        start_over(opened)
        seconds *= SHARED_MACHINE
        deadline = time.monotonic() + seconds
        try:
            while (result := self._pass(opened, loop, until)) is None:
                if time.monotonic() > deadline:
                    self._give_up(opened, f"the loop did not come to its end within {seconds:.0f} s")
        except BaseException:
            self.kill_all(opened)
            raise
        return result

    def _pass(self, opened: LocalStream, loop: StreamLoop, until: Callable[[], bool] | None) -> PassResult | None:
        """Run one pass and wait as it says; None while there is more to do."""
        result = loop.run_pass()
        match result:
            case Watching(attempt=attempt):
                if until is not None and until():
                    return self._drain(opened, loop, attempt)
                opened.launcher.wait(attempt, 0.1)
            case Waiting(until=moment):
                seconds = (moment - datetime.now(UTC)).total_seconds()
                threading.Event().wait(min(max(seconds, 0.0), 2.0))
            case Halted() | Done():
                return result
        return None

    def _give_up(self, opened: LocalStream, what: str) -> NoReturn:
        attempt = Epoch(opened.statuses.read()[0].attempt)
        raise TookTooLong(f"{what}\n{self.story()}\n{self.log_tail(opened, attempt)}")

    def kill_all(self, opened: LocalStream) -> None:
        """Kill every driver that was ever started."""
        for attempt in range(1, opened.statuses.read()[0].attempt + 1):
            opened.launcher.kill(Epoch(attempt))

    def log_tail(self, opened: LocalStream, attempt: Epoch) -> str:
        """Return the end of a driver's log."""
        log = opened.launcher.log_of(attempt)
        told = log.read_text(errors="replace")[-4000:] if log.exists() else "(no log)"
        return told if self.cold else f"{told}\n{pool_log()}"

    def story(self) -> str:
        """Return the latest events, shortened."""
        return "\n".join(f"{kind}: {words[:300]}" for kind, words in self.events[-12:])

    def landed(self) -> int:
        """Return how many rows are in the table."""
        return int(self.sql("select count(*) from orders")[0][0])

    def landed_batch(self) -> int:
        """Return the latest landed batch; -1 before the first."""
        if self.sql("select to_regclass('exactlyonce.streams')")[0][0] is None:
            return -1
        rows = self.sql("select coalesce(landed_batch, -1) from exactlyonce.streams")
        return int(rows[0][0]) if rows else -1

    def has_all(self) -> bool:
        """Whether every id produced is in the table."""
        return self.landed() >= len(self.produced)

    def generations(self) -> list[Path]:
        """Return the generation folders, oldest first."""
        return sorted(self.location.glob("generation-*"))

    def _drain(self, opened: LocalStream, loop: StreamLoop, attempt: Epoch) -> PassResult:
        opened.launcher.drain(attempt)
        deadline = time.monotonic() + 60 * SHARED_MACHINE
        while isinstance(result := loop.run_pass(), Watching):
            opened.launcher.wait(attempt, 0.2)
            if time.monotonic() > deadline:
                self._give_up(opened, "the driver did not drain")
        return result

    def crash_environment(self, crash: str | None) -> dict[str, str]:
        if crash is None:
            return {}
        words = []
        for place, word in enumerate(crash.split()):
            fired = self.folder / f"fired-{place}-{word.replace('=', '-')}"
            words.append(f"{word},{fired}")
        return {VARIABLE: " ".join(words)}


@contextmanager
def running(rig: Rig, opened: LocalStream, **options: Any) -> Iterator[threading.Event]:
    """Run the loop in a thread while the block acts on it; the event given ends the loop with a drain."""
    finish = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            rig.run(finish.is_set, opened=opened, **options)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield finish
    finally:
        finish.set()
        thread.join(PATIENCE_SECONDS)
        rig.kill_all(opened)
    if problems:
        raise problems[0]


def eventually(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait for a condition of the outside world that no event announces; `seconds` are those of a machine of one's own."""
    pause, between = threading.Event(), 0.05
    seconds *= SHARED_MACHINE
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TookTooLong(f"it did not come to be within {seconds:.0f} s: {what}")
        pause.wait(between)
        between = min(between * 1.1, 0.25)  # a condition may cost a process or a session each time it is looked at


def freeze(opened: LocalStream, attempt: int) -> None:
    """Stop every process of a driver, as a lost node or a long pause does."""
    opened.launcher.kill(Epoch(attempt), signal.SIGSTOP)


def thaw(opened: LocalStream, attempt: int) -> None:
    """Let a driver that has stopped, or is about to, continue."""
    eventually(lambda: opened.launcher.is_stopped(Epoch(attempt)), "the driver has stopped")
    opened.launcher.kill(Epoch(attempt), signal.SIGCONT)


def _order(number: int, fields: Mapping[str, Any]) -> bytes:
    order = {
        "id": number,
        "customer": f"customer-{number % 97}",
        "amount": f"{number % 1000}.{number % 100:02d}",
        "ts": "2026-01-02T03:04:05.678Z",
        **fields,
    }
    return json.dumps({key: value(number) if callable(value) else value for key, value in order.items()}).encode()


def _set(document: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        document = document.setdefault(part, {})
    document[path[-1]] = value
