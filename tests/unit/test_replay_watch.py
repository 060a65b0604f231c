"""A replay's pod while it runs: what has landed is counted, one that hangs is replaced, and the monitor is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.control.replay_watch import COUNT_AGAIN
from exactlyonce.control.wakeups import Key
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.port import DriverPod, Gone, Running
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.ledger.rows import Owner
from exactlyonce.monitor.replays import ReplaysView
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.stream_replay import MOST_ENDINGS
from scripts.alert_rules import defaults
from scripts.alerts import GROUPS
from tests.resource_documents import changed
from tests.unit.replay_documents import BEGIN, KEY, ROW, failed, replay
from tests.unit.replays_in_memory import World, held

HANGS = "It has shown no progress."


def world() -> World:
    """Return a stream with thirty records in quarantine, and a replay whose pod runs."""
    made = World([failed(4, 0, 10, 20), failed(5, 1, 0, 20)], {"mend": replay()})
    made.run_pass()
    made.pod().state = running()
    return made


def running(hangs: str | None = None) -> Running:
    return Running("the test", pod=DriverPod("mend-replay-1", None), hangs=hangs)


def test_what_has_landed_is_counted_while_the_pod_runs_and_the_ledger_is_not_asked_at_each_look() -> None:
    made = world()
    made.land(made.pod(), 12)
    asked = made.asked_of_ledger
    made.run_pass()
    assert made.asked_of_ledger == asked, "it was counted when the attempt was recorded"
    made.now += COUNT_AGAIN
    made.run_pass()
    status = made.status()
    assert status.records is not None
    assert (status.records.replayed, status.records.put_back, status.progressed_at) == (12, 18, made.now)
    made.land(made.pod(), 3)
    made.run_pass()
    assert made.asked_of_ledger == asked + 1, "its own write has woken this pass"
    made.now += COUNT_AGAIN
    made.run_pass()
    made.now += COUNT_AGAIN
    made.run_pass()
    assert (made.status().records, made.status().progressed_at) != (status.records, made.now), (
        "nothing has landed since"
    )


def test_an_attempt_that_was_seen_to_land_something_begins_the_count_of_endings_again() -> None:
    made = world()
    made.land(made.pod(), 12)
    made.now += COUNT_AGAIN
    made.run_pass()
    made.end(made.pod())
    made.run_pass()
    assert made.status().endings == 1
    made.now += timedelta(minutes=5)
    made.run_pass()
    made.end(made.pod(2))
    made.run_pass()
    assert made.status().endings == 2, "this one has landed nothing"


def test_a_pod_that_hangs_is_replaced_and_every_record_lands_once_wherever_the_operator_dies() -> None:
    effects = 0
    while True:
        made = world()
        made.land(made.pod(), 12)
        made.pod().state = running(HANGS)
        made.dies_before = len(made.effects) + effects
        while "kill pod" not in made.effects:
            made.run_pass_or_die()
        made.pod().state = Gone("The record of the pod is gone.", str(Reason.RECORD_LOST))
        status = made.until_final()
        assert status.phase is ReplayPhase.SUCCEEDED
        assert "kill pod" in made.effects
        assert set(made.table.values()) == {1}
        assert len(made.table) == 30
        assert held(made) == 0
        if not made.has_died:
            break
        effects += 1
    assert effects >= 2, "it has died before the record and before the kill"


def test_why_a_pod_is_replaced_is_written_before_it_is_killed_and_stays_until_the_next_attempt() -> None:
    made = world()
    made.pod().state = running(HANGS)
    made.run_pass()
    assert made.effects[-2:] == ["record Running", "kill pod"]
    words = made.status().message
    assert "has shown no progress for all of the stream's driver.progressTimeout and is replaced" in words
    made.pod().state = running()  # the pod goes at last, and meanwhile it moves again: what is recorded is done
    made.run_pass()
    assert made.effects[-1] == "kill pod"
    made.pod().state = Gone("The record of the pod is gone.", str(Reason.RECORD_LOST))
    made.run_pass()
    assert made.status().phase is ReplayPhase.PENDING
    assert words.rstrip(".") in made.status().message
    made.now += timedelta(minutes=5)
    made.run_pass()
    assert (made.status().attempt, made.status().no_progress_message) == (2, None)


def refuse_the_owner(made: World) -> None:
    made.row = replace(ROW, owner=Owner("cluster-2", "shop/orders/u-9"))


def forget_the_ranges(made: World) -> None:
    made.is_forgetful = True


@pytest.mark.parametrize(
    ("refuse", "words"),
    [(refuse_the_owner, "as the stream of shop/orders/u-9"), (forget_the_ranges, "The ConfigMaps of the StreamReplay")],
)
@pytest.mark.parametrize("dies_after", range(4))
def test_a_replay_that_is_refused_while_its_pod_runs_ends_the_pod_before_the_next_replay_begins(
    refuse: Callable[[World], None], words: str, dies_after: int
) -> None:
    made = world()
    made.replays["later"] = replay("later", "2026-03-01T12:01:00Z")
    made.run_pass()
    made.now += COUNT_AGAIN
    refuse(made)
    made.dies_before = len(made.effects) + dies_after
    for _ in range(3):
        made.run_pass_or_die()
    assert "drain pod" in made.effects
    assert (made.status().phase, list(made.pods)) == (ReplayPhase.RUNNING, [("mend", Epoch(1))])
    assert made.status().message.startswith(("It is", "The ")), "the reason is told while the pod leaves"
    assert made.status().message.endswith("The pod is being ended.")
    made.pods.clear()  # with all that a launcher knows of it
    made.dies_before, made.is_forgetful = None, False
    made.run_pass()
    assert (made.status().phase, words in made.status().message) == (ReplayPhase.REFUSED, True)


def test_attempts_that_are_replaced_and_land_nothing_do_not_keep_the_alert_from_being_raised() -> None:
    alert = next(it for group in GROUPS for it in group.alerts if it.name == "ExactlyOnceReplayStuck")
    threshold = defaults(alert)["seconds"]
    assert isinstance(threshold, int)
    each = timedelta(seconds=threshold / 2)
    views: list[ReplaysView | None] = []
    made = world()
    made.noted = lambda _key, view: views.append(view)
    for attempt in range(1, MOST_ENDINGS):
        made.now += each
        made.pod(attempt).state = running(HANGS)
        made.run_pass()
        made.pod(attempt).state = Gone("The record of the pod is gone.", str(Reason.RECORD_LOST))
        made.run_pass()
        made.now += timedelta(minutes=2)
        made.run_pass()
    view = views[-1]
    assert made.status().attempt == MOST_ENDINGS
    assert view is not None
    assert view.progressed_timestamp == BEGIN.timestamp()
    assert made.now.timestamp() - view.progressed_timestamp > threshold, "by then the alert is raised"


def test_what_landed_between_the_last_count_and_the_end_of_an_attempt_is_progress() -> None:
    made = world()
    made.land(made.pod(), 12)
    made.now += timedelta(minutes=25)
    made.end(made.pod())
    made.run_pass()
    assert (made.status().phase, made.status().progressed_at) == (ReplayPhase.PENDING, made.now)


def test_the_time_for_which_a_stream_was_suspended_is_not_counted_as_time_without_progress() -> None:
    made = world()
    made.stream = changed(made.stream or {}, {"spec.suspend": True})
    made.run_pass()
    made.end(made.pod())
    made.run_pass()
    assert made.status().phase is ReplayPhase.PENDING
    made.now += timedelta(days=3)
    made.stream = changed(made.stream, {"spec.suspend": False})
    made.run_pass()
    assert (made.status().phase, made.status().progressed_at) == (ReplayPhase.RUNNING, made.now)


def test_an_attempt_that_an_earlier_release_recorded_is_counted_by_what_was_in_quarantine_then() -> None:
    made = world()
    status = made.replays["mend"]["status"]
    made.replays["mend"]["status"] = {key: value for key, value in status.items() if key != "heldAtStart"}
    made.land(made.pod(), 12)
    made.now += COUNT_AGAIN
    made.run_pass()
    made.end(made.pod())
    made.run_pass()
    assert made.status().endings == 1, "it has landed something"
    assert made.status().held_at_start == 30


def test_pods_that_hang_each_time_and_land_nothing_end_the_replay() -> None:
    made = world()
    for attempt in range(1, 5):
        made.pod(attempt).state = running(HANGS)
        made.run_pass()
        made.pod(attempt).state = Gone("The record of the pod is gone.", str(Reason.RECORD_LOST))
        made.run_pass()
        made.now += timedelta(minutes=5)
        made.run_pass()
    assert made.status().phase is ReplayPhase.FAILED
    assert "has shown no progress" in made.status().message


def test_the_monitor_is_told_of_the_replays_that_have_not_ended_and_of_their_end() -> None:
    told: list[tuple[Key, ReplaysView | None]] = []
    made = world()
    made.replays["later"] = replay("later", "2026-03-01T12:01:00Z")
    made.noted = lambda key, view: told.append((key, view))
    made.run_pass()
    records = {"asked": 30, "replayed": 0, "put_back": 30, "lost": 0}
    assert told[-1] == (KEY, ReplaysView(1, 1, records, BEGIN.timestamp(), "mend"))
    made.land(made.pod(), 12)
    made.now += COUNT_AGAIN
    made.run_pass()
    assert told[-1] == (
        KEY,
        ReplaysView(1, 1, {**records, "replayed": 12, "put_back": 18}, made.now.timestamp(), "mend"),
    )
    made.stream = changed(made.stream or {}, {"spec.suspend": True})
    made.run_pass()
    view = told[-1][1]
    assert view is not None
    assert view.progressed_timestamp is None, "it waits on purpose"
    made.stream = changed(made.stream, {"spec.suspend": False})
    made.end(made.pod(), ReplayReport(landed=12))
    made.until_final(name="later")
    assert [after for _, after in told][-1] is None
