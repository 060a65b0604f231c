"""A landing whose COMMIT nobody answered is looked for under the lock, run again if it is not there, never taken for done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from exactlyonce.errors import CommitOutcomeUnknown
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.races import UNKNOWN_TRIES
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.planned import LandingRefused, PlannedBatch
from exactlyonce_spark.settling import settled
from tests.ledgers import P0, P1
from tests.unit.test_batch_loop import Scenario

BATCH = PlannedBatch(BatchNumber(1), Ranges({P0: OffsetRange(0, 5), P1: OffsetRange(0, 0)}), {"orders": "id-1"})


class Landing:
    """A landing whose first COMMITs are lost, and what else happens as they are."""

    def __init__(self, lost: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.lost, self.meanwhile, self.runs = lost, meanwhile, 0

    def __call__(self) -> None:
        self.runs += 1
        if self.runs <= self.lost:
            self.meanwhile()
            raise CommitOutcomeUnknown("the connection was lost during COMMIT")


@pytest.mark.parametrize("lost", range(UNKNOWN_TRIES))
def test_a_landing_that_was_lost_is_run_again_until_it_lands(lost: int) -> None:
    scenario, landing = Scenario(), Landing(lost)
    settled(scenario.ledger, scenario.permit, BATCH, landing)
    assert landing.runs == lost + 1


def test_a_landing_that_is_lost_every_time_is_told_as_unknown_and_not_as_done() -> None:
    scenario, landing = Scenario(), Landing(100)
    with pytest.raises(CommitOutcomeUnknown):
        settled(scenario.ledger, scenario.permit, BATCH, landing)
    assert landing.runs == UNKNOWN_TRIES


def test_a_landing_that_is_there_although_nobody_answered_is_not_run_again() -> None:
    scenario = Scenario()
    landing = Landing(1, lambda: scenario.loop().run(scenario.batch(1)))
    settled(scenario.ledger, scenario.permit, BATCH, landing)
    assert landing.runs == 1


def test_another_batch_that_has_landed_under_the_number_is_not_taken_for_this_one() -> None:
    scenario = Scenario()
    landing = Landing(1, lambda: scenario.loop().run(scenario.batch(1)))
    other = replace(BATCH, ranges=Ranges({P0: OffsetRange(0, 4), P1: OffsetRange(0, 0)}))
    with pytest.raises(LandingRefused):
        settled(scenario.ledger, scenario.permit, other, landing)


def test_the_session_of_a_lost_landing_that_holds_the_lock_for_ever_is_ended() -> None:
    def until(label: str, may_go: Callable[[], bool]) -> None:
        while not may_go():
            pass

    scenario = Scenario()
    scenario.database.hooks.wait = until
    landing = Landing(1, lambda: scenario.ledger.transaction().__enter__().lock_stream("shop/orders", Lock.UPDATE))
    settled(scenario.ledger, scenario.permit, BATCH, landing)
    assert landing.runs == 2
