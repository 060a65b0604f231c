"""A suspended stream takes no replay, so that none lands into a sink that the stream has left."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.reconcile.stream_replay import MOST_ENDINGS
from tests.resource_documents import changed
from tests.unit.replay_documents import failed, replay
from tests.unit.replays_in_memory import World


def world(**spec: Any) -> World:
    """Return a stream with 25 records in quarantine, and one replay."""
    return World([failed(4, 0, 10, 20), failed(9, 0, 70, 85)], {"mend": replay(**spec)})


def turn(made: World, **changes: object) -> None:
    """Change the stream's spec."""
    assert made.stream is not None
    made.stream = changed(made.stream, {f"spec.{key.replace('__', '.')}": value for key, value in changes.items()})


OLD_TABLE, NEW_TABLE = "public.orders", "public.orders_new"


def drained(made: World, attempt: int) -> None:
    """End a pod as one that was asked to end."""
    made.end(made.pod(attempt), ReplayReport(problem="It was asked to end.", ending="Drained"))


def test_a_suspended_stream_starts_no_replay_until_it_is_resumed() -> None:
    made = world()
    turn(made, suspend=True)
    assert made.run_pass().after_seconds == 30.0
    assert (made.status().phase, made.pods) == (ReplayPhase.PENDING, {})
    assert made.status().message == "The stream is suspended; what is left is replayed when it is resumed."
    turn(made, suspend=False)
    assert made.until_final().message == "25 of 25 records have landed."


def test_a_dry_run_of_a_suspended_stream_is_done_all_the_same() -> None:
    made = world(dryRun=True)
    turn(made, suspend=True)
    made.run_pass()
    assert made.status().phase is ReplayPhase.SUCCEEDED


@pytest.mark.parametrize("landed", [0, 7, 24])
def test_what_a_replay_lands_after_the_sink_was_changed_is_in_the_new_table(landed: int) -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), landed)
    turn(made, suspend=True)
    assert made.run_pass().after_seconds == 5.0
    assert made.effects[-2:] == ["drain pod", "record Running"]
    drained(made, 1)
    made.run_pass()
    assert (made.status().phase, made.status().endings) == (ReplayPhase.PENDING, 0)
    turn(made, sink__postgres__table=NEW_TABLE)
    for _ in range(3):
        made.run_pass()
    assert len(made.pods) == 1, "none is started while it is suspended"
    turn(made, suspend=False)
    assert made.until_final().message == "25 of 25 records have landed."
    assert made.landed_into == {name: count for name, count in ((OLD_TABLE, landed), (NEW_TABLE, 25 - landed)) if count}


def test_a_pod_that_was_made_for_another_sink_is_killed_and_the_next_one_takes_the_rest() -> None:
    made = world()
    made.run_pass()
    made.run_pass()
    turn(made, sink__postgres__table=NEW_TABLE)
    made.run_pass()
    assert "kill pod" in made.effects, "it is not waited for its chunk"
    assert made.status().message.startswith("The stream's sink was changed since the attempt began;")
    made.pod().state = None
    assert made.until_final().attempt == 2
    assert made.landed_into == {NEW_TABLE: 25}


@pytest.mark.parametrize("begins", [True, False])
def test_a_replay_waits_until_the_stream_has_been_started_with_its_new_sink(begins: bool) -> None:
    """Till then the ledger, under its lock, refuses a landing into the new table, which would end the replay."""
    made = world()
    made.sink = f"table {OLD_TABLE}"
    if begins:
        made.dies_before = 2
        made.run_pass_or_die()
    turn(made, sink__postgres__table=NEW_TABLE)
    made.run_pass()
    assert made.run_pass().after_seconds == 30.0
    assert made.pods == {}
    assert made.status().message.startswith(
        "The stream's sink was changed, and the stream has not been started with it yet"
    )
    made.sink = f"table {NEW_TABLE}"
    assert made.until_final().message == "25 of 25 records have landed."
    assert made.landed_into == {NEW_TABLE: 25}


def test_a_pod_that_the_ledger_refused_for_a_changed_sink_is_followed_by_another_one() -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), 7)
    turn(made, sink__postgres__table=NEW_TABLE)
    made.end(made.pod(), ReplayReport(problem="The sink was changed.", ending="Refused"))
    made.run_pass()
    assert made.status().phase is ReplayPhase.PENDING
    assert made.until_final().message == "25 of 25 records have landed."


@pytest.mark.parametrize("dies_before", ["create ConfigMap", "create pod"])
def test_an_attempt_without_a_pod_is_not_started_for_the_sink_of_before(dies_before: str) -> None:
    made = world()
    made.dies_before = {"create ConfigMap": 2, "create pod": 3}[dies_before]
    made.run_pass_or_die()
    assert made.has_died
    turn(made, sink__postgres__table=NEW_TABLE)
    assert made.until_final().message == "25 of 25 records have landed."
    assert made.landed_into == {NEW_TABLE: 25}


def test_a_stream_that_is_suspended_again_and_again_does_not_use_up_the_attempts() -> None:
    made = world()
    for attempt in range(1, 2 * MOST_ENDINGS):
        turn(made, suspend=False)
        made.run_pass()
        made.run_pass()
        turn(made, suspend=True)
        made.run_pass()
        drained(made, attempt)
        made.run_pass()
        assert made.status().phase is ReplayPhase.PENDING
    turn(made, suspend=False)
    assert made.until_final().phase is ReplayPhase.SUCCEEDED


def test_what_has_landed_is_counted_also_where_the_stream_takes_no_replay_any_more() -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), 7)
    turn(made, suspend=True, sink__postgres__write="Upsert", sink__postgres__keys=["id"])
    made.end(made.pod())
    made.run_pass()
    records = made.status().records
    assert records is not None
    assert (records.replayed, records.put_back) == (7, 18)
    turn(made, suspend=False)
    made.run_pass()
    assert made.status().phase is ReplayPhase.REFUSED


def test_a_ledger_that_was_moved_while_a_replay_ran_is_not_taken_for_one_that_has_landed_everything() -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), 7)
    made.end(made.pod())
    made.row, made.rows = None, []
    made.run_pass()
    assert made.status().phase is ReplayPhase.REFUSED
    assert made.status().message.startswith("The ledger has no row of shop/orders any more")


def test_a_schedule_creates_no_replay_of_a_suspended_stream_and_makes_up_for_it_later() -> None:
    made = World([failed(4, 0, 10, 20)], {})
    turn(made, replay={"schedule": "30 12 * * *"}, suspend=True)
    made.run_pass()
    made.now += timedelta(hours=2)
    made.run_pass()
    assert made.replays == {}
    turn(made, suspend=False)
    made.run_pass()
    assert list(made.replays) == ["orders-202603011230"]
