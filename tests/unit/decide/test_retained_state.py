"""A query that keeps state continues in a new generation with the state of what landed, or halts and says what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.api.recovery import OnSourceTruncated
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.retained import NotRetained, Retained
from exactlyonce.checkpoint.state import Absent
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.kept_state import state_to_look_for
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Launch,
    RebuildFromSink,
    RewindToSink,
    SeedAndPublish,
)
from tests.unit.decide.facts import (
    FIRST,
    MAY_LIVE,
    ONE,
    ZERO,
    asked,
    at,
    damaged,
    ledger,
    location,
    logs,
    seed,
    seen,
    source,
)

STATEFUL = ledger(stateful=True)
FOUR = BatchNumber(4)
OF_4 = Retained(FIRST, FOUR, at(30, 20), at(40, 30), ("metadata",))
SECOND = Generation(2, Epoch(6))

AHEAD = {
    "one batch": seen(logs(5, 5, at(40, 30), at(50, 45)), ledger=STATEFUL),
    "one batch, and the next is planned": seen(logs(6, 5, at(50, 45), at(60, 60)), ledger=STATEFUL),
    "two batches that were planned": seen(logs(6, None, at(50, 45), at(60, 60)), ledger=STATEFUL),
    "a generation that the ledger has forgotten": seen(
        ledger=STATEFUL,
        location=location(
            generations=(FIRST, SECOND),
            highest_planned={FIRST: FOUR, SECOND: BatchNumber(9)},
            ran=frozenset({FIRST, SECOND}),
        ),
    ),
}


@pytest.mark.parametrize("facts", AHEAD.values(), ids=AHEAD)
def test_a_checkpoint_that_is_ahead_is_left_with_the_state_of_the_landed_batch(facts: Observation) -> None:
    assert state_to_look_for(facts) == (FIRST, FOUR)
    without = decide(replace(facts, ledger=ledger()))
    decision = decide(replace(facts, retained=OF_4))
    assert isinstance(decision.verdict, RewindToSink)
    reason = f"{without.verdict.message} It is made of the state that {FIRST.folder} retains of batch 4."
    assert decision.verdict.message == reason
    (made,) = [action for action in without.actions if isinstance(action, SeedAndPublish)]
    assert decision.actions == (
        replace(seed(reason, 4), generation=made.generation, state_of=FIRST),
        Launch(),
    )


@pytest.mark.parametrize(
    "facts",
    [
        seen(damaged(5), ledger=STATEFUL),
        seen(logs(4, 4, at(30, 20), at(41, 30)), ledger=STATEFUL),
        seen(logs(5, 4, at(39, 30), at(50, 45)), ledger=STATEFUL),
        seen(ledger=STATEFUL, predecessor=MAY_LIVE),
    ],
    ids=["is damaged", "planned the landed batch otherwise", "planned the next otherwise", "may still be written"],
)
def test_a_checkpoint_that_cannot_be_gone_on_with_for_another_reason_is_left_in_the_same_way(
    facts: Observation,
) -> None:
    assert state_to_look_for(facts) == (FIRST, FOUR)
    decision = decide(replace(facts, retained=OF_4))
    assert isinstance(decision.verdict, RebuildFromSink)
    (made,) = [action for action in decision.actions if isinstance(action, SeedAndPublish)]
    assert (made.state_of, made.seed_batch, made.after.positions) == (FIRST, 4, at(40, 30))


def halted(facts: Observation) -> Contradiction:
    decision = decide(facts)
    assert isinstance(decision.verdict, Contradiction)
    assert decision == Decision(decision.verdict)
    assert decision.verdict.reason is ContradictionReason.STATE_WOULD_BE_LOST
    return decision.verdict


@pytest.mark.parametrize(
    ("retained", "told"),
    [
        (
            replace(OF_4, end=at(41, 30)),
            "generation-000001-a1 planned batch 4 up to orders-0@41, orders-1@30, and the sink stands at orders-0@40, "
            "orders-1@30",
        ),
        (
            replace(OF_4, start=at(31, 20)),
            "generation-000001-a1 planned batch 4 from orders-0@31, orders-1@20, and it landed with orders-0 [30, 40), "
            "orders-1 [20, 30)",
        ),
        (NotRetained("state/0/1 has no version 5"), "state/0/1 has no version 5"),
    ],
    ids=["of another end", "of another start", "pruned"],
)
def test_state_that_is_not_of_what_landed_is_not_used(retained: Retained | NotRetained, told: str) -> None:
    verdict = halted(replace(AHEAD["one batch"], retained=retained))
    assert f"which offsets alone cannot rebuild ({told}): restore the checkpoint; or, to continue" in verdict.message
    assert "starts at the offsets orders-0@40, orders-1@30" in verdict.message


def test_a_halt_names_the_oldest_batch_to_which_the_database_may_be_restored() -> None:
    verdict = halted(replace(AHEAD["one batch"], retained=NotRetained("it is gone", BatchNumber(7))))
    assert "or restore the database to a moment when batch 7 or a later one had landed" in verdict.message


def test_retained_state_is_of_no_use_where_records_are_given_up() -> None:
    """The state of the landed batch knows nothing of a jump; what it would count then is not what the source held."""
    request = asked(on_source_truncated=OnSourceTruncated.RESUME_FROM_EARLIEST)
    truncated = source({ZERO: (43, 100), ONE: (0, 100)})
    verdict = halted(replace(AHEAD["one batch"], request=request, source=truncated, retained=OF_4))
    assert "no longer holds 3 records" in verdict.message


@pytest.mark.parametrize(
    "facts",
    [
        seen(ledger=STATEFUL),
        seen(logs(5, 4, at(40, 30), at(50, 45)), ledger=STATEFUL),
        replace(AHEAD["one batch"], ledger=ledger()),
        seen(Absent(), ledger=ledger(stateful=True, checkpoint_path="/elsewhere/generation-000001-a1")),
        seen(Absent(), ledger=ledger(0, Positions(), (), stateful=True)),
    ],
    ids=["all agree", "the next is planned", "no state", "another location", "nothing landed but the seed"],
)
def test_state_is_looked_for_only_where_it_may_be_needed(facts: Observation) -> None:
    assert state_to_look_for(facts) is None
