"""Passes over StreamReplays: what is asked for lands once whatever dies, they take turns, bad input is told in one sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.errors import LedgerUnreachable, SecretMissing
from exactlyonce.launch.port import Gone, LaunchFailed, ManifestRefused, NotCreated
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.ledger.rows import FailureStatus, Owner
from exactlyonce.positions.ranges import Epoch, Partition
from exactlyonce.reconcile.stream_replay import MOST_ENDINGS
from tests.resource_documents import changed
from tests.unit.replay_documents import KEY, ROW, failed, replay
from tests.unit.replays_in_memory import Pods, World, held


def world(**spec: Any) -> World:
    """Return a stream with three ranges of 30 records in quarantine, and one replay."""
    rows = [failed(4, 0, 10, 20), failed(4, 1, 0, 5), failed(9, 0, 70, 85)]
    return World(rows, {"mend": replay(**spec)})


ASKED = {
    *((Partition("orders", 0), offset) for offset in (*range(10, 20), *range(70, 85))),
    *((Partition("orders", 1), offset) for offset in range(5)),
}


def test_everything_that_is_in_quarantine_lands_once_and_the_status_says_so() -> None:
    made = world()
    status = made.until_final()
    assert (status.phase, status.message) == (ReplayPhase.SUCCEEDED, "30 of 30 records have landed.")
    assert made.table == dict.fromkeys(ASKED, 1)
    assert status.ranges is not None
    assert (status.ranges.asked, status.ranges.replayed, status.attempt) == (3, 3, 1)
    assert [reason for reason, _ in made.events] == ["Running", "Succeeded"]
    conditions = {it.type: str(it.status) for it in status.conditions}
    assert conditions == {"Ready": "True", "Reconciling": "False", "Stalled": "False"}


def test_an_operator_that_dies_before_any_effect_leaves_what_its_successor_brings_to_the_same_end() -> None:
    has_died, died = True, 0
    while has_died:
        made = world()
        made.dies_before = died
        status = made.until_final()
        assert made.table == dict.fromkeys(ASKED, 1), f"died before effect {died}: {made.effects}"
        assert (status.phase, status.attempt) == (ReplayPhase.SUCCEEDED, 1), "no attempt is used up by a death"
        has_died, died = made.has_died, died + 1
    assert died > 6, "there are as many effects as that"


@pytest.mark.parametrize("landed", [0, 1, 10, 12, 29, 30])
def test_a_pod_that_is_killed_is_followed_by_one_that_lands_the_rest(landed: int) -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), landed)
    made.end(made.pod())
    status = made.until_final()
    assert made.table == dict.fromkeys(ASKED, 1)
    assert (status.phase, status.attempt) == (ReplayPhase.SUCCEEDED, 1 if landed == 30 else 2)
    assert status.records is not None
    assert (status.records.asked, status.records.replayed) == (30, 30)


def test_what_follows_a_killed_pod_takes_nothing_that_was_not_asked_for_at_first() -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), 7)
    made.end(made.pod())
    made.rows.append(failed(12, 0, 90, 99))
    assert made.until_final().phase is ReplayPhase.SUCCEEDED
    assert made.table == dict.fromkeys(ASKED, 1)
    assert held(made) == 9


def test_attempts_that_land_nothing_are_bounded_and_wait_longer_each_time() -> None:
    made = world()
    waits = []
    while not made.status().phase.is_final:
        following = made.run_pass()
        status = made.status()
        if status.phase is ReplayPhase.RUNNING:
            made.end(made.pod(status.attempt), detail="The node is on fire.")
        elif status.retry_at is not None:
            waits.append(status.retry_at - made.now)
            assert made.run_pass().after_seconds == waits[-1].total_seconds(), "and nothing is done before"
            made.now = status.retry_at
    assert waits == [timedelta(seconds=10), timedelta(seconds=20), timedelta(seconds=40)]
    assert len(made.pods) == MOST_ENDINGS
    assert made.status().phase is ReplayPhase.FAILED
    assert "The node is on fire; trying" not in made.status().message
    assert "4 attempts in a row ended without landing anything; the latest: The node is on fire. 0 of 30 records" in (
        made.status().message
    )
    assert following.after_seconds is None


def test_an_attempt_that_lands_something_begins_the_count_again() -> None:
    made = world()
    for attempt in range(1, 12):
        made.run_pass()
        made.land(made.pod(attempt), 2)
        made.end(made.pod(attempt))
        made.run_pass()
        made.now += timedelta(minutes=5)
    assert made.status().phase is ReplayPhase.PENDING
    assert made.until_final().phase is ReplayPhase.SUCCEEDED


def test_a_record_that_fails_again_is_counted_as_put_back_and_is_not_tried_for_ever() -> None:
    made = world()
    made.run_pass()
    landed = made.land(made.pod(), fails={12})
    made.end(made.pod(), ReplayReport(landed=landed, failed=1, told=("The record 4/orders-0/12 failed again: no.",)))
    status = made.until_final()
    assert status.phase is ReplayPhase.FAILED
    assert status.message == "29 of 30 records have landed; 1 is in quarantine still. In quarantine: 4/orders-0/12."
    assert status.problems == ("The record 4/orders-0/12 failed again: no",)
    assert status.ranges is not None
    assert (status.ranges.asked, status.ranges.replayed, status.ranges.put_back) == (3, 2, 1)


def test_what_retention_took_is_counted_and_what_the_stream_reads_again_is_left_to_it() -> None:
    made = world()
    made.run_pass()
    made.rows[1] = failed(4, 1, 0, 5, FailureStatus.LOST)
    made.rows[2] = failed(9, 0, 70, 85, FailureStatus.SUPERSEDED)
    made.land(made.pod())
    made.end(made.pod(), ReplayReport(landed=10))
    status = made.until_final()
    assert (status.phase, status.message) == (
        ReplayPhase.FAILED,
        "10 of 30 records have landed; 5 are lost, since the source no longer holds them, or given up by a person; "
        "15 are left to the stream, "
        "which reads them again itself.",
    )


@pytest.mark.parametrize(("landed", "phase"), [(0, ReplayPhase.REFUSED), (3, ReplayPhase.FAILED)])
def test_a_replay_that_is_refused_in_its_pod_is_not_tried_again(landed: int, phase: ReplayPhase) -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), landed)
    made.end(made.pod(), ReplayReport(landed=landed, problem="The transform sums up.", ending="Refused"))
    status = made.until_final()
    assert (status.phase, status.message, len(made.pods)) == (phase, "The transform sums up.", 1)


def test_replays_of_one_stream_take_turns_in_the_order_of_their_creation() -> None:
    made = world()
    made.replays = {
        "b": replay("b", "2026-03-01T12:00:01Z"),
        "a": replay("a", "2026-03-01T12:00:02Z"),
        "of-another": replay("of-another", stream="others"),
    }
    made.run_pass()
    assert set(made.pods) == {("b", Epoch(1))}
    assert made.status("a").message == "It waits for its turn: the StreamReplays of one stream run one at a time."
    made.replays["c"] = replay("c", "2026-03-01T12:00:00Z")
    made.run_pass()
    assert set(made.pods) == {("b", Epoch(1))}, "one that has begun is not overtaken"
    made.land(made.pod(name="b"))
    made.end(made.pod(name="b"), ReplayReport(landed=30))
    assert made.run_pass().after_seconds == 0.0, "the next one's turn is now"
    made.run_pass()
    assert made.status("c").phase is ReplayPhase.SUCCEEDED
    made.run_pass()
    assert made.status("a").message == "Nothing that was asked for is in quarantine."
    assert made.status("of-another").phase is ReplayPhase.PENDING
    assert made.table == dict.fromkeys(ASKED, 1)


def test_each_turn_is_told_to_whoever_has_it_and_to_no_other() -> None:
    made = World([failed(4, 0, 10, 20)], {f"r{number}": replay(f"r{number}") for number in range(12)})
    for _ in range(60):
        made.run_pass()
        for pod in made.pods.values():
            made.land(pod)
            made.end(pod, ReplayReport())
    assert {made.status(name).phase for name in made.replays} == {ReplayPhase.SUCCEEDED}
    writes = sum(effect.startswith("record") for effect in made.effects)
    assert writes <= 3 * len(made.replays), "that it waits, that it runs, and how it ended"


def test_what_is_known_of_a_stream_is_dropped_once_it_has_no_replay_that_is_to_run() -> None:
    made = world()
    made.run_pass()
    assert made.forgotten == []
    made.land(made.pod())
    made.end(made.pod(), ReplayReport(landed=30))
    made.run_pass()
    assert made.status().phase is ReplayPhase.SUCCEEDED
    assert made.forgotten == [KEY]


def test_a_replay_that_is_deleted_while_it_runs_makes_room_and_the_next_one_takes_what_it_held() -> None:
    made = world()
    made.run_pass()
    made.land(made.pod(), 4)
    metadata = {"metadata.deletionTimestamp": "2026-03-01T12:05:00Z"}
    made.replays = {"mend": changed(made.replays["mend"], metadata), "next": replay("next")}
    made.run_pass()
    assert made.status("mend").phase is ReplayPhase.RUNNING, "nobody writes it any more: its pod goes with it"
    made.land(made.pod(name="next"))
    made.end(made.pod(name="next"), ReplayReport(landed=26))
    made.run_pass()
    assert made.status("next").message == "26 of 26 records have landed."
    assert made.table == dict.fromkeys(ASKED, 1)


def test_a_dry_run_shows_the_ranges_and_starts_nothing() -> None:
    made = world(dryRun=True)
    made.run_pass()
    status = made.status()
    assert (status.phase, made.pods, made.table) == (ReplayPhase.SUCCEEDED, {}, {})
    assert status.message == (
        "3 of 3 ranges can be replayed: 30 records. Nothing was changed; create a StreamReplay without dryRun to replay them."
    )
    assert next((it.id, it.records, it.found) for it in status.shown) == ("4/orders-0/10", 10, "held")


def test_a_stream_that_is_deleted_or_recreated_ends_its_replay_with_a_sentence_and_its_pod() -> None:
    def after(**changes: Any) -> World:
        made = world()
        made.run_pass()
        assert made.stream is not None
        made.stream = changed(made.stream, changes) if changes else None
        made.run_pass()
        assert (made.status().phase, made.effects[-2:]) == (ReplayPhase.RUNNING, ["drain pod", "record Running"])
        made.end(made.pod())
        made.run_pass()
        assert made.status().phase is ReplayPhase.REFUSED
        return made

    assert after().status().message == "There is no ExactlyOnceStream shop/orders; it was deleted."
    leaving = after(**{"metadata.deletionTimestamp": "2026-03-01T12:05:00Z"})
    assert "is being deleted" in leaving.status().message
    recreated = after(**{"metadata.uid": "u-2"})
    assert recreated.status().message == "The stream shop/orders was deleted and created again since the replay began."


@pytest.mark.parametrize(
    ("spec", "changes", "sentence"),
    [
        ({"stream": "orders"}, None, "There is no ExactlyOnceStream shop/orders; name one of this namespace"),
        ({}, {"spec.sink.postgres": {"write": "Upsert", "keys": ["id"]}}, "write: Upsert has no version"),
        ({"from": {"failures": {"ids": ["7/orders-0/1"]}}}, {}, "shop/orders has no failed range 7/orders-0/1;"),
        (
            {"from": {"failures": {"ids": ["3/orders-0/0"]}}},
            {},
            "The range 3/orders-0/0 is Replayed: a replay has landed",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_one_sentence(
    spec: dict[str, Any], changes: dict[str, Any] | None, sentence: str
) -> None:
    made = world(**spec)
    made.rows.append(failed(3, 0, 0, 4, FailureStatus.REPLAYED))
    assert made.stream is not None
    if changes is not None and "spec.sink.postgres" in changes:
        changes = {f"spec.sink.postgres.{key}": value for key, value in changes["spec.sink.postgres"].items()}
    made.stream = None if changes is None else changed(made.stream, changes)
    assert made.run_pass().after_seconds is None
    assert made.status().phase is ReplayPhase.REFUSED
    assert sentence in made.status().message
    assert made.pods == {}
    assert {it.type for it in made.status().conditions if it.status == "True"} == {"Stalled"}


def test_ledger_rows_of_another_resource_are_not_replayed_into() -> None:
    made = world()
    made.row = type(ROW)(
        ROW.stream_id, ROW.token, Owner("cluster-2", "shop/orders/u-9"), ROW.database, Epoch(1), "ticket"
    )
    made.run_pass()
    assert made.status().phase is ReplayPhase.REFUSED
    assert "as the stream of shop/orders/u-9 in cluster-2, and not of this resource" in made.status().message


@pytest.mark.parametrize(
    ("broken", "after_seconds"),
    [
        (LedgerUnreachable("The database is down."), 5.0),
        (SecretMissing("Secret shop/warehouse is not there; create it."), 30.0),
        (NotCreated("Pod shop/mend-replay-1 cannot be created: exceeded quota."), 30.0),
        (LaunchFailed("Pod shop/mend-replay-1 exists and is not this stream's."), 30.0),
    ],
)
def test_what_is_missing_now_is_told_and_tried_again(broken: Exception, after_seconds: float) -> None:
    made = world()
    made.broken = broken
    assert made.run_pass().after_seconds == after_seconds
    assert made.status().message == str(broken)
    assert not made.status().phase.is_final
    made.broken = None
    assert made.until_final().phase is ReplayPhase.SUCCEEDED
    assert made.table == dict.fromkeys(ASKED, 1)


def test_a_manifest_that_the_api_server_refuses_for_good_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ManifestRefused("The API server refuses Pod mend-replay-1: no such priority class.")

    monkeypatch.setattr(Pods, "start", refused)
    made = world()
    made.run_pass()
    assert (made.status().phase, made.status().attempt) == (ReplayPhase.REFUSED, 1)


def test_a_pod_that_is_given_up_is_ended_before_the_next_one_begins() -> None:
    made = world()
    made.run_pass()
    made.pod().state = Gone("The image cannot be pulled.", "ImageNotPullable", pod=None)
    made.run_pass()
    assert made.effects[-3:] == ["kill pod", "record Pending", "tell Pending"]
    assert (
        made.status().message
        == "Attempt 1 ended before it was done, and the next one waits: The image cannot be pulled."
    )
    assert made.until_final().phase is ReplayPhase.SUCCEEDED


def test_a_pod_that_was_deleted_is_one_more_attempt_and_one_that_was_never_created_is_none() -> None:
    made = world()
    made.run_pass()
    made.pod().state = None  # the operator died between ConfigMap and pod
    assert (made.until_final().attempt, made.table) == (1, dict.fromkeys(ASKED, 1))
    made = world()
    made.run_pass()
    made.run_pass()
    made.pod().state = None
    assert (made.until_final().attempt, made.table) == (2, dict.fromkeys(ASKED, 1))


def test_another_operators_streams_are_left_to_it() -> None:
    made = world()
    assert made.run_pass(selector="shard=a").after_seconds is None
    assert made.effects == []
