"""A person sets the positions of a stream, with all that may go wrong beside: what is drawn for no other world, drawn here."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from exactlyonce.api.spec import Delivery
from tests.simulation.asked_resets import RESET
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.log_world import LogWorld
from tests.simulation.oracle import run_seed
from tests.simulation.resets import with_resets
from tests.simulation.scenario import Scenario
from tests.simulation.two_phase_world import TwoPhaseWorld
from tests.simulation.world import SimulatedWorld
from tests.simulation.worlds import in_their_suites

SEEDS = {SimulatedWorld: 20, LogWorld: 6, KinesisWorld: 8, TwoPhaseWorld: 8}
FEW = frozenset({RESET, "suspend", "kill driver", "strike at commit", "lose checkpoint", "poison"})


def run_with_resets(kind: type[SimulatedWorld], seed: int) -> SimulatedWorld:
    drawn = replace(Scenario.draw(random.Random(seed)), delivery=Delivery.EXACTLY_ONCE)
    scenario = with_resets(drawn)
    few = scenario if kind is SimulatedWorld else replace(scenario, hazards=scenario.hazards & FEW)
    return run_seed(seed, few, kind)


@pytest.mark.parametrize("kind", in_their_suites(SEEDS))
def test_each_record_lands_once_more_for_each_time_that_it_is_to_be_read_again_and_is_kept_where_it_is_skipped(
    kind: type[SimulatedWorld],
) -> None:
    worlds = [run_with_resets(kind, seed) for seed in range(SEEDS[kind])]
    assert sum(world.asked.applied for world in worlds) > 0, "some of what is asked for is done"
