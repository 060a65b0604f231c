"""Where a stream has landed is shown outside of its ledger: when a driver starts, runs and has ended. It stops no pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exactlyonce.api.status import Phase
from exactlyonce.errors import StoreBusy
from exactlyonce.launch.last_words import Ending
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile.loop import Done, Wanted, Watching
from exactlyonce.source.port import ShownStream
from tests.simulation.source import MemoryTopic
from tests.unit.passes import FIRST, KEYS, SECOND, Machine


class ShownTopic(MemoryTopic):
    """A topic whose landed positions are shown; `answer` is what showing them comes to."""

    shown: list[tuple[int, ...]]
    streams: list[ShownStream]
    answer: Callable[[], str | None]

    def show_landed(self, stream: ShownStream, landed: Positions) -> str | None:
        self.shown.append(tuple(landed.values()))
        self.streams.append(stream)
        return self.answer()


def reading(start: dict[str, str], table: str = "app") -> dict[str, Any]:
    """Return the spec of a stream that starts there and shows itself in a lease table."""
    kinesis = {"streamName": "orders", "region": "eu-central-1", "secretRef": {"name": "aws"}, "start": start}
    return {"source": {"kinesis": {**kinesis, "leaseTable": {"tableName": table}}, "format": {"schema": "id INT"}}}


@pytest.fixture
def machine() -> Machine:
    """A world whose first driver runs and has landed up to 40 and 30; its resource names a lease table."""
    made = Machine()
    made.topic = ShownTopic(dict.fromkeys(KEYS, 100))
    made.topic.shown, made.topic.streams, made.topic.answer = [], [], lambda: None
    made.spec = reading({})
    for _ in ("it is started", "it is seen to run"):
        assert made.run_pass() == Watching(FIRST)
    made.land(FIRST, 40, 30)
    made.reports.clear()
    return made


def shown(machine: Machine) -> list[tuple[int, ...]]:
    assert isinstance(machine.topic, ShownTopic)
    return machine.topic.shown


def test_it_is_shown_while_a_driver_runs_as_often_as_the_ledger_is_asked(machine: Machine) -> None:
    assert machine.run_pass() == Watching(FIRST)
    assert shown(machine) == [], "no look was due"
    machine.looks = True
    assert machine.run_pass() == Watching(FIRST)
    assert shown(machine) == [(40, 30)]


def test_it_is_shown_when_the_driver_has_ended_before_the_stream_is_at_rest(machine: Machine) -> None:
    machine.end(FIRST, Ending.DRAINED)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert shown(machine) == [(40, 30)]


def test_it_is_shown_before_the_next_driver_starts(machine: Machine) -> None:
    machine.end(FIRST)
    machine.run_pass()
    shown(machine).clear()
    assert machine.run_until_a_driver_runs() == SECOND
    assert shown(machine) == [(40, 30)]


def test_what_somebody_should_know_is_told(machine: Machine) -> None:
    machine.looks = True
    assert isinstance(machine.topic, ShownTopic)
    machine.topic.answer = lambda: "Two consumers: worker 'w' holds a lease."
    assert machine.run_pass() == Watching(FIRST)
    assert machine.reports == [("LandedNotShown", "Two consumers: worker 'w' holds a lease.")]


@pytest.mark.parametrize("problem", [StoreBusy("it does not answer"), ValueError("a mistake of ours")])
def test_nothing_that_fails_there_stops_a_pass(machine: Machine, problem: Exception) -> None:
    def fail() -> str | None:
        raise problem

    assert isinstance(machine.topic, ShownTopic)
    machine.topic.answer = fail
    machine.looks = True
    assert machine.run_pass() == Watching(FIRST)
    assert machine.statuses.status.phase is Phase.RUNNING
    machine.end(FIRST)
    machine.run_pass()
    assert machine.run_until_a_driver_runs() == SECOND


def test_a_failure_that_nobody_foresaw_is_told_in_one_short_line(machine: Machine) -> None:
    def fail() -> str | None:
        raise ValueError("what a server said\n" + 10_000 * "x")

    assert isinstance(machine.topic, ShownTopic)
    machine.topic.answer = fail
    machine.looks = True
    machine.run_pass()
    ((reason, told),) = machine.reports
    assert reason == "LandedNotShown"
    assert told.startswith("What has landed could not be shown (ValueError: what a server said x")
    assert len(told) < 300


def started_from(start: dict[str, str]) -> Machine:
    """Return a world whose first driver was just seen to run, of a stream with that start."""
    made = Machine()
    made.topic = ShownTopic(dict.fromkeys(KEYS, 100))
    made.topic.shown, made.topic.streams, made.topic.answer = [], [], lambda: None
    made.spec, made.looks = reading(start), True
    for _ in ("it is started", "it is seen to run"):
        assert made.run_pass() == Watching(FIRST)
    return made


def test_a_stream_that_has_started_from_a_lease_table_has_taken_it_over_and_no_other_one() -> None:
    machine = started_from({"from": "LeaseTable"})
    machine.run_pass()
    assert isinstance(machine.topic, ShownTopic)
    assert [stream.took_over for stream in machine.topic.streams] == [True, True]
    machine.spec = reading({"from": "LeaseTable"}, "app-of-somebody-else")
    machine.run_pass()
    assert not machine.topic.streams[-1].took_over


def test_a_stream_that_has_started_elsewhere_takes_nothing_over_whatever_its_resource_says_later() -> None:
    machine = started_from({"from": "TrimHorizon"})
    machine.spec = reading({"from": "LeaseTable"})
    machine.run_pass()
    assert isinstance(machine.topic, ShownTopic)
    assert [stream.took_over for stream in machine.topic.streams] == [False, False]


def test_a_stream_is_shown_by_its_id_its_database_and_its_life_and_never_by_its_token(machine: Machine) -> None:
    machine.looks = True
    machine.run_pass()
    assert isinstance(machine.topic, ShownTopic)
    (stream,) = machine.topic.streams
    row = machine.view().stream
    assert stream == ShownStream("shop/orders", str(row.database), row.life)
    assert row.token not in str(stream)
