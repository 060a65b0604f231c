"""A stream that was rolled back: what a person does then, what stays in force, and an operator that dies meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from exactlyonce.api.status import DriverStatus
from exactlyonce.launch.port import (
    DriverPod,
    Gone,
)
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.bad_update import after_running
from tests.unit.life_in_memory import BAD_IMAGE, CRASHED, DEFAULT_IMAGE, GOOD_IMAGE, NOT_PULLABLE, Life, updated
from tests.unit.passes import Died


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
