"""A changed resource whose driver cannot start: passes over the API server, the ledger and the checkpoint, all in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from exactlyonce.api.status import DriverStatus
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.port import (
    DriverPod,
    Ended,
    Gone,
    LaunchFailed,
    ManifestRefused,
    NotCreated,
)
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.bad_update import after_running
from tests.unit.life_in_memory import BAD_IMAGE, DEFAULT_IMAGE, GOOD_IMAGE, NOT_PULLABLE, Life, updated
from tests.unit.passes import Died


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


CRASHED = Ended("reaped", None, "It crashed.", str(Reason.CRASHED))
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


@pytest.mark.parametrize(
    "change",
    [{"spec.image": "registry.example/spark:3"}, {"spec.restartNonce": 1}],
    ids=["another image", "the same again"],
)
def test_what_a_person_asks_for_after_a_roll_back_is_tried(change: dict[str, Any]) -> None:
    life = updated()
    life.fail(BAD_IMAGE)
    life.until_driver_of(GOOD_IMAGE)
    life.change(**change)
    life.replace_driver()
    attempt = life.until_driver_of(life.resource["spec"]["image"])
    assert life.stalled[1] != "RolledBack"
    life.begin_batch(attempt)
    life.run_pass()
    assert life.status.last_good is not None
    assert life.status.last_good.attempt == attempt


def test_a_resource_that_is_set_back_by_hand_is_what_runs_already() -> None:
    life = updated()
    life.fail(BAD_IMAGE)
    attempt = life.until_driver_of(GOOD_IMAGE)
    life.change(**{"spec.image": GOOD_IMAGE})
    for _ in range(3):
        life.run_pass()
    assert (life.status.attempt, life.pods.drained, life.stalled) == (attempt, [1], ("False", "Running"))


def test_a_change_of_what_is_read_or_written_is_never_rolled_back() -> None:
    transform = {"sql": "SELECT id FROM source"}
    life = updated({"spec.image": BAD_IMAGE, "spec.transform": transform})
    life.fail(BAD_IMAGE, 4)
    assert life.status.bad_update is not None
    assert "not rolled back to that of attempt 1, which ran: transform changed as well" in (
        life.status.bad_update.not_rolled_back_message or ""
    )
    assert "RolledBack" not in life.server.events
    assert life.server.events.count("NotRolledBack") == 1


def test_an_attempt_that_ran_unseen_is_never_gone_back_from() -> None:
    """The operator was down while it ran; it finds the driver gone and the batch that it planned in the ledger."""
    life = updated()
    for _ in range(3):
        life.until_driver_of(BAD_IMAGE)
        life.begin_batch(Epoch(life.status.attempt))
        life.end(CRASHED)
        assert life.status.bad_update is None, "the ledger is asked before anything is counted"
        assert life.status.last_good is not None
        assert life.status.last_good.attempt == life.status.attempt
    assert "RolledBack" not in life.server.events


def test_an_attempt_that_was_given_up_and_came_up_before_its_fence_is_no_bad_update() -> None:
    life = updated()
    life.fail(BAD_IMAGE, 2)
    bad = life.status.bad_update
    assert bad is not None
    assert bad.failures == 2
    assert bad.attempt is not None
    life.begin_batch(Epoch(bad.attempt))
    life.until_driver_of(BAD_IMAGE)
    assert (life.status.bad_update, life.stalled[1] != "RolledBack") == (None, True)


def test_the_operators_seed_is_no_proof_that_spark_was_up() -> None:
    """A checkpoint that was lost with the update is rebuilt for each attempt, with a batch of that attempt's epoch."""
    life = updated()
    life.until_driver_of(BAD_IMAGE)
    life.end(Gone("cannot be pulled", NOT_PULLABLE))
    for path in [path for path in life.machine.store.files if path != "stream.json"]:
        del life.machine.store.files[path]
    attempt = life.until_driver_of(BAD_IMAGE)
    assert next((row.epoch, row.status) for row in life.machine.view().batches) == (attempt, BatchStatus.SEEDED)
    life.end(Gone("cannot be pulled", NOT_PULLABLE))
    life.until_driver_of(GOOD_IMAGE)


def test_suspend_and_resume_leave_a_roll_back_as_it_is() -> None:
    life = updated()
    life.fail(BAD_IMAGE)
    life.until_driver_of(GOOD_IMAGE)
    life.change(**{"spec.suspend": True})
    life.replace_driver()
    life.settle(lambda: life.status.phase == "Suspended")
    assert life.stalled == ("False", "Suspended")
    life.change(**{"spec.suspend": False})
    life.until_driver_of(GOOD_IMAGE)
    assert life.stalled == ("True", "RolledBack")
    assert BAD_IMAGE not in [life.pods.images[Epoch(it)] for it in range(4, life.status.attempt + 1)]


def test_fields_that_the_operator_alone_reads_are_those_of_the_latest_spec() -> None:
    life = updated()
    life.fail(BAD_IMAGE)
    life.until_driver_of(GOOD_IMAGE)
    life.change(**{"spec.history": 7, "spec.driver": {"startTimeout": "1m"}})
    for _ in range(3):
        life.run_pass()
    assert (life.pods.drained, life.stalled) == ([1], ("True", "RolledBack"))
    life.end(CRASHED)
    life.until_driver_of(GOOD_IMAGE)
    made = life.pods.specs[Epoch(life.status.attempt)]
    assert (made["history"], made["driver"]) == (7, {"startTimeout": "1m"})


