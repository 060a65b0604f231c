"""Where a stream has landed is shown outside of its ledger: when a driver starts, runs and has ended. It stops no pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from exactlyonce.api.status import Phase
from exactlyonce.errors import StoreBusy
from exactlyonce.launch.last_words import Ending
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile.loop import Done, Wanted, Watching
from tests.simulation.source import MemoryTopic
from tests.unit.passes import FIRST, KEYS, SECOND, Machine


class ShownTopic(MemoryTopic):
    """A topic whose landed positions are shown; `answer` is what showing them comes to."""

    shown: list[tuple[int, ...]]
    answer: Callable[[], str | None]

    def show_landed(self, stream_id: str, landed: Positions) -> str | None:
        self.shown.append(tuple(landed.values()))
        return self.answer()


@pytest.fixture
def machine() -> Machine:
    """A world whose first driver runs and has landed up to 40 and 30; its resource names a lease table."""
    made = Machine()
    made.topic = ShownTopic(dict.fromkeys(KEYS, 100))
    made.topic.shown, made.topic.answer = [], lambda: None
    kinesis = {"streamName": "orders", "region": "eu-central-1", "secretRef": {"name": "aws"}}
    made.spec = {"source": {"kinesis": {**kinesis, "leaseTable": {"tableName": "app"}}, "format": {"schema": "id INT"}}}
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
