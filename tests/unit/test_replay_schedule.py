"""Replays on a schedule: which moment is due, that missed ones make one, that they take turns, and what a cron line names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from exactlyonce.api.replay_schedule import ReplaySchedule
from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.reconcile.replay_schedule import (
    MadeReplay,
    ScheduleFacts,
    TimeZoneUnknown,
    due_at,
    look_again_at,
    name_of,
    no_longer_kept,
)
from exactlyonce.schema.cron import PATTERN, Cron
from tests.resource_documents import changed
from tests.unit.passes import Died
from tests.unit.replay_documents import BEGIN, failed, replay, summed
from tests.unit.replays_in_memory import World, held

BERLIN, UTC_ZONE = ZoneInfo("Europe/Berlin"), ZoneInfo("Etc/UTC")
NIGHTLY = ReplaySchedule(schedule="0 3 * * *")


def at(text: str) -> datetime:
    """Return a moment of UTC."""
    return datetime.fromisoformat(f"{text}+00:00")


def facts(now: str, *made: MadeReplay, since: str = "2026-03-01T00:00", **more: Any) -> ScheduleFacts:
    """Return what is known at a moment."""
    without = ScheduleFacts(at(now), at(since), made, more.pop("is_busy", False))
    return replace(without, held=summed(more.pop("held", ()), without.held_moments))


def ended(due: str, end: str | None = None) -> MadeReplay:
    """Return a replay that ended, or one that has not."""
    return MadeReplay(f"orders-{due}", at(due), None if end is None else at(end))


@pytest.mark.parametrize(
    ("line", "after", "following"),
    [
        ("0 3 * * *", "2026-03-01T03:00", "2026-03-02T03:00"),
        ("*/15 * * * *", "2026-03-01T23:50", "2026-03-02T00:00"),
        ("5,35 8-10 * * 1-5", "2026-03-06T10:36", "2026-03-09T08:05"),
        ("0 22-2/2 * * *", "2026-03-01T22:30", "2026-03-02T00:00"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("0 0 13 * 5", "2026-03-01T00:00", "2026-03-06T00:00"),
        ("0 0 */10 * 0", "2026-03-01T00:00", "2026-05-31T00:00"),
        ("0 0 * * 7", "2026-03-02T00:00", "2026-03-08T00:00"),
        ("30/10 0 1 1 *", "2026-03-01T00:00", "2027-01-01T00:30"),
    ],
)
def test_a_cron_line_names_the_next_moment_and_that_one_is_the_last_until_then(
    line: str, after: str, following: str
) -> None:
    cron = Cron.parse(line)
    assert cron.first_after(at(after), UTC_ZONE) == at(following)
    assert cron.last_between(at(after), at(following), UTC_ZONE) == at(following)
    assert cron.last_between(at(after), at(following) - timedelta(seconds=1), UTC_ZONE) is None


def test_a_day_that_never_comes_names_no_moment() -> None:
    assert Cron.parse("0 0 31 2 *").first_after(at("2026-03-01T00:00"), UTC_ZONE) is None
    assert Cron.parse("0 0 31 2 *").last_between(at("2006-03-01T00:00"), at("2026-03-01T00:00"), UTC_ZONE) is None


def test_a_local_time_is_named_once_when_the_clock_is_changed() -> None:
    cron = Cron.parse("30 2 * * *")
    in_spring = cron.first_after(datetime(2026, 3, 28, 12, tzinfo=BERLIN), BERLIN)
    assert in_spring == at("2026-03-29T01:30"), "02:30 does not exist: half an hour after the change"
    in_autumn = cron.first_after(datetime(2026, 10, 24, 12, tzinfo=BERLIN), BERLIN)
    assert in_autumn == at("2026-10-25T00:30")
    assert cron.first_after(at("2026-10-25T00:30"), BERLIN) == at("2026-10-26T01:30"), "the second 02:30 does not count"


def test_the_pattern_takes_no_line_that_cannot_be_read() -> None:
    import re

    for line in (
        "0 3 * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "@daily",
        "0  3 * * *",
        "a * * * *",
    ):
        assert re.fullmatch(PATTERN, line) is None, line
    for line in ("* * * * *", "59 23 31 12 7", "*/5,7 1-2/1 1,2 * 5-1"):
        assert re.fullmatch(PATTERN, line), line
        Cron.parse(line)


def test_moments_that_were_missed_make_one_replay_for_the_latest_of_them() -> None:
    assert due_at(NIGHTLY, facts("2026-03-01T02:59")) is None
    assert due_at(NIGHTLY, facts("2026-03-01T03:00")) == at("2026-03-01T03:00")
    assert due_at(NIGHTLY, facts("2026-03-09T14:00")) == at("2026-03-09T03:00"), "eight nights without an operator"
    made = ended("2026-03-09T03:00", "2026-03-09T14:05")
    assert due_at(NIGHTLY, facts("2026-03-09T15:00", made)) is None
    assert look_again_at(NIGHTLY, facts("2026-03-09T15:00", made)) == at("2026-03-10T03:00")


def test_what_was_due_before_the_schedule_was_seen_was_not_missed() -> None:
    assert due_at(NIGHTLY, facts("2026-03-09T15:00", since="2026-03-09T14:00")) is None
    late = ended("2026-03-01T03:00", "2026-03-01T04:00")
    assert due_at(NIGHTLY, facts("2026-03-09T15:00", late, since="2026-03-09T14:00")) is None


def test_one_replay_at_a_time_and_none_while_suspended() -> None:
    assert due_at(NIGHTLY, facts("2026-03-01T03:00", is_busy=True)) is None
    assert look_again_at(NIGHTLY, facts("2026-03-01T03:00", is_busy=True)) == at("2026-03-01T03:01")
    suspended = NIGHTLY.model_copy(update={"suspend": True})
    assert due_at(suspended, facts("2026-03-01T03:00")) is None
    assert look_again_at(suspended, facts("2026-03-01T03:00")) is None


def kept(records: int, since: str) -> RecordedFailure:
    return RecordedFailure(failed(4, 0, 0, records), at(since))


def test_enough_new_records_in_quarantine_make_a_replay_and_what_it_puts_back_does_not_make_the_next() -> None:
    many = ReplaySchedule(when_failed_records=100)
    assert due_at(many, facts("2026-03-01T10:00", held=(kept(99, "2026-03-01T09:00"),))) is None
    enough = (kept(60, "2026-03-01T09:00"), kept(40, "2026-03-01T09:30"))
    assert due_at(many, facts("2026-03-01T10:00", held=enough)) == at("2026-03-01T10:00")
    put_back = kept(100, "2026-03-01T10:04")
    done = ended("2026-03-01T10:00", "2026-03-01T10:05")
    assert due_at(many, facts("2026-03-01T10:06", done, held=(put_back,))) is None
    again = (put_back, kept(100, "2026-03-01T10:30"))
    assert due_at(many, facts("2026-03-01T10:31", done, held=again)) == at("2026-03-01T10:31")
    assert look_again_at(many, facts("2026-03-01T10:31", done)) == at("2026-03-01T10:32")


def test_records_that_have_waited_long_make_a_replay_and_after_it_wait_as_long_again() -> None:
    old = ReplaySchedule(when_failed_for=timedelta(minutes=30))
    waits = (kept(1, "2026-03-01T09:00"),)
    assert due_at(old, facts("2026-03-01T09:29", held=waits)) is None
    assert due_at(old, facts("2026-03-01T09:30", held=waits)) == at("2026-03-01T09:30")
    assert due_at(old, facts("2026-03-01T09:30", held=())) is None
    done = ended("2026-03-01T09:30", "2026-03-01T09:40")
    assert due_at(old, facts("2026-03-01T10:09", done, held=waits)) is None
    assert due_at(old, facts("2026-03-01T10:10", done, held=waits)) == at("2026-03-01T10:10")


def test_a_time_zone_that_the_system_does_not_have_is_told() -> None:
    with pytest.raises(TimeZoneUnknown, match=r"spec.replay.timeZone: there is no time zone Mars/Olympus"):
        due_at(ReplaySchedule(schedule="0 3 * * *", time_zone="Mars/Olympus"), facts("2026-03-01T03:00"))


def test_names_are_those_of_the_moment_and_fit() -> None:
    assert name_of("orders", at("2026-03-01T03:00")) == "orders-202603010300"
    first, second = (name_of(f"{'a' * 48}{end}", at("2026-03-01T03:00")) for end in "bc")
    assert len(first) == len(second) == 49
    assert first != second


def test_the_latest_replays_that_ended_are_kept_and_one_that_runs_is_never_removed() -> None:
    made = [ended(f"2026-03-0{day}T03:00", f"2026-03-0{day}T04:00") for day in (2, 1, 4, 3)]
    known = facts("2026-03-05T03:01", *made, ended("2026-03-05T03:00"))
    assert [it.due_at.day for it in no_longer_kept(known, 3)] == [1]


def scheduled(**replay: Any) -> World:
    """Return a stream with a schedule, and 10 records in quarantine since four minutes past noon."""
    made = World([failed(4, 0, 10, 20)], {})
    assert made.stream is not None
    made.stream = changed(made.stream, {"spec.replay": replay})
    return made


def the_replay(made: World) -> str:
    (name,) = made.replays
    return name


def test_a_replay_is_created_when_its_moment_has_come_and_lands_what_is_in_quarantine() -> None:
    made = scheduled(schedule="30 12 * * *", limit=500)
    assert made.run_pass().after_seconds == 1800.0
    made.now += timedelta(minutes=29)
    assert made.run_pass().after_seconds == 60.0
    assert made.replays == {}
    made.now += timedelta(minutes=1)
    assert made.run_pass().after_seconds == 0.0
    document = made.replays["orders-202603011230"]
    assert document["spec"] == {"stream": "orders", "from": {"failures": {}}, "limit": 500}
    assert document["metadata"]["ownerReferences"][0]["kind"] == "ExactlyOnceStream"
    assert made.until_final(name="orders-202603011230").phase is ReplayPhase.SUCCEEDED
    assert sum(made.table.values()) == 10
    made.run_pass()
    assert list(made.replays) == ["orders-202603011230"], "and none until tomorrow"


def test_an_operator_that_dies_before_any_effect_of_a_schedule_creates_one_replay() -> None:
    for died in range(5):
        made = scheduled(schedule="30 12 * * *")
        made.dies_before = died
        for _ in range(8):
            try:
                made.run_pass()
            except Died:
                continue
            made.now += timedelta(minutes=10)
        assert the_replay(made) == "orders-202603011230", f"died before {died}: {made.effects}"


def test_a_schedule_that_a_person_adds_or_changes_misses_nothing_of_before() -> None:
    made = scheduled(schedule="0 3 * * *")
    made.run_pass()
    assert made.replays == {}, "it is noon, and 3:00 was before"
    assert made.stream is not None
    made.now += timedelta(hours=1)
    made.stream = changed(made.stream, {"spec.replay.schedule": "30 12 * * *"})
    made.run_pass()
    assert made.replays == {}, "it is one, and half past twelve was before this schedule"


def test_a_threshold_creates_one_replay_and_not_another_for_what_that_one_puts_back() -> None:
    made = scheduled(whenFailedRecords=10)
    assert made.run_pass().after_seconds == 60.0
    made.now += timedelta(minutes=5)
    made.run_pass()
    name = the_replay(made)
    made.run_pass()
    made.land(made.pod(name=name), fails=range(10, 20))
    made.end(made.pod(name=name))
    for _ in range(20):
        made.run_pass()
        for pod in made.pods.values():
            made.end(pod)
        made.now += timedelta(minutes=3)
    assert made.status(name).phase is ReplayPhase.FAILED
    assert the_replay(made) == name
    assert held(made) == 10


def test_ended_replays_of_a_schedule_are_removed_and_those_of_people_are_not() -> None:
    made = scheduled(schedule="*/10 * * * *", history=2)
    made.run_pass()
    for _ in range(10):
        made.now += timedelta(minutes=10)
        for _ in range(4):
            made.run_pass()
            for pod in made.pods.values():
                made.land(pod)
                made.end(pod)
    assert sorted(made.replays) == ["orders-202603011330", "orders-202603011340"]


def test_a_ledger_that_does_not_answer_is_told_and_the_schedule_is_looked_at_again() -> None:
    made = scheduled(whenFailedFor="5m")
    made.broken = LedgerUnreachable("The database is down.")
    assert made.run_pass().after_seconds == 60.0
    assert made.events == [("NotScheduled", "The database is down.")]
    made.broken, made.now = None, BEGIN.astimezone(UTC) + timedelta(minutes=9)
    made.run_pass()
    assert the_replay(made) == "orders-202603011209"


def test_a_name_that_something_else_has_is_told_and_asked_for_again_in_a_minute() -> None:
    made = scheduled(schedule="30 12 * * *")
    made.run_pass()
    made.replays["orders-202603011230"] = replay("orders-202603011230", stream="others")
    made.now += timedelta(minutes=30)
    assert made.run_pass().after_seconds == 60.0
    ((reason, words),) = made.events
    assert reason == "NotScheduled"
    assert words.startswith(
        "The StreamReplay orders-202603011230, which is due now, cannot be created: one of that name"
    )
    made.replays.clear()
    made.run_pass()
    assert list(made.replays) == ["orders-202603011230"]


def test_moments_of_a_clock_that_was_ahead_do_not_silence_a_schedule() -> None:
    ahead = MadeReplay("orders-2030", at("2030-01-01T03:00"), at("2030-01-01T03:05"))
    assert due_at(NIGHTLY, facts("2026-03-02T03:00", ahead)) == at("2026-03-02T03:00")
    done = ended("2026-03-02T03:00", "2026-03-02T03:05")
    assert no_longer_kept(facts("2026-03-02T03:06", ahead, done), 1) == (ahead,)
    made = scheduled(schedule="30 12 * * *")
    made.now += timedelta(days=900)
    made.run_pass()
    made.now = BEGIN
    made.run_pass()
    made.now += timedelta(minutes=30)
    made.run_pass()
    assert the_replay(made) == "orders-202603011230"


def test_records_that_come_into_quarantine_while_a_replay_runs_count_and_what_it_puts_back_does_not() -> None:
    many = ReplaySchedule(when_failed_records=100)
    done = MadeReplay("orders-1", at("2026-03-01T10:00"), at("2026-03-01T10:30"), at("2026-03-01T10:01"), put_back=100)
    put_back = kept(100, "2026-03-01T10:29")
    assert due_at(many, facts("2026-03-01T10:40", done, held=(put_back,))) is None
    came = (put_back, kept(60, "2026-03-01T10:20"), kept(40, "2026-03-01T10:35"))
    assert due_at(many, facts("2026-03-01T10:40", done, held=came)) == at("2026-03-01T10:40")
    assert due_at(many, facts("2026-03-01T10:40", done, held=came[:2])) is None


def test_a_ledger_whose_clock_is_ahead_does_not_make_a_replay_each_minute() -> None:
    many = ReplaySchedule(when_failed_records=1, when_failed_for=timedelta(minutes=1))
    done = ended("2026-03-01T10:00", "2026-03-01T10:01")
    put_back = (kept(100, "2026-03-01T11:00"),)
    waits = [minute for minute in range(2, 10) if due_at(many, facts(f"2026-03-01T10:0{minute}", done, held=put_back))]
    assert waits == [6, 7, 8, 9], "five minutes after its end"
