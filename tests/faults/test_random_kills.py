"""Kills at moments drawn at random inside batches; more of them in `make test-full`, and as many as you like in `make soak`."""

from __future__ import annotations

import os
import random

import pytest

from tests.combinations import EVERY_MODE
from tests.random_kills import RandomKills
from tests.rig import Rig

KILLS, IDS = (12, 50_000) if EVERY_MODE else (6, 25_000)


@pytest.mark.seconds(60)
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("commit", ["Batch", "Partition"])
def test_kills_at_random_moments_lose_and_double_nothing(
    rig: Rig, commit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    rig.overrides["spec.sink.postgres.commit"] = commit
    rig.produce(IDS)
    kills = RandomKills(rig, KILLS, seed)
    try:
        kills.run()
        rig.assert_exactly_once()
    finally:
        with capsys.disabled():
            print(f"\ncommit: {commit}. {kills.histogram()}\nAgain: KILL_SEED={seed} make test-faults")
    assert kills.points.total() == KILLS
