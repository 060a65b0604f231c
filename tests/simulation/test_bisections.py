"""Records that fail for good, of which the stream keeps out those alone: drawn seldom for all worlds, here for each seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus
from tests.simulation.log_world import LogWorld
from tests.simulation.oracle import run_seed
from tests.simulation.replay_world import ReplayWorld
from tests.simulation.two_phase_world import LOADS_ABORTED, SINK_SILENT, TwoPhaseWorld
from tests.simulation.world import SimulatedWorld
from tests.simulation.worlds import in_their_suites
from tests.suites import of_suite

SEEDS = 16
QUARANTINED = (FailureStatus.QUARANTINED, FailureStatus.REPLAYING, FailureStatus.REPLAYED)
NO_DEATHS = frozenset(
    {"poison", "brokers down", "cut at commit", "suspend", "limit changed", "new partition", "lose task"}
    | {"task fails late", "leader moves", "lose checkpoint", SINK_SILENT, LOADS_ABORTED}
)
"""Hazards that kill no driver, and take no record."""


def run_with_a_bisection(
    kind: type[SimulatedWorld], seed: int, hazards: frozenset[str] | None, commit: Commit = Commit.BATCH
) -> SimulatedWorld:
    drawn = kind(seed)
    drawn.simulation.close()
    scenario = drawn.scenario.delivered(Delivery.EXACTLY_ONCE).with_bisection()
    if hazards is not None:
        scenario = replace(scenario, hazards=(drawn.scenario.hazards & hazards) | {"poison"}, commit=commit)
    return run_seed(seed, scenario, kind)


def batches_landed_without(world: SimulatedWorld) -> int:
    rows = list(world.database.tables.rows.values())
    whole = {row.batch for row in rows if isinstance(row, BatchRow) and row.status is BatchStatus.QUARANTINED}
    held = [row for row in rows if isinstance(row, FailureRow) and row.status in QUARANTINED]
    return len({row.batch for row in held if row.batch not in whole})


@pytest.mark.parametrize("kind", in_their_suites([SimulatedWorld, LogWorld, TwoPhaseWorld, ReplayWorld]))
def test_with_any_hazard_a_stream_keeps_out_what_fails_and_loses_nothing(kind: type[SimulatedWorld]) -> None:
    worlds = [run_with_a_bisection(kind, seed, None) for seed in range(SEEDS)]
    assert sum(map(batches_landed_without, worlds)) >= 2, "some of these streams have landed a batch without a record"


@pytest.mark.parametrize(
    ("kind", "commit"),
    [
        (SimulatedWorld, Commit.BATCH),
        (SimulatedWorld, Commit.PARTITION),
        pytest.param(TwoPhaseWorld, Commit.BATCH, marks=of_suite("doris")),
    ],
)
def test_where_no_driver_dies_every_record_lands_but_those_that_fail(
    kind: type[SimulatedWorld], commit: Commit
) -> None:
    worlds = [run_with_a_bisection(kind, seed, NO_DEATHS, commit) for seed in range(2 * SEEDS)]
    assert sum(map(batches_landed_without, worlds)) >= SEEDS
    for world in worlds:
        fails = world.poison_records
        missing = {
            record
            for key, end in world.topic.ends.items()
            for record in (world.topic.record(key, offset) for offset in range(end))
            if not world.database.tables.target[record]
        }
        assert missing <= fails or world.fails_in_company, f"seed {world.seed}: {sorted(missing - fails)}"
