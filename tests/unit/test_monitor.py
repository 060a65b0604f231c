"""The monitor without servers: what is shared, what waits for whom, which series there are, and what a status shows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.status import DriverStatus, Phase, Progress, StreamStatus, VerdictStatus
from exactlyonce.assembly import ledger_address, source_address
from exactlyonce.connectors.specs import Origins, SourceSpec
from exactlyonce.control import metrics
from exactlyonce.control.metrics import OperatorMetrics, store_of
from exactlyonce.control.observer import Observer, progress_with_lag
from exactlyonce.control.transitions import Happened, happened_between
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import LedgerUnreachable, SourceUnreachable
from exactlyonce.ledger.connector import Landed, TableSize
from exactlyonce.ledger.fence import EpochOvertaken
from exactlyonce.monitor import series
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.ledger_sizes import LedgerSizes
from exactlyonce.monitor.monitor import Clients, Monitor
from exactlyonce.monitor.snapshot import Snapshot, after_source_problem
from exactlyonce.monitor.targets import Life, StreamKey, Target, target_of
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.reconcile.progress import RateLimit
from exactlyonce.schema.model import SecretRef
from exactlyonce.source.connector import Answer
from exactlyonce.source.port import Bounds
from tests.resource_documents import document

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORDERS = StreamKey("shop", "orders")
ZERO = Partition("orders", 0)
LABELS = ("namespace", "stream", "topic", "partition", "phase", "database", "schema", "table")


@dataclass
class Brokers:
    """A Kafka in memory, which counts what it is asked."""

    latest: dict[str, int]
    timestamp: float = NOON.timestamp() - 60
    asked: list[str] = field(default_factory=list)
    problem: Exception | None = None
    closed: bool = False

    def origins(self, specs: Collection[SourceSpec]) -> Origins:
        self.asked.append("topics")
        if self.problem is not None:
            raise self.problem
        return dict.fromkeys(self.latest, range(1))

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        self.asked.append("bounds") if partitions else None
        return Answer({key: Bounds(0, self.latest[key.origin]) for key in partitions}, {})

    def timestamps(
        self, positions: Mapping[Partition, int], *, committed_only: bool
    ) -> Mapping[Partition, float | None]:
        self.asked.append(f"{len(positions)} records")
        return dict.fromkeys(positions, self.timestamp)

    def close(self) -> None:
        self.closed = True


@dataclass
class Database:
    """A ledger in memory."""

    landed_at: dict[str, int]
    asked: int = 0
    problem: Exception | None = None
    held: threading.Event | None = None
    closed: bool = False
    asked_sizes: list[str] = field(default_factory=list)
    sizes_problem: Exception | None = None

    def landed(self, schema: str, since: Mapping[str, BatchNumber | None]) -> Mapping[str, Landed]:
        self.asked += 1
        if self.held is not None:
            assert self.held.wait(60)
        if self.problem is not None:
            raise self.problem
        number = BatchNumber(4)
        return {
            stream: Landed(number, NOON.timestamp(), number, {Partition(stream.split("/")[1], 0): at})
            for stream, at in self.landed_at.items()
            if stream in since
        }

    @property
    def name(self) -> str:
        return "db:5432/warehouse"

    def sizes(self, schema: str) -> tuple[TableSize, ...]:
        self.asked_sizes.append(schema)
        if self.sizes_problem is not None:
            raise self.sizes_problem
        return (TableSize("batches", 8192 * len(self.asked_sizes), 4096),)

    def close(self) -> None:
        self.closed = True


@dataclass
class Clock:
    """Time that the test lets pass."""

    seconds: float = 1000

    def now(self) -> float:
        return self.seconds


def measured(stream: Stream, secret: dict[str, str]) -> Target:
    """Where a stream is measured, with this login for its ledger."""
    login = {"warehouse": secret}

    def secrets(reference: SecretRef | None) -> dict[str, str]:
        return {} if reference is None else login[reference.name]

    return target_of(stream, source_address(stream.spec.source, secrets), ledger_address(stream.spec, secrets))


def target(name: str = "orders", brokers: str = "kafka:9092", database: str = "warehouse", **changes: Any) -> Target:
    """A stream that reads the topic of its name."""
    spec = {"spec.source.kafka": {"bootstrapServers": brokers, "topics": [name]}, **changes}
    stream = parse_stream(document({"metadata.name": name, "metadata.namespace": "shop", **spec}), "the resource")
    secret = {"host": "db", "dbname": database, "user": "u", "password": "hidden"}
    return measured(stream, secret)


def fleet(
    brokers: Brokers, database: Database, *streams: str, told: Callable[[str], None] = lambda store: None
) -> Monitor:
    """A monitor of streams that share one Kafka and one database."""
    monitor = Monitor(Clients(lambda key: brokers, lambda key: database), on_problem=told)
    for name in streams:
        monitor.watch(target(name))
    return monitor


def series_of(monitor: Monitor, *, leads: bool = True, partitions: bool = True) -> dict[str, dict[str, float]]:
    """What a scrape gets: the value of each series by its labels."""
    registry = CollectorRegistry()
    registry.register(StreamCollector(monitor, lambda: leads, NOON.timestamp, partitions))
    text = generate_latest(registry).decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [sample.labels[name] for name in LABELS if name in sample.labels]
            found.setdefault(sample.name, {})["/".join(labels)] = sample.value
    return found


def test_a_thousand_streams_of_one_store_are_asked_about_in_one_question() -> None:
    names = [f"orders-{number}" for number in range(1000)]
    brokers = Brokers(dict.fromkeys(names, 9))
    database = Database({f"shop/{name}": 4 for name in names})
    monitor = fleet(brokers, database, *names)
    asyncio.run(monitor.round())
    assert (database.asked, brokers.asked) == (1, ["topics", "bounds", "1000 records"])
    asyncio.run(monitor.round())
    assert brokers.asked[3:] == ["topics", "bounds"], "nothing has moved, so no record is fetched"
    found = series_of(monitor)["exactlyonce_stream_lag_records"]
    assert len(found) == 1000
    assert set(found.values()) == {5.0}


def test_streams_with_other_credentials_have_another_client() -> None:
    made: list[object] = []
    monitor = Monitor(Clients(lambda key: made.append(key) or Brokers({"a": 1, "b": 1}), lambda key: Database({})))  # type: ignore[func-returns-value] # a list that notes
    monitor.watch(target("a"))
    monitor.watch(target("b", brokers="other:9092"))
    asyncio.run(monitor.round())
    assert len(made) == 2
    assert "hidden" not in repr(target().ledger), "the text of a target shows no password"
    assert "hidden" not in repr(target())


def test_a_client_that_no_stream_needs_any_more_is_closed() -> None:
    brokers, database = Brokers({"orders": 9}), Database({"shop/orders": 4})
    monitor = fleet(brokers, database, "orders")

    async def play() -> None:
        await monitor.round()
        monitor.forget(ORDERS)
        running = asyncio.create_task(monitor.run(0.01, lambda: True))
        while not (brokers.closed and database.closed):
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_store_that_hangs_delays_its_own_streams_only() -> None:
    held = threading.Event()
    slow, quick = Database({"shop/a": 1}, held=held), Database({"shop/b": 1})
    brokers = Brokers({"a": 9, "b": 9})
    databases = {"slow": slow, "quick": quick}
    monitor = Monitor(Clients(lambda key: brokers, lambda key: databases[dict(key.parameters)["dbname"]]))
    monitor.watch(target("a", database="slow"))
    monitor.watch(target("b", brokers="other:9092", database="quick"))

    async def play() -> None:
        running = asyncio.create_task(monitor.run(0.02, lambda: True))
        while (
            quick.asked < 5 or (known := monitor.snapshot(StreamKey("shop", "b"))) is None or known.measured_at is None
        ):
            await asyncio.sleep(0.01)
        assert slow.asked == 1, "it is not asked again while it is being asked"
        held.set()
        while slow.asked < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_stores_that_do_not_answer_never_take_all_threads() -> None:
    held = threading.Event()
    silent = {f"silent-{number}": Database({}, problem=LedgerUnreachable("no answer")) for number in range(8)}
    quick = Database({"shop/orders": 1})
    monitor = Monitor(
        Clients(lambda key: Brokers({}), lambda key: {**silent, "quick": quick}[dict(key.parameters)["dbname"]])
    )
    for name in silent:
        monitor.watch(target(name, database=name))
    monitor.watch(target("orders", database="quick"))

    async def play() -> None:
        await monitor.round()
        for database in silent.values():
            database.held = held
        before = quick.asked
        running = asyncio.create_task(monitor.run(0.02, lambda: True))
        while quick.asked < before + 3:
            await asyncio.sleep(0.01)
        held.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_source_that_does_not_answer_is_a_series_and_no_lag_of_zero() -> None:
    told: list[str] = []
    brokers, database = Brokers({"orders": 4}), Database({"shop/orders": 4})
    monitor = fleet(brokers, database, "orders", told=told.append)
    asyncio.run(monitor.round())
    assert series_of(monitor)["exactlyonce_stream_lag_records"] == {"shop/orders": 0.0}
    brokers.problem = SourceUnreachable("Kafka does not answer.")
    asyncio.run(monitor.round())
    found = series_of(monitor)
    assert found["exactlyonce_stream_source_up"] == {"shop/orders": 0.0}
    assert found["exactlyonce_stream_ledger_up"] == {"shop/orders": 1.0}
    assert "exactlyonce_stream_lag_records" not in found
    assert told == ["source"]


def test_what_waits_grows_older_while_both_stores_are_silent() -> None:
    brokers, database = Brokers({"orders": 9}), Database({"shop/orders": 4})
    monitor = fleet(brokers, database, "orders")
    asyncio.run(monitor.round())
    before = series_of(monitor)
    brokers.problem = database.problem = SourceUnreachable("nothing answers")
    asyncio.run(monitor.round())
    after = series_of(monitor)
    for name in ("oldest_not_landed_timestamp_seconds", "lag_records"):
        assert after[f"exactlyonce_stream_{name}"] == before[f"exactlyonce_stream_{name}"]
    assert after["exactlyonce_stream_oldest_not_landed_timestamp_seconds"] == {"shop/orders": NOON.timestamp() - 60}


def test_a_topic_that_is_missing_is_a_source_that_is_not_up() -> None:
    monitor = fleet(Brokers({"returns": 3}), Database({"shop/orders": 4, "shop/returns": 1}), "orders", "returns")
    asyncio.run(monitor.round())
    found = series_of(monitor)
    assert found["exactlyonce_stream_source_up"] == {"shop/orders": 0.0, "shop/returns": 1.0}
    assert found["exactlyonce_stream_lag_records"] == {"shop/returns": 2.0}


def test_a_defect_in_a_client_is_told_and_does_not_end_the_monitor() -> None:
    brokers = Brokers({"orders": 9}, problem=RuntimeError("a defect"))
    monitor = fleet(brokers, Database({"shop/orders": 4}), "orders")
    asyncio.run(monitor.round())
    assert series_of(monitor)["exactlyonce_stream_source_up"] == {"shop/orders": 0.0}


def test_series_of_a_stream_go_when_it_goes() -> None:
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}), "orders")
    monitor.noted(ORDERS, Life(Phase.RUNNING, 3, 0, 0))
    asyncio.run(monitor.round())
    assert "shop/orders" in series_of(monitor)["exactlyonce_stream_lag_records"]
    monitor.forget(ORDERS)
    assert series_of(monitor) == {"exactlyonce_halted_streams": {"": 0.0}}


def test_the_size_of_a_ledger_is_asked_once_a_minute_for_all_of_its_streams_and_goes_with_the_last_of_them() -> None:
    database, clock = Database({"shop/orders": 4, "shop/refunds": 4}), Clock()
    monitor = fleet(Brokers({"orders": 9, "refunds": 9}), database, "orders", "refunds")
    monitor.ledgers = LedgerSizes(clock.now)
    for seconds in (0, 59, 1, 59, 1):
        clock.seconds += seconds
        asyncio.run(monitor.round())
    assert database.asked_sizes == ["exactlyonce"] * 3
    found = series_of(monitor)
    assert found["exactlyonce_ledger_table_bytes"] == {"db:5432/warehouse/exactlyonce/batches": 3 * 8192}
    assert found["exactlyonce_ledger_index_bytes"] == {"db:5432/warehouse/exactlyonce/batches": 4096}
    monitor.forget(StreamKey("shop", "orders"))
    assert "exactlyonce_ledger_table_bytes" in series_of(monitor)
    monitor.forget(StreamKey("shop", "refunds"))
    assert "exactlyonce_ledger_table_bytes" not in series_of(monitor)


def test_a_ledger_whose_size_cannot_be_asked_is_measured_all_the_same_and_keeps_the_size_that_was_known() -> None:
    database, clock = Database({"shop/orders": 4}), Clock()
    monitor = fleet(Brokers({"orders": 9}), database, "orders")
    monitor.ledgers = LedgerSizes(clock.now)
    asyncio.run(monitor.round())
    database.sizes_problem = LedgerUnreachable("a table is locked")
    clock.seconds += 60
    asyncio.run(monitor.round())
    found = series_of(monitor)
    assert found["exactlyonce_ledger_table_bytes"] == {"db:5432/warehouse/exactlyonce/batches": 8192}
    assert found["exactlyonce_stream_ledger_up"] == {"shop/orders": 1}


def test_one_ledger_that_is_asked_with_two_logins_has_one_series() -> None:
    database = Database({"shop/orders": 4})
    monitor = fleet(Brokers({"orders": 9}), database)
    for number, user in enumerate(("u", "other")):
        secret = {"host": "db", "dbname": "warehouse", "user": user, "password": "hidden"}
        stream = parse_stream(document({"metadata.name": f"orders-{number}"}), "the resource")
        monitor.watch(measured(stream, secret))
    asyncio.run(monitor.round())
    assert list(series_of(monitor)["exactlyonce_ledger_table_bytes"]) == ["db:5432/warehouse/exactlyonce/batches"]


def test_only_the_operator_that_leads_exports_streams() -> None:
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}), "orders")
    asyncio.run(monitor.round())
    assert series_of(monitor, leads=False) == {}


def test_series_of_partitions_can_be_switched_off() -> None:
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}), "orders")
    asyncio.run(monitor.round())
    assert series_of(monitor)["exactlyonce_partition_landed_offset"] == {"shop/orders/orders/0": 4.0}
    assert not [name for name in series_of(monitor, partitions=False) if "partition" in name]


def test_a_stream_that_cannot_be_measured_still_has_a_phase() -> None:
    monitor = fleet(Brokers({}), Database({}))
    monitor.noted(ORDERS, Life(Phase.HALTED, 3, 2, 5))
    found = series_of(monitor)
    assert found["exactlyonce_stream_phase"] == {"shop/orders/Halted": 1.0}
    assert (found["exactlyonce_halted_streams"], found["exactlyonce_stream_batch_failures"]) == (
        {"": 1.0},
        {"shop/orders": 5.0},
    )


def test_a_stream_that_moves_to_another_broker_keeps_what_was_known_until_that_one_answers() -> None:
    brokers = Brokers({"orders": 9})
    monitor = fleet(brokers, Database({"shop/orders": 4}), "orders")
    asyncio.run(monitor.round())
    monitor.watch(target("orders", brokers="other:9092"))
    known = monitor.snapshot(ORDERS)
    assert known is not None
    assert known.partitions[ZERO].lag_records == 5


def test_every_name_has_its_unit_and_no_two_are_the_same() -> None:
    listed = [*series.OF_FLEET, *series.OF_PARTITIONS, *metrics.ALL]
    names = [it.name for it in listed]
    assert len(set(names)) == len(names)
    for it in listed:
        assert it.name.startswith("exactlyonce_")
        assert it.name.endswith("_total") == (it.kind is series.Kind.COUNTER)
        if it.kind is series.Kind.HISTOGRAM:
            assert it.name.endswith("_seconds")
        assert it.says.endswith(".")


def test_every_series_that_is_told_is_exported_by_that_name() -> None:
    """The page of metrics is made from the list; this is the list against a scrape."""
    registry = CollectorRegistry()
    measured = OperatorMetrics(registry, NOON.timestamp)
    measured.measure(lambda: 0.0, lambda: True, "shop/operator")
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}), "orders")
    registry.register(StreamCollector(monitor, lambda: True, NOON.timestamp))
    exported = {
        line.split()[2] for line in generate_latest(registry).decode().splitlines() if line.startswith("# TYPE")
    }
    told = {it.name for it in (*series.OF_FLEET, *series.OF_PARTITIONS, *metrics.ALL)}
    assert {name for name in exported if not name.endswith("_created")} == told


def status(attempt: int = 1, **changes: Any) -> StreamStatus:
    return StreamStatus(attempt=attempt, **changes)


def verdict(attempt: int, at: datetime = NOON) -> VerdictStatus:
    return VerdictStatus(kind="Resume", reason="all agree", attempt=attempt, at=at)


@pytest.mark.parametrize(
    ("before", "after", "happened"),
    [
        (status(1), status(2), Happened(attempt=2)),
        (status(2), status(2, verdict=verdict(2)), Happened(verdict="Resume")),
        (status(2, verdict=verdict(2)), status(2, verdict=verdict(2), message="more"), Happened()),
        (
            status(2, verdict=verdict(2)),
            status(2, verdict=verdict(2, NOON + timedelta(seconds=9))),
            Happened(verdict="Resume"),
        ),
        (
            status(2, driver=DriverStatus(attempt=2)),
            status(2, driver=DriverStatus(attempt=2, ended="OutOfMemory")),
            Happened(ending="OutOfMemory"),
        ),
        (
            status(2, driver=DriverStatus(attempt=2, ended="Lost")),
            status(2, driver=DriverStatus(attempt=2, ended="Lost"), message="more"),
            Happened(),
        ),
        (status(2, phase=Phase.RUNNING), status(2, phase=Phase.HALTED, message="why"), Happened(halt="Refused")),
        (status(2, phase=Phase.LAUNCHING), status(2, phase=Phase.RUNNING), Happened(runs=True)),
        (
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=4)),
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=5, committed_at=NOON)),
            Happened(first_batch_at=NOON),
        ),
        (
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=5)),
            status(2, driver=DriverStatus(attempt=2, landed_at_start=4), progress=Progress(batch=6, committed_at=NOON)),
            Happened(),
        ),
    ],
)
def test_each_write_of_a_status_is_counted_for_what_it_says(
    before: StreamStatus, after: StreamStatus, happened: Happened
) -> None:
    assert happened_between(before, after) == happened


def values(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


def test_the_seconds_of_a_drivers_start_count_from_the_attempt_and_once() -> None:
    registry, now = CollectorRegistry(), [1000.0]
    counted = OperatorMetrics(registry, lambda: now[0])
    counted.happened(ORDERS, Happened(attempt=3), status(3))
    now[0] = 1002.0
    counted.pod_created(ORDERS, 3)
    counted.pod_created(ORDERS, 3)
    counted.pod_created(ORDERS, 2)
    now[0] = 1012.0
    counted.happened(ORDERS, Happened(runs=True), status(3))
    counted.happened(ORDERS, Happened(first_batch_at=datetime.fromtimestamp(1020, UTC)), status(3))
    sums = {
        until: (
            values(registry, "exactlyonce_driver_start_seconds_sum", until=until),
            values(registry, "exactlyonce_driver_start_seconds_count", until=until),
        )
        for until in ("pod_created", "running", "first_batch")
    }
    assert sums == {"pod_created": (2.0, 1.0), "running": (12.0, 1.0), "first_batch": (20.0, 1.0)}


def test_each_error_is_counted_at_its_store() -> None:
    registry = CollectorRegistry()
    counted = OperatorMetrics(registry)
    for problem in (SourceUnreachable("…"), LedgerUnreachable("…"), LedgerUnreachable("…"), ValueError("no store's")):
        counted.troubled(problem)
    counted.troubled(EpochOvertaken("…"))
    assert values(registry, "exactlyonce_store_errors_total", store="source") == 1
    assert values(registry, "exactlyonce_store_errors_total", store="ledger") == 2
    assert values(registry, "exactlyonce_fence_refusals_total", whose="pass") == 1
    assert store_of(ValueError()) is None


def test_a_driver_that_was_fenced_is_a_refusal_of_the_fence() -> None:
    registry = CollectorRegistry()
    OperatorMetrics(registry).happened(ORDERS, Happened(ending="Fenced"), status(3))
    assert values(registry, "exactlyonce_fence_refusals_total", whose="driver") == 1


def snapshot_of(brokers: Brokers, database: Database) -> Snapshot:
    monitor = fleet(brokers, database, "orders")
    asyncio.run(monitor.round())
    found = monitor.snapshot(ORDERS)
    assert found is not None
    return found


def test_a_status_shows_what_was_measured() -> None:
    found = snapshot_of(Brokers({"orders": 9}), Database({"shop/orders": 4}))
    shown = progress_with_lag(Progress(batch=4), found, NOON)
    assert (shown.batch, shown.lag_records, shown.lag_seconds, shown.lag_problem) == (4, 5, 60, None)
    assert shown.oldest_record_at == NOON - timedelta(seconds=60)
    caught_up = progress_with_lag(shown, snapshot_of(Brokers({"orders": 4}), Database({"shop/orders": 4})), NOON)
    assert (caught_up.lag_records, caught_up.lag_seconds, caught_up.oldest_record_at) == (0, 0, None)


def test_a_status_says_why_the_lag_is_not_known_and_keeps_what_another_operator_measured() -> None:
    before = Progress(batch=4, lag_records=5, lag_seconds=60, oldest_record_at=NOON)
    silent = after_source_problem(Snapshot(remembered_timestamp=NOON.timestamp()), "Kafka does not answer.")
    shown = progress_with_lag(before, silent, NOON + timedelta(hours=1))
    assert shown == before.model_copy(update={"lag_problem": "Kafka does not answer."})


def test_a_status_is_not_written_for_an_age_that_is_nearly_the_same() -> None:
    found = snapshot_of(Brokers({"orders": 9}), Database({"shop/orders": 4}))
    shown = progress_with_lag(None, found, NOON)
    assert progress_with_lag(shown, found, NOON + timedelta(seconds=5)) == shown
    assert progress_with_lag(shown, found, NOON + timedelta(seconds=30)).lag_seconds == 90


def test_a_status_gets_another_lag_at_most_every_ten_seconds() -> None:
    brokers, database, now = Brokers({"orders": 9}), Database({"shop/orders": 4}), [0.0]
    monitor = fleet(brokers, database, "orders")
    observer = Observer(monitor, OperatorMetrics(CollectorRegistry()), lambda: NOON, RateLimit(lambda: now[0]))
    key = Key(*ORDERS)
    assert observer.with_lag(key, status()) == status(), "nothing was measured yet"
    asyncio.run(monitor.round())
    first = observer.with_lag(key, status())
    assert first.progress is not None
    assert first.progress.lag_records == 5
    assert observer.with_lag(key, first) is first, "nothing has changed"
    brokers.latest["orders"] = 30
    asyncio.run(monitor.round())
    assert observer.with_lag(key, first) is first, "it is too early"
    now[0] = 10.0
    second = observer.with_lag(key, first)
    assert second.progress is not None
    assert second.progress.lag_records == 26


@pytest.mark.parametrize("order", [("seen", "watch"), ("watch", "seen")])
def test_an_operator_that_takes_over_goes_on_with_the_age_that_the_status_shows(order: tuple[str, str]) -> None:
    brokers = Brokers({"orders": 9}, problem=SourceUnreachable("Kafka does not answer."))
    monitor = fleet(brokers, Database({"shop/orders": 4}))
    observer = Observer(monitor, OperatorMetrics(CollectorRegistry()))
    left = status(progress=Progress(oldest_record_at=NOON - timedelta(hours=2)))
    for step in order:
        observer.seen(Key(*ORDERS), left, has_driver=False) if step == "seen" else observer.watch(target("orders"))
    asyncio.run(monitor.round())
    found = series_of(monitor)["exactlyonce_stream_oldest_not_landed_timestamp_seconds"]
    assert found == {"shop/orders": (NOON - timedelta(hours=2)).timestamp()}
