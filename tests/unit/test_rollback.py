"""A changed resource whose driver cannot start: passes over the API server, the ledger and the checkpoint, all in memory."""

from __future__ import annotations

from datetime import timedelta

import pytest

from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.port import (
    Ended,
    Gone,
    LaunchFailed,
    ManifestRefused,
    NotCreated,
)
from exactlyonce.positions.ranges import Epoch
from tests.unit.life_in_memory import BAD_IMAGE, CRASHED, GOOD_IMAGE, NOT_PULLABLE, Life, updated


def test_an_image_that_cannot_be_pulled_is_gone_back_from_and_the_stream_runs_on_and_says_so() -> None:
    life = updated()
    life.fail(BAD_IMAGE)
    good = life.until_driver_of(GOOD_IMAGE)
    assert (life.status.phase, life.stalled) == ("Running", ("True", "RolledBack"))
    assert life.server.events.count("RolledBack") == 1
    (ready,) = [it for it in life.resource["status"]["conditions"] if it["type"] == "Ready"]
    assert ready["status"] == "False", "what the resource asks for is not so"
    assert ready["message"] == (
        "The changed resource could not be started (2 times in a row; attempt 3: ImageNotPullable, The image cannot be "
        f"pulled). The stream was rolled back to the spec of attempt 1 and its image {GOOD_IMAGE}. Correct the resource, or "
        "change spec.restartNonce to try it again as it is."
    )
    assert life.status.verdict is not None
    assert life.status.verdict.attempt == good, "the start after the roll back reconciles first, as every start does"
    assert life.machine.view().stream.epoch == good
    for _ in range(3):
        life.run_pass()
    assert life.pods.drained == [1], "its driver is not replaced by one of the latest spec"


def test_one_failure_is_not_enough_and_what_comes_up_after_it_is_no_bad_update() -> None:
    life = updated()
    life.fail(BAD_IMAGE, times=1)
    attempt = life.until_driver_of(BAD_IMAGE)
    life.begin_batch(attempt)
    life.run_pass()
    assert life.status.bad_update is None
    assert life.status.last_good is not None
    assert (life.status.last_good.attempt, life.status.last_good.image) == (attempt, BAD_IMAGE)
    life.fail(BAD_IMAGE, times=4)
    assert "RolledBack" not in life.server.events, "it ran: its later failures are no bad update's"


FAILED = Ended("reaped", LastMessage(Ending.FAILED, "Java did not start."), "it ended")
REFUSED = Ended("reaped", LastMessage(Ending.REFUSED, "There is no function shop_total."), "it ended")
UNSCHEDULABLE = Gone("No node takes it", str(Reason.UNSCHEDULABLE))


@pytest.mark.parametrize(
    ("ending", "times"), [(CRASHED, 3), (FAILED, 3), (REFUSED, 1)], ids=["crash", "Java", "refused"]
)
def test_a_driver_that_ends_before_spark_is_up_is_gone_back_from(ending: Ended, times: int) -> None:
    life = updated()
    life.fail(BAD_IMAGE, times - 1, ending)
    assert life.status.bad_update is None or not life.status.bad_update.rolled_back
    life.fail(BAD_IMAGE, 1, ending)
    life.until_driver_of(GOOD_IMAGE)
    assert life.stalled == ("True", "RolledBack")


@pytest.mark.parametrize(
    "ending",
    [
        Gone("Its node is lost", str(Reason.NODE_LOST)),
        Ended("reaped", None, "It was evicted.", str(Reason.EVICTED), blames_batch=False),
        Ended("reaped", None, "It was preempted.", str(Reason.PREEMPTED), blames_batch=False),
        Ended("reaped", LastMessage(Ending.UNREACHABLE, "The warehouse does not answer."), "it ended"),
    ],
    ids=["lost node", "evicted", "preempted", "database"],
)
def test_what_says_nothing_of_the_update_counts_against_none(ending: Gone | Ended) -> None:
    life = updated()
    life.fail(BAD_IMAGE, 6, ending)
    assert life.status.bad_update is None
    assert "RolledBack" not in life.server.events


