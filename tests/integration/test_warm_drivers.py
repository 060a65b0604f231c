"""What the tests lean on where drivers get a JVM that was used before: see tests/warm."""

from __future__ import annotations

import psutil
import pytest

from exactlyonce.reconcile.loop import Done
from tests.rig import Rig
from tests.warm import launcher


def test_a_jvm_is_used_again_after_a_driver_that_ended_by_itself_and_dies_with_one_that_was_killed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "COLD", False)
    rig.produce(40)
    assert rig.run() == Done(completed=True), rig.story()
    rig.produce(40)
    assert rig.run(crash="batch.begun=kill-driver") == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "Resume", "ReplayBatch"]
    opened = rig.open()
    first, second, third = (
        launcher.shared_pool().lent_to[f"{opened.launcher.run_id}/{attempt}"] for attempt in (1, 2, 3)
    )
    assert first == second, "the first driver had left it clean"
    assert not psutil.pid_exists(second), "the second one was killed"
    assert psutil.pid_exists(third)
    assert third != second
