"""Where a stream has landed is shown outside of its ledger: when a driver starts, runs and has ended. It stops no pass."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

import pytest

from exactlyonce.api.status import Phase
from exactlyonce.errors import LedgerUnreachable, StoreBusy
from exactlyonce.launch.last_message import Ending
from exactlyonce.reconcile.loop import Done, PassResult, Waiting, Wanted, Watching
from exactlyonce.reconcile.shown import MOST_TRIES
from exactlyonce.source.port import NotShown, NotShownBecause, ShownStream
from tests.unit.passes import FIRST, KEYS, SECOND, Machine
from tests.unit.shown_streams import ShownTopic, condition, reading

FIRST_TOPIC = min(KEYS).origin


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


def answers(machine: Machine, because: NotShownBecause | None, words: str = "It says so.") -> None:
    """Let the place that shows what has landed answer like that from now on."""
    assert isinstance(machine.topic, ShownTopic)
    machine.topic.answer = lambda: None if because is None else NotShown(because, words)


def test_what_somebody_should_know_is_one_event_and_a_condition_for_as_long_as_it_lasts(machine: Machine) -> None:
    machine.looks = True
    answers(machine, NotShownBecause.TWO_CONSUMERS, "Two consumers: worker 'w' holds a lease.")
    for _ in range(3):
        assert machine.run_pass() == Watching(FIRST)
        assert condition(machine) == ("False", "TwoConsumers", "Two consumers: worker 'w' holds a lease.")
    assert machine.reports == [("LandedNotShown", "Two consumers: worker 'w' holds a lease.")]
    answers(machine, None)
    machine.run_pass()
    shown_now = condition(machine)
    assert shown_now is not None
    assert shown_now[:2] == ("True", "Shown")
    answers(machine, NotShownBecause.TWO_CONSUMERS, "Two consumers: worker 'w' holds a lease.")
    machine.run_pass()
    assert len(machine.reports) == 2, "it was well in between"


def test_what_comes_of_itself_is_a_condition_and_no_event_and_a_failure_is_told_once(machine: Machine) -> None:
    machine.looks = True
    answers(machine, NotShownBecause.PENDING)
    machine.run_pass()
    assert (condition(machine), machine.reports) == (("False", "Pending", "It says so."), [])
    for attempt in range(3):
        answers(machine, NotShownBecause.FAILED, f"It failed, the {attempt}th time.")
        machine.run_pass()
        assert condition(machine) == ("False", "Failed", f"It failed, the {attempt}th time.")
    assert machine.reports == [("LandedNotShown", "It failed, the 0th time.")]


def test_a_stream_that_shows_itself_nowhere_has_no_such_condition(machine: Machine) -> None:
    machine.looks = True
    machine.run_pass()
    assert condition(machine) is not None
    del machine.spec["source"]["kinesis"]["leaseTable"]
    machine.run_pass()
    assert condition(machine) is None


def suspended(machine: Machine, because: NotShownBecause | None) -> PassResult:
    """Suspend a stream of a cluster whose last look comes to this."""
    machine.asks_again = True
    machine.end(FIRST, Ending.DRAINED)
    answers(machine, because)
    return machine.run_pass(Wanted.REST)


@pytest.mark.parametrize("because", [NotShownBecause.FAILED, NotShownBecause.PENDING])
def test_a_suspended_stream_tries_again_to_show_what_has_landed_last(
    machine: Machine, because: NotShownBecause
) -> None:
    result = suspended(machine, because)
    assert machine.statuses.status.phase is Phase.SUSPENDED
    assert isinstance(result, Waiting)
    assert result.until > machine.now
    shown(machine).clear()
    assert machine.run_pass(Wanted.REST) == result, "it is not due yet"
    assert shown(machine) == []
    machine.now = result.until
    later = machine.run_pass(Wanted.REST)
    assert isinstance(later, Waiting)
    assert later.until - machine.now == timedelta(seconds=30), "the pauses grow"
    machine.now = later.until
    answers(machine, None)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert shown(machine) == [(40, 30), (40, 30)]
    assert condition(machine) == (
        "True",
        "Shown",
        "The place that the resource names shows where the stream has landed.",
    )
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert len(shown(machine)) == 2, "nothing is owed any more"


def test_it_is_not_tried_again_for_ever_and_a_stream_that_runs_again_starts_over_with_that(machine: Machine) -> None:
    result, tries = suspended(machine, NotShownBecause.FAILED), 0
    while isinstance(result, Waiting):
        machine.now, tries = result.until, tries + 1
        assert tries < 100
        result = machine.run_pass(Wanted.REST)
    assert result == Done(completed=False)
    assert tries == MOST_TRIES
    assert condition(machine) == ("False", "Failed", "It says so."), "and it stays told"
    machine.run_until_a_driver_runs()
    machine.end(SECOND, Ending.DRAINED)
    assert isinstance(machine.run_pass(Wanted.REST), Waiting)


@pytest.mark.parametrize("because", [NotShownBecause.TWO_CONSUMERS, NotShownBecause.OF_ANOTHER, None])
def test_what_a_person_has_to_change_is_not_tried_again(machine: Machine, because: NotShownBecause | None) -> None:
    assert suspended(machine, because) == Done(completed=False)
    shown(machine).clear()
    machine.now += timedelta(hours=1)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert shown(machine) == []


def test_a_stream_whose_ledger_did_not_answer_when_it_was_suspended_shows_later_what_has_landed(
    machine: Machine,
) -> None:
    machine.end(FIRST, Ending.DRAINED)
    machine.asks_again = True
    view, machine.ledger.view = machine.ledger.view, unreachable  # type: ignore[method-assign] # for as long as it is silent
    result = machine.run_pass(Wanted.REST)
    assert isinstance(result, Waiting)
    assert shown(machine) == []
    machine.ledger.view, machine.now = view, result.until  # type: ignore[method-assign]
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert shown(machine) == [(40, 30)]


def test_what_was_shown_before_does_not_stand_for_what_landed_last_where_the_ledger_was_silent(
    machine: Machine,
) -> None:
    machine.looks = True
    machine.run_pass()
    assert condition(machine) is not None
    machine.land(FIRST, 50, 30)
    machine.end(FIRST, Ending.DRAINED)
    machine.asks_again = True
    view, machine.ledger.view = machine.ledger.view, unreachable  # type: ignore[method-assign] # for as long as it is silent
    result = machine.run_pass(Wanted.REST)
    assert isinstance(result, Waiting)
    machine.ledger.view, machine.now = view, result.until  # type: ignore[method-assign]
    machine.run_pass(Wanted.REST)
    assert shown(machine) == [(40, 30), (50, 30)]


def test_while_a_driver_runs_a_source_that_does_not_answer_once_changes_nothing_that_is_told(machine: Machine) -> None:
    def fail() -> NotShown | None:
        raise StoreBusy("the source does not answer")

    machine.looks = True
    machine.run_pass()
    told = condition(machine)
    assert told is not None
    assert isinstance(machine.topic, ShownTopic)
    machine.topic.answer = fail
    machine.run_pass()
    assert condition(machine) == told, "the next look comes of itself"


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (
            LedgerUnreachable("the ledger is silent"),
            "The latest landed position is not shown yet: the ledger is silent",
        ),
        (None, None),
    ],
)
def test_a_ledger_that_did_not_answer_is_told_and_one_without_the_stream_owes_nothing(
    machine: Machine, problem: Exception | None, told: str | None
) -> None:
    def view(stream_id: str) -> None:
        if problem is not None:
            raise problem

    machine.end(FIRST, Ending.DRAINED)
    machine.asks_again = True
    machine.ledger.view = view  # type: ignore[method-assign]
    result = machine.run_pass(Wanted.REST)
    assert condition(machine) == (None if told is None else ("False", "Pending", told))
    assert isinstance(result, Done if problem is None else Waiting)


def test_a_source_that_did_not_answer_when_a_stream_was_suspended_is_told(machine: Machine) -> None:
    def fail() -> NotShown | None:
        raise StoreBusy("the source does not answer")

    assert isinstance(machine.topic, ShownTopic)
    machine.end(FIRST, Ending.DRAINED)
    machine.topic.answer = fail
    machine.run_pass(Wanted.REST)
    assert condition(machine) == (
        "False",
        "Pending",
        "The latest landed position is not shown yet: the source does not answer",
    )


def unreachable(stream_id: str) -> NoReturn:
    raise LedgerUnreachable("the ledger is silent")


def test_a_stream_that_has_completed_tries_again_as_well(machine: Machine) -> None:
    machine.asks_again = True
    machine.end(FIRST, Ending.COMPLETED)
    answers(machine, NotShownBecause.FAILED)
    result = machine.run_pass()
    assert machine.statuses.status.phase is Phase.COMPLETED
    assert isinstance(result, Waiting)
    machine.now = result.until
    answers(machine, None)
    assert machine.run_pass() == Done(completed=True)


@pytest.mark.parametrize("because", [NotShownBecause.OF_ANOTHER, NotShownBecause.FAILED, None])
def test_a_stream_at_rest_whose_resource_names_another_place_is_shown_there(
    machine: Machine, because: NotShownBecause | None
) -> None:
    result = suspended(machine, because)
    while isinstance(result, Waiting):
        machine.now = result.until
        result = machine.run_pass(Wanted.REST)
    shown(machine).clear()
    machine.spec = reading({}, "another")
    answers(machine, NotShownBecause.FAILED)
    waits = machine.run_pass(Wanted.REST)
    assert isinstance(waits, Waiting), "what was tried before was tried elsewhere"
    machine.now = waits.until
    answers(machine, None)
    for _ in range(3):
        assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert shown(machine) == [(40, 30), (40, 30)]


def test_a_stream_at_rest_begins_to_be_shown_when_its_resource_names_a_place_and_ends_with_it(machine: Machine) -> None:
    named, machine.spec = machine.spec, reading({})
    del machine.spec["source"]["kinesis"]["leaseTable"]
    nowhere = machine.spec
    assert suspended(machine, None) == Done(completed=False)
    assert (shown(machine), condition(machine)) == ([], None)
    machine.spec = named
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert (shown(machine), condition(machine) is None) == ([(40, 30)], False)
    machine.spec = nowhere
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert (shown(machine), condition(machine)) == ([(40, 30)], None)


def test_a_stream_that_has_never_run_owes_nothing() -> None:
    machine = Machine()
    machine.topic = ShownTopic(dict.fromkeys(KEYS, 100))
    machine.spec, machine.asks_again = reading({}), True
    machine.ledger.view = unreachable  # type: ignore[method-assign] # and nobody asks
    assert machine.run_pass(Wanted.REST) == Done(completed=False)
    assert condition(machine) is None


def test_nobody_waits_at_a_terminal_for_what_is_shown(machine: Machine) -> None:
    machine.end(FIRST, Ending.DRAINED)
    answers(machine, NotShownBecause.FAILED)
    assert machine.run_pass(Wanted.REST) == Done(completed=False)


@pytest.mark.parametrize("problem", [StoreBusy("it does not answer"), ValueError("a mistake of ours")])
def test_nothing_that_fails_there_stops_a_pass(machine: Machine, problem: Exception) -> None:
    def fail() -> NotShown | None:
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
    def fail() -> NotShown | None:
        raise ValueError("what a server said\n" + 10_000 * "x")

    assert isinstance(machine.topic, ShownTopic)
    machine.topic.answer = fail
    machine.looks = True
    machine.run_pass()
    ((reason, told),) = machine.reports
    assert reason == "LandedNotShown"
    assert told.startswith("What has landed could not be shown (ValueError: what a server said x")
    assert len(told) < 300


def test_a_stream_is_shown_by_its_id_its_database_and_its_life_and_never_by_its_token(machine: Machine) -> None:
    machine.looks = True
    machine.run_pass()
    assert isinstance(machine.topic, ShownTopic)
    (stream,) = machine.topic.streams
    row = machine.view().stream
    assert stream == ShownStream("shop/orders", str(row.database), row.life)
    assert row.token not in str(stream)


def test_positions_of_a_source_that_was_replaced_while_the_stream_rests_are_shown_nowhere(machine: Machine) -> None:
    suspended(machine, None)
    shown(machine).clear()
    assert isinstance(machine.topic, ShownTopic)
    machine.topic.recreate(FIRST_TOPIC)
    machine.spec = reading({}, table="another")
    machine.run_pass(Wanted.REST)
    assert shown(machine) == []
    told = condition(machine)
    assert told is not None
    assert told[:2] == ("False", "Failed")
    assert f"({FIRST_TOPIC})" in told[2]


def test_a_source_that_holds_nothing_of_what_has_landed_shows_nothing_and_does_not_say_shown(machine: Machine) -> None:
    machine.looks = True
    assert isinstance(machine.topic, ShownTopic)
    machine.topic.naming_others = True
    machine.run_pass()
    told = condition(machine)
    assert (shown(machine), told and told[:2]) == ([], ("False", "Failed"))
