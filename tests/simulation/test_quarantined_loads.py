"""A batch that fails again and again in a sink of two phases: what is drawn seldom for all worlds, drawn here for each seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.mutations.quarantines import positions_move_past_a_batch_that_no_failure_names
from tests.simulation.oracle import Violation, run_seed
from tests.simulation.reasons import has_quarantined
from tests.simulation.shared_labels import SharedLabelsWorld
from tests.simulation.two_phase_world import LOADS_ABORTED, SINK_SILENT, TwoPhaseWorld
from tests.simulation.world import SimulatedWorld

SEEDS = 16
HAZARDS = frozenset(
    {"poison", "kill driver", "strike at commit", "task fails late", "lose task", SINK_SILENT, LOADS_ABORTED}
)


def run_with_a_quarantine(kind: type[SimulatedWorld], seed: int) -> SimulatedWorld:
    drawn = kind(seed)
    drawn.simulation.close()
    scenario = drawn.scenario.with_quarantine()
    return run_seed(seed, replace(scenario, hazards=scenario.hazards & HAZARDS), kind)


@pytest.mark.parametrize("kind", [TwoPhaseWorld, SharedLabelsWorld])
def test_a_stream_that_continues_after_a_poison_batch_loads_every_other_record_once(kind: type[SimulatedWorld]) -> None:
    worlds = [run_with_a_quarantine(kind, seed) for seed in range(SEEDS)]
    assert sum(map(has_quarantined, worlds)) >= 2, "some of these streams have quarantined a batch"


def test_a_quarantine_that_keeps_no_ranges_is_found_over_loads_as_well() -> None:
    def run_all() -> None:
        for seed in range(SEEDS):
            run_with_a_quarantine(TwoPhaseWorld, seed)

    with positions_move_past_a_batch_that_no_failure_names(), pytest.raises(Violation):
        run_all()
