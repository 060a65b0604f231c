"""A resource that reads other partitions than the stream has read: docs/adr/0010.

The stream stands at orders-0@40, orders-1@30. `refunds` is a topic that it may come to read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.api.recovery import OnCheckpointLost, OnSourceTruncated
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.state import Absent
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions, QueryMark
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from exactlyonce.positions.selection import Selection
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
    RecordQuery,
    Resume,
    RewindToSink,
    SeedAndPublish,
    SourceReplaced,
    SourceTruncated,
)
from tests.unit.decide.facts import (
    MAY_LIVE,
    ONE,
    ORDERS,
    QUERY,
    TAKEN_4,
    ZERO,
    Case,
    asked,
    at,
    fingerprints_at,
    ledger,
    logs,
    seen,
    source,
    table,
)

REFUNDS, TWO = Partition("refunds", 0), Partition("orders", 2)
IDS = {"orders": "id-1", "refunds": "id-2"}
BOTH = Selection(origins=frozenset({"orders", "refunds"}))
ONLY_REFUNDS = Selection(origins=frozenset({"refunds"}))
ASSIGNED_ZERO = Selection(partitions=frozenset({ZERO}))
ASSIGNED_BOTH = Selection(partitions=frozenset({ZERO, ONE}))
LIKE_O, LIKE_ANY = Selection(pattern="o.*"), Selection(pattern=".*")
REFUNDS_RETIRED = LandedPositions(
    Positions({REFUNDS: 7}), {"refunds": "id-2"}, fingerprints_at(Positions({REFUNDS: 7}))
)


def held(*partitions: Partition, earliest: int = 0) -> dict[Partition, tuple[int, int]]:
    """Return bounds of 0 to 100, and of `earliest` to 100 for refunds."""
    return {key: (earliest if key == REFUNDS else 0, 100) for key in partitions}


def standing(offsets: dict[Partition, int]) -> Positions:
    """Return positions."""
    return Positions(offsets)


def changed(
    to: Selection,
    exists: dict[Partition, tuple[int, int]],
    start: dict[Partition, int] | None = None,
    *,
    before: Selection | None = ORDERS,
    **facts: Any,
) -> Observation:
    """Return the healthy stream whose resource now names `to`, of which `exists` is there."""
    stream = facts.pop("ledger", None) or ledger(query=None if before is None else QueryMark(before, "query-1", ""))
    selected = frozenset(key for key in exists if to.reads(key))
    return seen(
        request=facts.pop("request", asked(source=to)),
        source=source(exists, IDS, selected),
        start=None if start is None else Positions(start),
        ledger=stream,
        **facts,
    )


def seeded(decision: Decision) -> SeedAndPublish:
    """Return the one seed of a decision."""
    (found,) = [action for action in decision.actions if isinstance(action, SeedAndPublish)]
    return found


@table(
    Case(
        "a topic is added",
        changed(BOTH, held(ZERO, ONE, REFUNDS, earliest=5), {REFUNDS: 5}),
        Decision(
            RebuildFromSink(
                RebuildReason.SOURCE_SET_CHANGED,
                "The resource reads other partitions than before: it adds refunds-0@5; a new generation continues at "
                "orders-0@40, orders-1@30, refunds-0@5.",
                (
                    *decide(seen()).verdict.evidence,
                    Evidence(
                        "refunds-0 was never read and starts at 5, as the start of the source says",
                        {"topic": "refunds", "partition": 0, "offset": 5},
                    ),
                ),
            ),
            (
                SeedAndPublish(
                    Generation(2, Epoch(7)),
                    BatchNumber(5),
                    at(40, 30),
                    LandedPositions(Positions({ZERO: 40, ONE: 30, REFUNDS: 5}), IDS, fingerprints_at(at(40, 30))),
                    "The resource reads other partitions than before: it adds refunds-0@5; a new generation continues at "
                    "orders-0@40, orders-1@30, refunds-0@5.",
                    8,
                    query=QueryMark(BOTH, "query-1", "", left_out=Positions()),
                ),
                Launch(),
            ),
        ),
    ),
)
def test_a_changed_source_set_goes_on_in_a_new_generation_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


ZERO_ALONE = ledger(
    stands=at(40),
    query=QueryMark(ASSIGNED_ZERO, "query-1", ""),
    batches=(
        replace(TAKEN_4, status=TAKEN_4.status.LANDED, ranges=type(TAKEN_4.ranges)({ZERO: TAKEN_4.ranges[ZERO]})),
    ),
)
"""Where a stream stands that one partition of its topic was assigned to."""


@pytest.mark.parametrize(
    ("facts", "stands", "words"),
    [
        pytest.param(
            changed(ONLY_REFUNDS, held(ZERO, ONE, REFUNDS), {REFUNDS: 100}),
            {REFUNDS: 100},
            ["refunds-0 was never read and starts at 100, as the start of the source says",
             "orders-0 is not read any more; it has landed up to 40 of 100",
             "orders-1 is not read any more; it has landed up to 30 of 100"],
            id="one topic takes the place of another",
        ),
        pytest.param(
            changed(ONLY_REFUNDS, held(REFUNDS), {REFUNDS: 0}),
            {REFUNDS: 0},
            ["refunds-0 was never read and starts at 0, as the start of the source says",
             "orders-0 is not read any more; it has landed up to 40 and does not exist any more: any records "
             "after that are lost and cannot be counted",
             "orders-1 is not read any more; it has landed up to 30 and does not exist any more: any records "
             "after that are lost and cannot be counted"],
            id="the topic that is left out does not exist any more",
        ),
        pytest.param(
            changed(BOTH, held(ZERO, ONE, REFUNDS), {}, ledger=ledger(retired=REFUNDS_RETIRED)),
            {ZERO: 40, ONE: 30, REFUNDS: 7},
            ["refunds-0 was left out and continues at 7"],
            id="a topic comes back",
        ),
        pytest.param(
            changed(ASSIGNED_ZERO, held(ZERO, ONE)),
            {ZERO: 40},
            ["orders-1 is not read any more; it has landed up to 30 of 100"],
            id="a partition is left out",
        ),
        pytest.param(
            changed(ASSIGNED_BOTH, held(ZERO, ONE), {ONE: 90}, before=ASSIGNED_ZERO,
                    ledger=ZERO_ALONE, checkpoint=logs(start=at(30), end=at(40))),
            {ZERO: 40, ONE: 90},
            ["orders-1 was never read and starts at 90, as the start of the source says"],
            id="a partition of a topic that is read is assigned beside",
        ),
        pytest.param(
            changed(ORDERS, held(ZERO, ONE), {ONE: 90}, before=ASSIGNED_ZERO,
                    ledger=ZERO_ALONE, checkpoint=logs(start=at(30), end=at(40))),
            {ZERO: 40, ONE: 90},
            ["orders-1 was never read and starts at 90, as the start of the source says"],
            id="a topic is read whole of which one partition was assigned",
        ),
        pytest.param(
            changed(LIKE_ANY, held(ZERO, ONE, REFUNDS), {REFUNDS: 50}, before=LIKE_O),
            {ZERO: 40, ONE: 30, REFUNDS: 50},
            ["refunds-0 was never read and starts at 50, as the start of the source says"],
            id="a pattern matches more topics",
        ),
    ],
)  # fmt: skip
def test_a_new_generation_stands_where_all_that_is_read_has_landed_when(
    facts: Observation, stands: dict[Partition, int], words: list[str]
) -> None:
    decision = decide(facts)
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is RebuildReason.SOURCE_SET_CHANGED
    assert seeded(decision).after.positions == Positions(stands)
    assert facts.ledger is not None
    assert seeded(decision).before == facts.ledger.landed.positions
    assert [item.words for item in decision.verdict.evidence[3:]] == words
    assert decision.actions[-1] == Launch()


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(changed(LIKE_O, held(ZERO, ONE), {}), id="the same topic is named by a pattern"),
        pytest.param(changed(ASSIGNED_BOTH, held(ZERO, ONE), {}), id="the same partitions are named one by one"),
        pytest.param(changed(BOTH, held(ZERO, ONE, TWO), {}), id="a partition has appeared in a topic that is read"),
        pytest.param(
            changed(LIKE_ANY, held(ZERO, ONE, Partition("others", 0)), {}, before=LIKE_O),
            id="a topic has appeared that the pattern before would have matched too",
        ),
        pytest.param(seen(request=asked(query="query-2")), id="format or transform of a query without state changed"),
    ],
)
def test_a_change_that_leaves_the_positions_as_they_are_goes_on_in_the_same_generation_when(facts: Observation) -> None:
    decision = decide(facts)
    assert isinstance(decision.verdict, Resume)
    assert facts.ledger is not None
    left_out = facts.ledger.mark.left_out
    query = QueryMark(facts.request.source, facts.request.query, "", left_out=left_out)
    assert decision.actions == (RecordQuery(query), Launch())


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(changed(LIKE_O, held(ZERO, ONE, Partition("others", 0)), before=LIKE_O), id="a topic"),
        pytest.param(seen(source=source(held(ZERO, ONE, TWO))), id="a partition"),
    ],
)
def test_what_appears_in_a_source_that_is_named_as_before_is_no_change(facts: Observation) -> None:
    assert decide(facts).actions == (Launch(),)


def test_what_was_taken_at_most_once_is_recorded_before_the_query_is() -> None:
    before = replace(QUERY, query="query-0")
    decision = decide(seen(ledger=ledger(batches=(TAKEN_4,), query=before)))
    assert decision.actions == (RecordLost(TAKEN_4), RecordQuery(QUERY), Launch())


OTHER_QUERY = (
    "The source's format, the transform, the output mode or the state store is not the one that the state was made with, "
    "and"
)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param(
            changed(BOTH, held(ZERO, ONE, REFUNDS), {REFUNDS: 0}, ledger=ledger(stateful=True)),
            "The resource reads other partitions than before: it adds refunds-0@0, and",
            id="a topic is added",
        ),
        pytest.param(
            changed(ASSIGNED_ZERO, held(ZERO, ONE), ledger=ledger(stateful=True)),
            "The resource reads other partitions than before: it leaves out orders-1@30, and",
            id="a partition is left out",
        ),
        pytest.param(
            seen(request=asked(query="query-2"), ledger=ledger(stateful=True)),
            OTHER_QUERY,
            id="the transform is another one",
        ),
        pytest.param(
            seen(replace(logs(), stateful=True), request=asked(query="query-2")),
            OTHER_QUERY,
            id="the checkpoint has state that no batch has landed with",
        ),
    ],
)
def test_a_query_that_keeps_state_is_not_changed_when(facts: Observation, words: str) -> None:
    decision = decide(facts)
    assert decision.halts
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is ContradictionReason.STATEFUL_QUERY_CHANGED
    assert decision.verdict.message == (
        f"{words} the query keeps state that was made without that change. Take the change back; or make a stream with "
        "another streamId, which starts with empty state."
    )


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(seen(ledger=ledger(stateful=True)), id="nothing has changed"),
    ],
)
def test_a_query_that_keeps_state_goes_on_when(facts: Observation) -> None:
    assert isinstance(decide(facts).verdict, Resume)


def test_a_topic_that_comes_back_recreated_halts() -> None:
    stream = ledger(retired=LandedPositions(Positions({REFUNDS: 7}), {"refunds": "id-of-old"}))
    verdict = decide(changed(BOTH, held(ZERO, ONE, REFUNDS), {}, ledger=stream)).verdict
    assert isinstance(verdict, SourceReplaced)
    assert "topic refunds was recreated" in verdict.message


def test_a_topic_that_comes_back_shorter_halts() -> None:
    exists = {**held(ZERO, ONE), REFUNDS: (0, 5)}
    verdict = decide(changed(BOTH, exists, {}, ledger=ledger(retired=REFUNDS_RETIRED))).verdict
    assert isinstance(verdict, SourceReplaced)
    assert "refunds-0 ends at 5 and 2 records beyond that have landed" in verdict.message


BACK_TOO_LATE = {**held(ZERO, ONE), REFUNDS: (10, 100)}


def test_a_topic_that_comes_back_after_retention_passed_it_halts_and_counts() -> None:
    decision = decide(changed(BOTH, BACK_TOO_LATE, {}, ledger=ledger(retired=REFUNDS_RETIRED)))
    assert decision.halts
    assert isinstance(decision.verdict, SourceTruncated)
    assert "no longer holds 3 records that have not landed: refunds-0 [7, 10)" in decision.verdict.message
    assert [item.words for item in decision.verdict.evidence][1:] == ["refunds-0 was left out and continues at 7"]


def test_a_topic_that_comes_back_too_late_goes_on_from_the_earliest_where_that_is_accepted() -> None:
    request = asked(source=BOTH, on_source_truncated=OnSourceTruncated.RESUME_FROM_EARLIEST)
    decision = decide(changed(BOTH, BACK_TOO_LATE, {}, ledger=ledger(retired=REFUNDS_RETIRED), request=request))
    assert seeded(decision).after.positions == standing({ZERO: 40, ONE: 30, REFUNDS: 10})
    (lost,) = seeded(decision).given_up
    assert lost == FailureRow(
        BatchNumber(5), REFUNDS, 7, 10, FailureStatus.LOST, "", "retention took the records before they landed"
    )


def test_records_gone_from_a_partition_that_is_left_out_are_no_loss() -> None:
    decision = decide(changed(ASSIGNED_ZERO, {ZERO: (0, 100), ONE: (60, 100)}))
    assert isinstance(decision.verdict, RebuildFromSink)
    assert seeded(decision).after.positions == standing({ZERO: 40})


def test_a_topic_that_is_left_out_may_be_recreated() -> None:
    decision = decide(
        replace(
            changed(ONLY_REFUNDS, held(ZERO, ONE, REFUNDS), {REFUNDS: 0}),
            source=source(held(ZERO, ONE, REFUNDS), {"orders": "id-9", "refunds": "id-2"}, frozenset({REFUNDS})),
        )
    )
    assert isinstance(decision.verdict, RebuildFromSink)


@pytest.mark.parametrize(
    ("checkpoint", "kind"),
    [(Absent(), RebuildFromSink), (logs(6, 6, at(50, 45), at(60, 60)), RewindToSink)],
    ids=["the checkpoint is lost", "the sink was restored"],
)
def test_a_worse_reason_for_a_new_generation_is_told_first_and_the_change_is_made_with_it(
    checkpoint: object, kind: type
) -> None:
    facts = changed(BOTH, held(ZERO, ONE, REFUNDS), {REFUNDS: 0}, checkpoint=checkpoint)
    decision = decide(facts)
    assert isinstance(decision.verdict, kind)
    assert "The resource reads other partitions than before: it adds refunds-0@0" in decision.verdict.message
    assert seeded(decision).after.positions == standing({ZERO: 40, ONE: 30, REFUNDS: 0})
    request = asked(source=BOTH, on_checkpoint_lost=OnCheckpointLost.HALT)
    halted = decide(replace(facts, request=request))
    assert halted.halts
    assert isinstance(halted.verdict, Contradiction)
    assert halted.verdict.reason is ContradictionReason.CHECKPOINT_NOT_TO_BE_REBUILT


def test_a_changed_source_set_is_no_loss_of_the_checkpoint() -> None:
    request = asked(source=BOTH, on_checkpoint_lost=OnCheckpointLost.HALT)
    facts = changed(BOTH, held(ZERO, ONE, REFUNDS), {REFUNDS: 0}, request=request, predecessor=MAY_LIVE)
    assert isinstance(decide(facts).verdict, RebuildFromSink)
