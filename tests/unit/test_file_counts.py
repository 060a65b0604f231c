"""Files that wait, as the monitor has them counted: when, how often, what is shown, and that no stream waits for another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from exactlyonce.api.conditions import conditions_of
from exactlyonce.api.resource import parse_stream
from exactlyonce.api.status import Phase, Progress, StreamStatus
from exactlyonce.assembly import ledger_address, source_address
from exactlyonce.cli.stream_view import _cells, _lag
from exactlyonce.connectors.files.source_bounds import FolderFleet
from exactlyonce.control.observer import progress_with_lag
from exactlyonce.errors import Refused, StoreUnreachable
from exactlyonce.monitor.file_counts import INTERVAL_SECONDS
from exactlyonce.monitor.monitor import Clients, Monitor
from exactlyonce.monitor.targets import StreamKey, Target, life_of, target_of
from exactlyonce.positions.ranges import Partition
from exactlyonce.schema.model import SecretRef
from exactlyonce.source.counted_files import FilesNotLanded
from tests.resource_documents import GONE, document
from tests.unit.event_loops import until
from tests.unit.monitored_stores import NOON, Database, series_of, status
from tests.unit.moved_clock import Clock

ORDERS = StreamKey("shop", "orders")
FILES, BYTES = "exactlyonce_stream_not_landed_files", "exactlyonce_stream_not_landed_bytes"
OLDEST = "exactlyonce_stream_oldest_not_landed_timestamp_seconds"
WAITING = FilesNotLanded(3, 500, NOON.timestamp() - 60)


@dataclass
class Counter:
    """Counts a folder in memory, and notes for which positions it was asked."""

    place: str = "Amazon S3 bucket shop"
    found: FilesNotLanded | Exception = WAITING
    clock: Clock | None = None
    takes_seconds: float = 0.0
    held: threading.Event | None = None
    asked: list[Mapping[Partition, int]] = field(default_factory=list)

    def count(self, landed: Mapping[Partition, int]) -> FilesNotLanded:
        self.asked.append(dict(landed))
        if self.clock is not None:
            self.clock.now += self.takes_seconds
        if self.held is not None:
            assert self.held.wait(60)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database() -> Database:
    return Database({"shop/orders": 4})


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def monitor(clock: Clock, database: Database, told: list[str]) -> Monitor:
    monitor = Monitor(Clients(lambda key: FolderFleet(), lambda key: database), on_problem=told.append)
    monitor.files.clock = clock
    return monitor


def target(name: str) -> Target:
    """A stream that reads a folder, and has landed its one partition as the database in memory calls it."""
    folder = {"path": f"s3a://shop/{name}", "secretRef": {"name": "lake"}}
    changes = {"metadata.name": name, "spec.source.kafka": GONE, "spec.source.files": folder}
    stream = parse_stream(document(changes), "the resource")
    login = {"host": "db", "dbname": "warehouse", "user": "u", "password": "hidden"}

    def secrets(reference: SecretRef | None) -> dict[str, str]:
        return login if reference is not None and reference.name == "warehouse" else {}

    return target_of(stream, source_address(stream.spec.source, secrets), ledger_address(stream.spec, secrets))


def watch(monitor: Monitor, counter: Counter, name: str = "orders", phase: Phase = Phase.HALTED) -> None:
    monitor.watch(target(name), None, counter)
    monitor.noted(StreamKey("shop", name), life_of(status(phase=phase)))


def rounds(monitor: Monitor, count: int = 1) -> None:
    """Each count comes after the ledger has answered, which the first round asks."""
    for _ in range(count):
        asyncio.run(monitor.round())


def shown(monitor: Monitor) -> Progress:
    snapshot = monitor.snapshot(ORDERS)
    assert snapshot is not None
    return progress_with_lag(None, snapshot, NOON)


@pytest.mark.parametrize("phase", [Phase.HALTED, Phase.SUSPENDED, Phase.BACKING_OFF, Phase.PENDING, Phase.COMPLETED])
def test_what_waits_is_told_while_no_driver_runs(monitor: Monitor, phase: Phase) -> None:
    counter = Counter()
    watch(monitor, counter, phase=phase)
    rounds(monitor, 2)
    found = series_of(monitor)
    assert (found[FILES], found[BYTES]) == ({"shop/orders": 3.0}, {"shop/orders": 500.0})
    assert found[OLDEST] == {"shop/orders": NOON.timestamp() - 60}
    assert counter.asked == [{Partition("orders", 0): 4}]
    progress = shown(monitor)
    assert (progress.lag_files, progress.lag_bytes, progress.lag_seconds, progress.lag_problem) == (3, 500, 60, None)


@pytest.mark.parametrize("phase", [Phase.LAUNCHING, Phase.RUNNING, Phase.DRAINING])
def test_while_a_driver_may_run_the_folder_is_not_counted_and_what_was_is_not_told(
    monitor: Monitor, clock: Clock, phase: Phase
) -> None:
    counter = Counter()
    watch(monitor, counter)
    rounds(monitor, 2)
    assert FILES in series_of(monitor)
    watch(monitor, counter, phase=phase)
    clock.now += 10 * INTERVAL_SECONDS
    rounds(monitor, 2)
    assert not {FILES, BYTES} & series_of(monitor).keys()
    assert shown(monitor).lag_files is None
    assert len(counter.asked) == 1


def test_what_was_counted_before_something_landed_is_not_told_any_more(
    monitor: Monitor, database: Database, clock: Clock
) -> None:
    counter = Counter()
    watch(monitor, counter)
    rounds(monitor, 2)
    database.landed_at["shop/orders"] = 5
    rounds(monitor)
    assert FILES not in series_of(monitor)
    clock.now += INTERVAL_SECONDS
    rounds(monitor)
    assert FILES in series_of(monitor)
    assert counter.asked[-1] == {Partition("orders", 0): 5}


def test_a_folder_is_counted_once_a_minute_and_one_that_took_long_less_often(monitor: Monitor, clock: Clock) -> None:
    counter = Counter(clock=clock, takes_seconds=10)
    watch(monitor, counter)
    rounds(monitor, 5)
    assert len(counter.asked) == 1
    clock.now += 199
    rounds(monitor)
    assert len(counter.asked) == 1
    clock.now += 1
    counter.takes_seconds = 0
    rounds(monitor)
    clock.now += INTERVAL_SECONDS
    rounds(monitor)
    assert len(counter.asked) == 3


def test_a_count_in_part_is_at_least_so_much_and_never_nothing(monitor: Monitor) -> None:
    watch(monitor, Counter(found=FilesNotLanded(7, None, None, "counting stopped.")))
    rounds(monitor, 2)
    found, progress = series_of(monitor), shown(monitor)
    assert (found[FILES], BYTES in found, OLDEST in found) == ({"shop/orders": 7.0}, False, False)
    assert (progress.lag_files, progress.lag_records) == (7, None)
    assert progress.lag_problem == "There may be more files: counting stopped."
    document = progress.model_dump(by_alias=True, mode="json")
    assert _lag(document, {}, NOON).startswith("at least 7 files\n")
    resource = {"metadata": {"namespace": "shop", "name": "orders"}, "status": {"progress": document}}
    assert _cells(resource, NOON)["LAG-RECORDS"] == "7 files?"
    conditions = conditions_of(StreamStatus(progress=progress), generation=1, now=datetime.now(UTC))
    (of_lag,) = [it for it in conditions if it.type == "Measured"]
    assert (str(of_lag.status), of_lag.reason) == ("False", "MeasuredInPart")


def test_that_nothing_waits_is_a_lag_of_zero(monitor: Monitor) -> None:
    watch(monitor, Counter(found=FilesNotLanded(0, 0, None)))
    rounds(monitor, 2)
    progress = shown(monitor)
    assert (progress.lag_files, progress.lag_records, progress.lag_seconds) == (0, 0, 0)
    assert OLDEST not in series_of(monitor)
    assert _lag(progress.model_dump(by_alias=True, mode="json"), {}, NOON) == "0 files (0 bytes)"


@pytest.mark.parametrize(
    ("problem", "told_of"), [(Refused("The operator has no login."), []), (StoreUnreachable("No answer."), ["source"])]
)
def test_a_folder_that_cannot_be_counted_has_no_lag_and_the_status_says_why(
    monitor: Monitor, told: list[str], problem: Exception, told_of: list[str]
) -> None:
    watch(monitor, Counter(found=problem))
    rounds(monitor, 2)
    assert not {FILES, BYTES, OLDEST} & series_of(monitor).keys()
    progress = shown(monitor)
    assert (progress.lag_files, progress.lag_seconds, progress.lag_problem) == (None, None, str(problem))
    assert told == told_of


def test_nothing_is_counted_before_the_ledger_has_answered(monitor: Monitor, database: Database) -> None:
    counter = Counter()
    database.problem = StoreUnreachable("No answer.")
    watch(monitor, counter)
    rounds(monitor, 3)
    assert counter.asked == []
    database.problem = None
    rounds(monitor, 2)
    assert len(counter.asked) == 1


def test_folders_that_hang_delay_no_round_and_leave_a_thread_to_those_that_are_quick(
    monitor: Monitor, database: Database, clock: Clock
) -> None:
    held = threading.Event()
    slow = {f"slow-{number}": Counter(f"bucket {number}", found=StoreUnreachable("No answer.")) for number in range(4)}
    quick = Counter("a quick bucket")
    for name, counter in slow.items():
        watch(monitor, counter, name)
    database.landed_at.update(dict.fromkeys((f"shop/{name}" for name in slow), 1))
    rounds(monitor, 2)  # each is known not to answer
    watch(monitor, quick)
    clock.now += INTERVAL_SECONDS

    async def play() -> None:
        for counter in slow.values():
            counter.held = held
        playing: list[asyncio.Task[None]] = []
        async with asyncio.timeout(60):
            while not quick.asked:  # in the first round the ledger may answer too late for it
                playing.append(asyncio.create_task(monitor.round()))
                await asyncio.sleep(0.01)
        asked = database.asked
        playing.append(asyncio.create_task(monitor.round()))
        await until(lambda: database.asked > asked)
        held.set()
        await asyncio.gather(*playing)

    asyncio.run(play())


def test_what_was_counted_of_another_folder_is_not_told_of_this_one(monitor: Monitor) -> None:
    watch(monitor, Counter())
    rounds(monitor, 2)
    another = replace(target("orders"), source=target("returns").source)
    monitor.watch(another, None, Counter())
    assert not {FILES, BYTES} & series_of(monitor).keys()


def test_a_stream_that_has_landed_and_that_the_ledger_does_not_know_is_not_told_that_every_file_waits(
    monitor: Monitor, database: Database
) -> None:
    database.landed_at.clear()
    counter = Counter()
    watch(monitor, counter)
    monitor.noted(ORDERS, life_of(status(phase=Phase.HALTED, progress=Progress(batch=3))))
    rounds(monitor, 2)
    assert "the ledger does not know the stream" in (shown(monitor).lag_problem or "")
    assert (shown(monitor).lag_files, counter.asked) == (None, [])


def test_an_error_that_nobody_expects_is_told_in_one_short_line(monitor: Monitor) -> None:
    watch(monitor, Counter(found=ValueError("x" * 100_000)))
    rounds(monitor, 2)
    assert len(shown(monitor).lag_problem or "") < 300


def test_its_series_go_with_the_stream(monitor: Monitor) -> None:
    watch(monitor, Counter())
    rounds(monitor, 2)
    monitor.forget(ORDERS)
    rounds(monitor)
    assert not {FILES, BYTES, OLDEST} & series_of(monitor).keys()
