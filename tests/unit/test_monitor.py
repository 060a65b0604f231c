"""The monitor without servers: what is shared, what waits for whom, which series there are, and what a status shows."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from exactlyonce.api.resource import parse_stream
from exactlyonce.api.status import Phase
from exactlyonce.control import metrics
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.errors import LedgerUnreachable, SourceUnreachable
from exactlyonce.monitor import labelled_series, series
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.ledger_sizes import LedgerSizes
from exactlyonce.monitor.metric import Kind
from exactlyonce.monitor.monitor import Clients, Monitor
from exactlyonce.monitor.replays import ReplaysView
from exactlyonce.monitor.targets import Life, StreamKey
from tests.resource_documents import document
from tests.unit.monitored_stores import (
    NOON,
    ORDERS,
    ZERO,
    Brokers,
    Clock,
    Database,
    fleet,
    measured,
    series_of,
    target,
)


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


def test_what_failed_is_held_and_was_replayed_is_told_for_each_stream() -> None:
    told = {
        "open_ranges": 2, "failed_records": 3, "quarantined_ranges": 4, "quarantined_records": 5, "replayed_ranges": 6,
        "replayed_records": 7, "quarantined_since": 8.0, "letters_held": 9,
    }  # fmt: skip
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}, more=told), "orders")
    recovery: dict[str, Any] = {"spec.recovery": {"onPoisonBatch": "Bisect", "maxQuarantined": 10}}
    monitor.watch(target(**recovery))
    asyncio.run(monitor.round())
    found = series_of(monitor)
    named = {
        "failed_ranges": 2, "failed_records": 3, "quarantined_ranges": 4, "quarantined_records": 5, "replayed_ranges": 6,
        "replayed_records": 7, "quarantined_since_timestamp_seconds": 8, "dead_letters_held": 9,
        "quarantine_limit_records": 10,
    }  # fmt: skip
    for name, value in named.items():
        assert found[f"exactlyonce_stream_{name}"] == {"shop/orders": value}, name
    monitor.watch(target())
    asyncio.run(monitor.round())
    assert "exactlyonce_stream_quarantine_limit_records" not in series_of(monitor), "it quarantines nothing"


def test_the_replays_of_a_stream_are_series_until_the_last_one_has_ended() -> None:
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}), "orders")
    monitor.noted_replays(ORDERS, ReplaysView(2, 1, {"asked": 30, "replayed": 12}, 77.0, "mend"))
    found = series_of(monitor)
    assert found["exactlyonce_stream_replays"] == {"shop/orders/Pending": 2, "shop/orders/Running": 1}
    assert found["exactlyonce_stream_replay_records"] == {"shop/orders/asked": 30, "shop/orders/replayed": 12}
    assert found["exactlyonce_stream_replay_progressed_timestamp_seconds"] == {"shop/orders/mend": 77}
    monitor.noted_replays(ORDERS, None)
    assert not [name for name in series_of(monitor) if "replay_" in name or name.endswith("_replays")]


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
    assert not [name for name in series_of(monitor, partitions=False) if name.startswith("exactlyonce_partition")]


def test_partitions_are_counted_by_state() -> None:
    monitor = fleet(Brokers({"orders": 9}), Database({"shop/orders": 4}), "orders")
    asyncio.run(monitor.round())
    states = {
        key.rsplit("/", 1)[1]: value for key, value in series_of(monitor)["exactlyonce_stream_partitions"].items()
    }
    assert states == {"behind": 1.0, "caught_up": 0.0, "ended": 0.0, "unknown": 0.0}


def test_a_stream_that_cannot_be_measured_still_has_a_phase() -> None:
    monitor = fleet(Brokers({}), Database({}))
    monitor.noted(ORDERS, Life(Phase.HALTED, 3, 2, 5, refused_rows=4))
    found = series_of(monitor)
    assert found["exactlyonce_stream_phase"] == {"shop/orders/Halted": 1.0}
    assert (found["exactlyonce_halted_streams"], found["exactlyonce_stream_batch_failures"]) == (
        {"": 1.0},
        {"shop/orders": 5.0},
    )
    assert found["exactlyonce_stream_refused_rows"] == {"shop/orders": 4.0}


def test_a_stream_that_moves_to_another_broker_keeps_what_was_known_until_that_one_answers() -> None:
    brokers = Brokers({"orders": 9})
    monitor = fleet(brokers, Database({"shop/orders": 4}), "orders")
    asyncio.run(monitor.round())
    monitor.watch(target("orders", brokers="other:9092"))
    known = monitor.snapshot(ORDERS)
    assert known is not None
    assert known.partitions[ZERO].lag_records == 5


def test_every_name_has_its_unit_and_no_two_are_the_same() -> None:
    listed = [*series.OF_FLEET, *labelled_series.OF_PARTITIONS, *metrics.ALL]
    names = [it.name for it in listed]
    assert len(set(names)) == len(names)
    for it in listed:
        assert it.name.startswith("exactlyonce_")
        assert it.name.endswith("_total") == (it.kind is Kind.COUNTER)
        if it.kind is Kind.HISTOGRAM:
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
    told = {it.name for it in (*series.OF_FLEET, *labelled_series.OF_PARTITIONS, *metrics.ALL)}
    assert {name for name in exported if not name.endswith("_created")} == told
