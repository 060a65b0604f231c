"""Replays beside a stream: what only some worlds have, drawn here for each seed, and what they have come to."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest

from exactlyonce.ledger import publish
from exactlyonce.ledger.letters import LetterStatus
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import OffsetRange
from exactlyonce.reconcile import reset_offsets
from exactlyonce_spark import replay_loads, two_phase_landing
from tests.simulation.asked_resets import RESET
from tests.simulation.give_up_world import GiveUpWorld
from tests.simulation.kinesis_replay_world import KinesisReplayWorld
from tests.simulation.letters_world import LettersWorld
from tests.simulation.loads_replay_world import LoadsReplayWorld, scenario_of_replayed_loads
from tests.simulation.oracle import run_seed
from tests.simulation.replay_world import HAZARDS_BESIDE, ReplayWorld, scenario_of_replays
from tests.simulation.resets import with_resets
from tests.simulation.scenario import Scenario
from tests.simulation.search import scenario_of
from tests.simulation.two_phase_world import LOADS_ABORTED, SINK_SILENT
from tests.simulation.violations import Violation
from tests.simulation.world import SimulatedWorld
from tests.suites import of_suite

SEEDS = 6 * len(HAZARDS_BESIDE)
SEEDS_OF_LETTERS = 60
SEEDS_OF_GIVE_UPS = 40
SEEDS_OF_LOADS, SEEDS_OF_FAILOVERS = 160, 40
SEEDS_OF_RESETS, DOUBLED_BY_A_RESET = 20, 4886
SEEDS_OF_SHARDS = 40


def test_replays_that_run_beside_each_other_and_the_stream_land_records_and_leave_none_in_doubt() -> None:
    worlds = [run(seed) for seed in range(SEEDS)]
    outcomes = [outcome for world in worlds for outcome in world.outcomes]
    assert sum(outcome.landed for outcome in outcomes) > 50, (
        "replays have landed records, and the oracle counted each once"
    )
    assert sum(outcome.failed for outcome in outcomes) > 0, "a record failed again, and what stood beside it landed"
    overtaken = [words for outcome in outcomes for words in outcome.told if "not held by this replay any more" in words]
    assert overtaken, "one replay has taken what another one had"
    assert any(process.dead for world in worlds for process in world.replays), "some were killed"
    assert any(len(world.replays) > 1 for world in worlds)


def test_what_a_replay_that_was_killed_has_not_landed_is_landed_by_the_next_one() -> None:
    for seed in range(6 * SEEDS):
        if scenario_of_replays(seed).hazards != {"kill driver", "poison"}:
            continue
        world = run(seed)
        left = [row for row in world.in_quarantine() if row.status is FailureStatus.REPLAYING]
        if left:
            break
    else:
        raise AssertionError("no seed has left a range to a replay that was killed")
    before = set(world.database.tables.target)
    world.start_replay()
    while world.simulation.run_one():
        pass
    world.simulation.close()
    landed = set(world.database.tables.target) - before
    assert landed >= {record for row in left for record in records_of(world, row)}
    assert max(world.database.tables.target.values()) == 1
    assert not world.in_quarantine()


@of_suite("kinesis")
def test_replays_of_shards_land_each_record_once_and_what_has_expired_by_then_is_lost_and_told() -> None:
    worlds = [run_seed(seed, kind=KinesisReplayWorld) for seed in range(SEEDS_OF_SHARDS)]
    expiring = partial(scenario_of, "a_range_is_lost_as_a_whole_once_its_beginning_has_expired")
    worlds += [run_seed(seed, expiring(seed), KinesisReplayWorld) for seed in range(SEEDS_OF_SHARDS)]
    outcomes = [outcome for world in worlds if isinstance(world, KinesisReplayWorld) for outcome in world.outcomes]
    assert sum(outcome.landed for outcome in outcomes) > 10, "the oracle counted each once"
    assert sum(outcome.uncounted for outcome in outcomes) > 0, "the oracle found that what was given up had expired"
    told = [words for outcome in outcomes for words in outcome.told]
    for expected in ("how many is not known", "not held by this replay any more"):
        assert any(expected in words for words in told), expected


def test_what_a_person_gives_up_while_replays_have_it_lands_no_more() -> None:
    runs = [run_seed(seed, kind=GiveUpWorld) for seed in range(SEEDS_OF_GIVE_UPS)]
    worlds = [world for world in runs if isinstance(world, GiveUpWorld)]
    assert sum(len(world.told) for world in worlds) > 20, "the oracle found none of these landed"
    assert any(world.taken_back for world in worlds), "some were taken back"
    overtaken = [words for world in worlds for it in world.outcomes for words in it.told if "not held by this" in words]
    assert overtaken, "a replay had taken what was given up, or what another one took"
    assert sum(outcome.landed for world in worlds for outcome in world.outcomes) > 5


def test_dead_letters_are_replayed_beside_the_stream_and_by_several_at_once_and_each_lands_once_or_stays() -> None:
    runs = [run_seed(seed, kind=LettersWorld) for seed in range(SEEDS_OF_LETTERS)]
    worlds = [world for world in runs if isinstance(world, LettersWorld)]
    assert sum(outcome.landed for world in worlds for outcome in world.outcomes) > 30, "the oracle counted each once"
    told = [words for world in worlds for outcome in world.outcomes for words in outcome.told]
    for expected in ("failed again: malformed as before", "failed again: the transform fails", "is Replayed"):
        assert any(expected in words for words in told), expected
    assert any("is not held by this replay any more" in words for words in told), "one has taken what another one had"
    statuses = {letter.status for world in worlds for letter in world.letters()}
    assert {LetterStatus.KEPT, LetterStatus.REPLAYED} <= statuses
    assert any(world.asked.applied for world in worlds), "some were set back beside that"
    given = [outcome for world in worlds for outcome in world.given]
    assert sum(outcome.landed for outcome in given) > 0, "what a reset had skipped was taken up"


@of_suite("doris")
def test_replays_into_loads_land_records_though_they_die_and_the_sink_aborts_what_they_decided() -> None:
    found: list[int] = []
    finish = replay_loads.finish_beside

    def counted(ledger: Any, stream_id: str, target: Any, decisions: Any) -> None:
        found.append(len(decisions))
        finish(ledger, stream_id, target, decisions)

    with mock.patch.object(two_phase_landing, "finish_beside", counted):
        runs = [run_seed(seed, kind=LoadsReplayWorld) for seed in range(SEEDS_OF_LOADS)]
        runs += [run_seed(seed, failing_over(seed), LoadsReplayWorld) for seed in range(SEEDS_OF_FAILOVERS)]
    worlds = [world for world in runs if isinstance(world, LoadsReplayWorld)]
    outcomes = [outcome for world in worlds for outcome in world.outcomes]
    assert sum(outcome.landed for outcome in outcomes) > 50, "the oracle counted each once"
    told = [words for outcome in outcomes for words in outcome.told]
    for expected in ("is decided by a replay", "The sink has aborted the load", "is not held by this replay any more"):
        assert any(expected in words for words in told), expected
    assert any(process.dead for world in worlds for process in world.replays), "some were killed"
    assert {world.has_one_producer for world in worlds} == {True, False}
    assert sum(world.went_back for world in worlds) > 5, "a failover has taken decisions from the ledger"
    assert sum(world.found_there for world in worlds) > 10, (
        "a person has found in the sink what the ledger had forgotten"
    )
    assert any(found), "a driver has come upon what a replay had decided"


@of_suite("doris")
def test_a_reset_beside_replays_into_loads_has_nothing_read_again_that_a_replay_has_decided() -> None:
    def with_a_reset(seed: int, hazards: frozenset[str] | None = None) -> SimulatedWorld:
        scenario = with_resets(scenario_of_replayed_loads(seed))
        return run_seed(seed, replace(scenario, hazards=hazards or scenario.hazards), LoadsReplayWorld)

    few = frozenset({RESET, "suspend", "poison", SINK_SILENT, "kill driver"})
    worlds = [with_a_reset(seed) for seed in range(SEEDS_OF_RESETS)]
    worlds.append(with_a_reset(DOUBLED_BY_A_RESET, few))
    assert sum(world.asked.times for world in worlds) > 10
    looks = [mock.patch.object(module, "decided_of", lambda *_: ()) for module in (publish, reset_offsets)]
    with looks[0], looks[1], pytest.raises(Violation, match="doubled"):
        with_a_reset(DOUBLED_BY_A_RESET, few)


def failing_over(seed: int) -> Scenario:
    """Return a scenario whose sink remembers its labels, or no ledger goes back behind it."""
    return replace(scenario_of_replayed_loads(seed), hazards=frozenset({"kill driver", "poison", LOADS_ABORTED}))


def run(seed: int) -> ReplayWorld:
    world = run_seed(seed, kind=ReplayWorld)
    assert isinstance(world, ReplayWorld)
    return world


def records_of(world: ReplayWorld, row: FailureRow) -> set[Hashable]:
    return world.records_in(row.partition, OffsetRange(row.from_offset, row.until_offset))