def test_a_good_spec_that_is_not_allowed_any_more_is_not_started() -> None:
    life = updated()
    life.lists = f'[{{"namespaces": ["shop"], "images": ["{BAD_IMAGE}"]}}]'
    life.fail(BAD_IMAGE, 4)
    assert set(life.pods.images.values()) == {GOOD_IMAGE, BAD_IMAGE}
    assert [life.pods.images[Epoch(it)] for it in range(2, 6)] == [BAD_IMAGE] * 4
    assert life.status.bad_update is not None
    assert "no longer allowed" in (life.status.bad_update.not_rolled_back_message or "")


def test_a_driver_of_a_good_spec_that_is_not_allowed_any_more_runs_on_without_a_successor() -> None:
    life = updated()
    life.fail(BAD_IMAGE)
    attempt = life.until_driver_of(GOOD_IMAGE)
    life.lists = f'[{{"namespaces": ["shop"], "images": ["{BAD_IMAGE}"]}}]'
    for _ in range(3):
        life.run_pass()
    assert (life.status.attempt, life.pods.drained, life.stalled) == (attempt, [1], ("True", "RolledBack"))
    life.end(CRASHED)
    life.until_driver_of(BAD_IMAGE)
    assert life.stalled[1] != "RolledBack"


def test_a_spec_that_turns_invalid_after_a_roll_back_leaves_the_last_good_one_in_force() -> None:
    life = updated()
    life.fail(BAD_IMAGE)
    attempt = life.until_driver_of(GOOD_IMAGE)
    life.change(**{"spec.delivery": "Sometimes"})
    life.end(CRASHED)
    life.settle(lambda: life.status.attempt > attempt and life.driver_is_there())
    assert life.pods.images[Epoch(life.status.attempt)] == GOOD_IMAGE
    assert life.stalled == ("True", "SpecInvalid")


def test_a_status_of_an_earlier_release_learns_from_the_driver_that_runs() -> None:
    life = Life()
    attempt = life.until_driver_of(GOOD_IMAGE)
    life.begin_batch(attempt)
    life.run_pass()
    del life.resource["status"]["lastGood"]
    life.change(**{"spec.image": BAD_IMAGE})
    life.replace_driver()
    assert life.status.last_good is not None, "it has drained, so it ran"
    life.fail(BAD_IMAGE)
    life.until_driver_of(GOOD_IMAGE)


def test_the_spec_that_is_gone_back_to_is_kept_however_many_attempts_fail() -> None:
    life = updated({"spec.image": BAD_IMAGE, "spec.recovery": {"onBadUpdate": "Stay"}, "spec.history": 0})
    life.fail(BAD_IMAGE, 6)
    life.run_pass()
    assert Epoch(1) in life.pods.specs
    life.pods.specs.pop(Epoch(1))
    life.change(**{"spec.recovery": {}})
    life.fail(BAD_IMAGE, 1)
    assert life.status.bad_update is not None
    assert "no longer there" in (life.status.bad_update.not_rolled_back_message or ""), (
        "without it nothing is rolled back"
    )


def test_a_new_default_image_that_cannot_start_is_gone_back_from_to_the_image_that_ran() -> None:
    life = updated(
        {"spec.restartNonce": 1, "spec.image": None}, started=lambda life: life.change(**{"spec.image": None})
    )
    life.default_image = BAD_IMAGE  # the operator was upgraded meanwhile
    life.fail(BAD_IMAGE)
    attempt = life.until_driver_of(DEFAULT_IMAGE)
    assert life.stalled == ("True", "RolledBack")
    assert life.status.last_good is not None
    life.begin_batch(attempt)
    life.run_pass()
    assert (life.status.last_good.attempt, life.stalled) == (attempt, ("True", "RolledBack"))
    life.end(CRASHED)
    life.until_driver_of(DEFAULT_IMAGE)


def _rolled_back() -> Life:
    life = updated()
    life.fail(BAD_IMAGE, 1)
    life.until_driver_of(BAD_IMAGE)
    attempt = Epoch(life.status.attempt)
    life.pods.states[attempt] = Gone("cannot be pulled", NOT_PULLABLE, DriverPod("orders-3", BAD_IMAGE))
    life.machine.effects.clear()
    return life


def _goes_on(life: Life) -> list[str]:
    life.until_driver_of(GOOD_IMAGE)
    assert (life.status.phase, life.stalled) == ("Running", ("True", "RolledBack"))
    assert set(life.pods.images.values()) == {GOOD_IMAGE, BAD_IMAGE}
    made = [life.pods.images[it] for it in sorted(life.pods.images)]
    assert made.count(BAD_IMAGE) == 2, "no further attempt is made of what was rolled back"
    assert life.machine.view().stream.epoch == life.status.attempt
    return list(life.machine.effects)


EFFECTS = _goes_on(_rolled_back())


@pytest.mark.parametrize("dies_before", range(len(EFFECTS)), ids=lambda at: f"{at}-{EFFECTS[at].replace(' ', '-')}")
def test_an_operator_that_dies_at_any_point_of_a_roll_back_comes_to_the_same_end(dies_before: int) -> None:
    life = _rolled_back()
    life.machine.dies_before = dies_before
    with pytest.raises(Died):
        _goes_on(life)
    _goes_on(life)


def test_a_driver_that_runs_ends_no_bad_update_of_another_spec_whatever_image_it_had() -> None:
    status = _rolled_back().status
    assert status.bad_update is not None
    runs = DriverStatus(attempt=status.attempt, plan="another", image=status.bad_update.image)
    assert after_running(status, runs)["bad_update"] == status.bad_update
    assert after_running(status, runs.model_copy(update={"plan": status.bad_update.plan}))["bad_update"] is None
