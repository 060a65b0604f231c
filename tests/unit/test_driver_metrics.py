"""What a driver tells of its batches: seconds by part, records, rows and retries, as Prometheus' own parser reads them."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exactlyonce_spark import crash_points, loads_told, metrics
from exactlyonce_spark.load_outcome import NotCommitted
from exactlyonce_spark.metrics import DriverMetrics, MetricsServer
from exactlyonce_spark.two_phase_finish import LoadsInDoubt
from tests.two_phase_stream import Watch, World, decided_and_dead


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def values(text: str) -> dict[tuple[str, str], float]:
    """Every sample but the buckets, by its name and part."""
    return {
        (sample.name, sample.labels.get("part", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def batch(counted: DriverMetrics, clock: Clock, *points: tuple[str, float]) -> None:
    """A batch that passes points, each so many seconds after the one before."""
    counted.begun()
    for point, seconds in points:
        clock.at += seconds
        counted.reached(point)


SMALL = (
    ("batch.planned", 0.25), ("batch.begun", 0.25), ("batch.rows-written", 4.0), ("batch.source-checked", 1.0),
    ("land.fenced", 0.5), ("land.rows-moved", 2.0), ("land.positions-advanced", 0.125), ("land.before-commit", 0.125),
    ("batch.landed", 0.25),
)  # fmt: skip


@pytest.fixture
def served() -> Iterator[MetricsServer]:
    server = MetricsServer(DriverMetrics(), "127.0.0.1", 0)
    yield server
    server.shutdown()
    server.server_close()


def test_the_time_of_a_batch_is_divided_into_its_parts_without_a_rest() -> None:
    clock = Clock()
    counted = DriverMetrics(clock)
    batch(counted, clock, *SMALL)
    counted.landed(4000, 3990)
    found = values(counted.text())
    parts = {part: found["exactlyonce_driver_batch_seconds_sum", part] for part in ("plan", "read", "write", "commit")}
    assert parts == {"plan": 0.5, "read": 5.0, "write": 2.5, "commit": 0.5}
    assert sum(parts.values()) == sum(seconds for _, seconds in SMALL)
    assert found["exactlyonce_driver_batches_total", ""] == 1
    assert found["exactlyonce_driver_records_total", ""] == 4000
    assert found["exactlyonce_driver_rows_total", ""] == 3990
    assert found["exactlyonce_driver_landing_retries_total", ""] == 0


def test_a_batch_that_has_not_landed_counts_nothing() -> None:
    clock = Clock()
    counted = DriverMetrics(clock)
    before = counted.text()
    batch(counted, clock, *SMALL[:4])
    assert counted.text() == before
    batch(counted, clock, *SMALL)
    counted.landed(10, 10)
    assert values(counted.text())["exactlyonce_driver_batch_seconds_sum", "read"] == 5.0


def test_each_load_that_the_sink_has_answered_for_is_counted_before_the_first_batch_too() -> None:
    counted = DriverMetrics(Clock())
    for point in ("finish.read", "commit.answered", "commit.answered", "finish.landed"):
        counted.reached(point)
    assert values(counted.text())["exactlyonce_driver_loads_total", ""] == 2


def by_state(counted: DriverMetrics) -> dict[str, float]:
    return {
        sample.labels["state"]: sample.value
        for family in text_string_to_metric_families(counted.text())
        for sample in family.samples
        if sample.name == "exactlyonce_driver_newest_loads"
    }


@pytest.fixture
def told() -> Iterator[DriverMetrics]:
    counted = DriverMetrics(Clock())
    loads_told.watch(counted)
    yield counted
    loads_told.watch(None)


def test_the_states_of_the_latest_loads_are_those_that_the_sink_has_told(told: DriverMetrics, passed: Watch) -> None:
    """Two loads of the first batch; the sink aborts the second one, whose rows are then made again."""
    world, seen = World(), []
    nothing = dict.fromkeys(("prepared", "committed", "aborted", "unknown"), 0.0)
    assert by_state(told) == nothing

    def note(point: str) -> None:
        if point == "commit.answered":
            world.store.abort_by_itself(lambda: True)
        if point in ("batch.decided", "commit.answered"):
            seen.append(by_state(told))

    passed(note)
    with pytest.raises(NotCommitted):
        world.land()
    assert seen == [{**nothing, "prepared": 2}, {**nothing, "prepared": 1, "committed": 1}]
    assert by_state(told) == {**nothing, "committed": 1, "aborted": 1}
    passed(lambda point: None)
    world.next_driver()
    assert by_state(told) == {**nothing, "committed": 1}, "of the rows that were made again; the other load is settled"


def test_a_load_that_the_sink_has_forgotten_is_told_as_unknown(told: DriverMetrics, passed: Watch) -> None:
    world = World()
    decided_and_dead(world, passed)
    world.store.forget()
    with pytest.raises(LoadsInDoubt):
        world.next_driver()
    assert by_state(told)["unknown"] == 2


def test_loads_are_counted_by_what_remembers_their_labels_whatever_a_stream_calls_it() -> None:
    counted = DriverMetrics(Clock())
    counted.loads_into = 'a"b\\\n} at fe:8030'
    counted.reached("commit.answered")
    (sample,) = (
        sample
        for family in text_string_to_metric_families(counted.text())
        for sample in family.samples
        if sample.name == "exactlyonce_driver_loads_total"
    )
    assert (sample.labels, sample.value) == ({"into": 'a"b\\ } at fe:8030'}, 1)


def test_a_landing_that_is_run_again_is_a_retry_and_that_of_the_next_batch_is_none() -> None:
    clock = Clock()
    counted = DriverMetrics(clock)
    batch(counted, clock, *SMALL[:8], *SMALL[4:])
    counted.landed(10, None)
    name = "exactlyonce_driver_landing_retries_total"
    assert values(counted.text())[name, ""] == 1
    batch(counted, clock, *SMALL)
    counted.landed(10, 10)
    assert values(counted.text())[name, ""] == 1


def test_a_histogram_is_cumulative_and_its_last_bucket_is_its_count() -> None:
    clock = Clock()
    counted = DriverMetrics(clock)
    for seconds in (0.003, 0.2, 1000.0):
        batch(counted, clock, ("batch.begun", seconds), ("batch.landed", 0.0))
        counted.landed(1, 1)
    (family,) = [it for it in text_string_to_metric_families(counted.text()) if it.type == "histogram"]
    buckets = [it for it in family.samples if it.name.endswith("_bucket") and it.labels["part"] == "plan"]
    assert [it.value for it in buckets] == sorted(it.value for it in buckets)
    by_edge = {it.labels["le"]: it.value for it in buckets}
    assert (by_edge["0.005"], by_edge["0.25"], by_edge["300.0"], by_edge["+Inf"]) == (1, 2, 2, 3)


def test_every_part_is_there_before_the_first_batch_and_every_series_is_on_the_page_of_metrics() -> None:
    found = {name for name, _ in values(DriverMetrics().text())}
    for series in metrics.ALL:
        assert {name for name in found if name.startswith(series.name)}, series.name


def test_the_points_are_ones_that_batches_pass() -> None:
    assert metrics.PARTS.keys() <= set(crash_points.POINTS)


def test_who_watches_is_told_of_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_points, "_watcher", None)
    passed: list[str] = []
    crash_points.watch(passed.append)
    crash_points.reached("batch.begun", 3)
    assert passed == ["batch.begun"]


def test_the_page_is_served_and_any_other_is_not(served: MetricsServer) -> None:
    address = f"http://127.0.0.1:{served.server_address[1]}"
    with urllib.request.urlopen(f"{address}/metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "exactlyonce_driver_rows_total 0\n" in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/", timeout=20)


def test_a_port_that_is_taken_costs_the_metrics_and_not_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert metrics.serve(DriverMetrics(), "127.0.0.1", port) is None
    assert f"The driver's metrics are not served at 127.0.0.1:{port}" in caplog.text
