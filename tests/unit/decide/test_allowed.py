"""What the resource and the query's state allow once the checkpoint is to be left, and what is recorded on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.api.recovery import OnCheckpointLost
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.state import Absent
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    Launch,
    RebuildFromSink,
    RebuildReason,
    RecordLost,
    RewindToSink,
    SeedAndPublish,
)
from tests.unit.decide.facts import (
    BATCH_4,
    EMPTY,
    FIRST,
    MAY_LIVE,
    TOKEN,
    asked,
    at,
    batch,
    ledger,
    location,
    logs,
    ranges,
    seed,
    seen,
)
from tests.unit.decide.test_going_back import (
    COMMITTED_7,
    LOST,
    MAY_STILL_WRITE,
    PARTLY_LANDED,
)

KEEPS_STATE = ledger(stateful=True)
LOSSES = [
    pytest.param(seen(Absent()), LOST, id="lost"),
    pytest.param(
        seen(logs(8, 7, at(60, 50), at(70, 60)), location=location(highest_planned={FIRST: BatchNumber(8)})),
        COMMITTED_7,
        id="ahead of the sink",
    ),
]


@pytest.mark.parametrize(("facts", "verdict"), LOSSES)
def test_on_checkpoint_lost_halt_asks_a_person_before_a_checkpoint_is_left(
    facts: Observation, verdict: RebuildFromSink | RewindToSink
) -> None:
    decision = decide(replace(facts, request=asked(on_checkpoint_lost=OnCheckpointLost.HALT)))
    advice = "The resource asks to halt here: set recovery.onCheckpointLost to RebuildFromSink to continue."
    assert decision == Decision(
        Contradiction(ContradictionReason.CHECKPOINT_NOT_TO_BE_REBUILT, f"{verdict.message} {advice}", verdict.evidence)
    )
    assert decision.halts


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param(seen(predecessor=MAY_LIVE), RebuildReason.PREDECESSOR_MAY_LIVE, id="its driver may live"),
        pytest.param(
            seen(logs(5, 4, at(40, 30), at(50, 45)), ledger=PARTLY_LANDED), RebuildReason.PARTLY_LANDED, id="in part"
        ),
        pytest.param(
            seen(Absent(), request=asked(location="/elsewhere"), location=EMPTY), RebuildReason.LOCATION_CHANGED,
            id="moved by the resource",
        ),
    ],
)  # fmt: skip
def test_on_checkpoint_lost_halt_has_no_say_where_nothing_was_lost(facts: Observation, why: RebuildReason) -> None:
    decision = decide(replace(facts, request=replace(facts.request, on_checkpoint_lost=OnCheckpointLost.HALT)))
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is why
    assert not decision.halts


@pytest.mark.parametrize(("facts", "verdict"), LOSSES)
def test_a_query_with_state_halts_where_offsets_alone_cannot_rebuild_it(
    facts: Observation, verdict: RebuildFromSink | RewindToSink
) -> None:
    decision = decide(replace(facts, ledger=KEEPS_STATE))
    advice = (
        "The query keeps state in its checkpoint, which offsets alone cannot rebuild: restore the checkpoint; or, to continue "
        "with empty state, make a stream with another streamId that starts at the offsets orders-0@40, orders-1@30."
    )
    assert decision == Decision(
        Contradiction(ContradictionReason.STATE_WOULD_BE_LOST, f"{verdict.message} {advice}", verdict.evidence)
    )


@pytest.mark.parametrize(
    "checkpoint", [replace(logs(), commit_version=2), logs(conf={"spark.sql.streaming.stateStore.providerClass": "x"})]
)
def test_a_query_with_state_halts_when_its_last_driver_may_live_and_could_spoil_the_state(checkpoint: Any) -> None:
    decision = decide(seen(checkpoint, ledger=KEEPS_STATE, predecessor=MAY_LIVE))
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is ContradictionReason.STATE_WOULD_BE_LOST
    assert decision.verdict.evidence == MAY_STILL_WRITE.evidence


SEEDED_0 = batch(0, ranges((40, 40), (30, 30)), BatchStatus.SEEDED)
BEGUN_1 = batch(1, ranges((40, 50), (30, 45)), BatchStatus.IN_PROGRESS)


@pytest.mark.parametrize(
    ("facts", "number"),
    [
        pytest.param(
            seen(
                replace(logs(1, 0, at(40, 30), at(50, 45)), stateful=True),
                ledger=ledger(0, batches=(SEEDED_0, BEGUN_1)),
                predecessor=MAY_LIVE,
            ),
            0,
            id="it has planned batch 1 and may still live",
        ),
        pytest.param(
            seen(Absent(), ledger=ledger(0, batches=(SEEDED_0, BEGUN_1), stateful=True)), 0, id="its checkpoint is lost"
        ),
        pytest.param(
            seen(Absent(), ledger=ledger(0, batches=(SEEDED_0,)), location=EMPTY), 0, id="nothing was planned"
        ),
        pytest.param(seen(Absent(), ledger=ledger(0, batches=(SEEDED_0, BEGUN_1))), 5, id="it keeps no state"),
        pytest.param(
            seen(
                replace(logs(0, None), stateful=True),
                ledger=ledger(0, batches=(SEEDED_0,)),
                location=location(ran=frozenset()),
                request=asked(fresh=TOKEN),
                start=at(40, 30),
            ),
            0,
            id="it is to start over",
        ),
    ],
)
def test_while_only_the_seed_has_landed_a_query_with_state_starts_with_batch_0_again_when(
    facts: Observation, number: int
) -> None:
    decision = decide(facts)
    assert [action.seed_batch for action in decision.actions if isinstance(action, SeedAndPublish)] == [number]
    assert not decision.halts


def test_what_is_taken_at_most_once_is_recorded_as_lost_even_when_the_stream_halts() -> None:
    taken_5 = batch(5, ranges((40, 50), (30, 30)), BatchStatus.TAKEN)
    facts = seen(
        Absent(),
        ledger=ledger(landed=5, stands=at(50, 30), batches=(taken_5,)),
        request=asked(on_checkpoint_lost=OnCheckpointLost.HALT),
    )
    decision = decide(facts)
    assert decision.halts
    assert decision.actions == (RecordLost(taken_5),)
    assert decision.verdict.evidence[-1] == Evidence(
        "batch 5 was taken and may not have been written: orders-0 [40, 50) may be lost",
        {"batch": 5, "ranges": '{"orders":{"0":[40,50],"1":[30,30]}}'},
    )


def test_a_new_generation_never_takes_a_batch_number_that_was_planned_or_landed_anywhere() -> None:
    superseded_6 = batch(6, ranges((40, 50), (30, 45)), BatchStatus.SUPERSEDED)
    cut_short = Generation(3, Epoch(5))
    facts = seen(
        Absent(),
        ledger=ledger(batches=(BATCH_4, superseded_6), generation=2),
        location=location(
            generations=(FIRST, cut_short),
            highest_planned={FIRST: BatchNumber(4), cut_short: BatchNumber(99)},
        ),
    )
    made = seed(LOST.message, 7, generation=4)
    assert decide(facts) == Decision(LOST, (made, Launch())), "a seed that was cut short has planned nothing"