def test_a_full_cluster_is_no_bad_update_unless_the_template_or_the_size_was_changed() -> None:
    life = updated()
    life.fail(BAD_IMAGE, 4, UNSCHEDULABLE)
    assert life.status.bad_update is not None
    assert not life.status.bad_update.rolled_back
    assert "nothing that can cause this has changed since attempt 1" in (
        life.status.bad_update.not_rolled_back_message or ""
    )
    assert life.server.events.count("NotRolledBack") == 1

    nowhere = {"spec": {"nodeSelector": {"disk": "none-such"}}}
    life = updated({"spec.driver": {"podTemplate": nowhere}})
    life.fail(GOOD_IMAGE, 2, UNSCHEDULABLE)
    life.until_driver_of(GOOD_IMAGE)
    assert life.stalled == ("True", "RolledBack")
    made = life.pods.specs[Epoch(life.status.attempt)]
    assert "driver" not in made, "the last good spec, as a whole"


@pytest.mark.parametrize(
    ("refusal", "times"),
    [(ManifestRefused("no such volume"), 1), (NotCreated("no service account"), 5)],
    ids=["422", "403"],
)
def test_a_pod_that_the_api_server_refuses_is_a_bad_update_where_the_template_was_changed(
    refusal: Exception, times: int
) -> None:
    life = updated({"spec.driver": {"serviceAccountName": "none-such"}})
    life.pods.refusal = refusal
    before = life.status.attempt
    life.settle(lambda: life.status.bad_update is not None and life.status.bad_update.failures == times)
    assert life.status.attempt == before + times
    life.pods.refusal = None
    life.until_driver_of(GOOD_IMAGE)
    assert life.stalled == ("True", "RolledBack")
    assert "driver" not in life.pods.specs[Epoch(life.status.attempt)]


def test_a_pod_that_would_be_refused_makes_no_attempt_and_is_gone_back_from_after_a_minute() -> None:
    life = updated({"spec.driver": {"serviceAccountName": "none-such"}})
    life.missing_account = "none-such"
    before = life.status.attempt
    for _ in range(30):  # whatever wakes the stream within a second does not count
        life.run_pass()
    assert life.status.bad_update is not None
    assert life.status.bad_update.failures == 1
    began = life.machine.now
    for _ in range(4):
        life.machine.now += timedelta(seconds=15)
        life.run_pass()
    assert life.machine.now - began == timedelta(minutes=1)
    assert life.status.attempt == before, "no attempt was made"
    attempt = life.until_driver_of(GOOD_IMAGE)
    assert (attempt, life.stalled) == (before + 1, ("True", "RolledBack"))
    life.begin_batch(attempt)
    life.end(CRASHED)
    life.until_driver_of(GOOD_IMAGE)
    assert life.stalled == ("True", "RolledBack"), "what ran since is no attempt of the update"


def test_a_launch_that_fails_for_another_reason_counts_against_no_update() -> None:
    life = updated()
    life.pods.refusal = LaunchFailed("It was there and is gone.")
    for _ in range(8):
        life.run_pass()
        life.machine.now += timedelta(hours=1)
    assert life.status.bad_update is None


def test_stay_tries_the_changed_resource_again_and_again_and_may_be_chosen_later() -> None:
    life = updated({"spec.image": BAD_IMAGE, "spec.recovery": {"onBadUpdate": "Stay"}})
    life.fail(BAD_IMAGE, 4)
    assert "RolledBack" not in life.server.events
    life.change(**{"spec.recovery": {}})
    life.until_driver_of(GOOD_IMAGE)
    assert life.stalled == ("True", "RolledBack")
    life.change(**{"spec.recovery": {"onBadUpdate": "Stay"}})
    life.replace_driver()
    life.until_driver_of(BAD_IMAGE)
    assert life.stalled[1] != "RolledBack"


def test_a_first_start_has_nothing_to_go_back_to() -> None:
    life = Life()
    life.change(**{"spec.image": BAD_IMAGE})
    life.fail(BAD_IMAGE, 5)
    assert (life.status.last_good, life.status.bad_update) == (None, None)
    assert life.stalled == ("False", NOT_PULLABLE)
