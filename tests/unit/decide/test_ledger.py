"""Contradiction: the ledger does not agree with itself, so nothing it says may be believed."""

from __future__ import annotations

from typing import Any

import pytest

from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.rows import BatchRow, BatchStatus, LandedPositions, QueryMark
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.positions.selection import Selection
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    FinishBatch,
    Resume,
    SeedAndPublish,
    batch_of,
    kind_of,
)
from tests.unit.decide.facts import (
    BATCH_4,
    BEGUN_5,
    ORDERS,
    ZERO,
    Case,
    asked,
    at,
    batch,
    halt,
    ledger,
    logs,
    ranges,
    seen,
    source,
    table,
)


def inconsistent(words: str, data: dict[str, Any]) -> Decision:
    """Return the halt of a ledger that contradicts itself."""
    reason = f"The ledger contradicts itself: {words}. Someone changed it by hand or restored a part of it; restore all of it."
    return halt(Contradiction(ContradictionReason.LEDGER_INCONSISTENT, reason, (Evidence(words, data),)))


REFUNDS = Partition("refunds", 0)
LEFT_OUT_AT_7 = QueryMark(ORDERS, "query-1", "", left_out=Positions({REFUNDS: 7}))


def left_out_at(position: int) -> LandedPositions:
    """Return where a partition stands that the stream no longer reads."""
    return LandedPositions(Positions({REFUNDS: position}), {})


NOT_LANDED = "the ledger names batch 4 as landed and its table of batches does not"


@table(
    Case(
        "its table of batches lacks the landed one",
        seen(ledger=ledger(batches=())),
        inconsistent(NOT_LANDED, {"landedBatch": 4, "status": None}),
    ),
    *(
        Case(
            f"its landed batch is {status}",
            seen(ledger=ledger(batches=(batch(4, BATCH_4.ranges, status),))),
            inconsistent(NOT_LANDED, {"landedBatch": 4, "status": str(status)}),
        )
        for status in (BatchStatus.IN_PROGRESS, BatchStatus.FAILED, BatchStatus.SUPERSEDED)
    ),
    Case(
        "a position is beyond the end of the landed batch",
        seen(ledger=ledger(stands=at(41, 30))),
        inconsistent(
            "the ledger stands at 41 in orders-0, and its batch 4 ended at 40",
            {"topic": "orders", "partition": 0, "landed": 41, "batchEnd": 40},
        ),
    ),
    Case(
        "a position is inside the batch in progress",
        seen(ledger=ledger(stands=at(45, 30), batches=(BATCH_4, BEGUN_5))),
        inconsistent(
            "the ledger stands at 45 in orders-0, and its batch 4 ended at 40",
            {"topic": "orders", "partition": 0, "landed": 45, "batchEnd": 40},
        ),
    ),
    Case(
        "it has a position in a partition that no batch has read",
        seen(ledger=ledger(stands=at(40, 30, 5))),
        inconsistent(
            "the ledger stands at 5 in orders-2, and its batch 4 ended at None",
            {"topic": "orders", "partition": 2, "landed": 5, "batchEnd": None},
        ),
    ),
    Case(
        "it has lost a position",
        seen(ledger=ledger(stands=Positions({ZERO: 40}))),
        inconsistent("the ledger has lost its positions in orders-1", {"partitions": ["orders-1"]}),
    ),
    Case(
        "a position was moved that the stream has left out",
        seen(ledger=ledger(retired=left_out_at(0), query=LEFT_OUT_AT_7)),
        inconsistent(
            "it has position 0 for refunds-0, and had position 7 when the stream left that partition out",
            {"topic": "refunds", "partition": 0, "leftOutAt": 7, "retiredAt": 0},
        ),
    ),
    Case(
        "a position was deleted that the stream has left out",
        seen(ledger=ledger(query=LEFT_OUT_AT_7)),
        inconsistent(
            "it has no position for refunds-0, and had position 7 when the stream left that partition out",
            {"topic": "refunds", "partition": 0, "leftOutAt": 7, "retiredAt": None},
        ),
    ),
    Case(
        "a position was added that the stream has not left out",
        seen(ledger=ledger(retired=left_out_at(7), query=QueryMark(ORDERS, "query-1", "", left_out=Positions()))),
        inconsistent(
            "it has position 7 for refunds-0, and had no position when the stream left that partition out",
            {"topic": "refunds", "partition": 0, "leftOutAt": None, "retiredAt": 7},
        ),
    ),
    Case(
        "the record of what the latest driver was started to do is gone",
        seen(ledger=ledger(query=None)),
        inconsistent("it does not say what its latest driver was started to do", {"query": None}),
    ),
)
def test_a_ledger_that_contradicts_itself_halts_the_stream_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


@pytest.mark.parametrize(
    ("stands", "batches"),
    [
        pytest.param(at(40, 30), (batch(4, BATCH_4.ranges, BatchStatus.TAKEN),), id="its landed batch was taken"),
        pytest.param(at(40, 30), (batch(4, BATCH_4.ranges, BatchStatus.LOST),), id="its landed batch was lost"),
        pytest.param(
            at(40, 30), (batch(4, ranges((40, 40), (30, 30)), BatchStatus.SEEDED),), id="its landed batch is a seed"
        ),
        pytest.param(at(40, 30), (BATCH_4, BEGUN_5), id="a batch is in progress and nothing of it has landed"),
    ],
)
def test_a_ledger_agrees_with_itself_when(stands: Positions, batches: tuple[BatchRow, ...]) -> None:
    verdict = decide(seen(ledger=ledger(stands=stands, batches=batches))).verdict
    assert kind_of(verdict) == "Resume"
    assert batch_of(verdict) == 4


def test_a_partition_that_stands_at_the_end_of_the_batch_in_progress_agrees() -> None:
    facts = seen(
        logs(5, 4, at(40, 30), at(50, 45)),
        ledger=ledger(stands=at(50, 30), batches=(BATCH_4, BEGUN_5)),
        request=asked(commit=Commit.PARTITION),
    )
    assert isinstance(decide(facts).verdict, FinishBatch)


def test_a_partition_that_stands_at_zero_agrees_with_a_batch_that_did_not_read_it() -> None:
    held = source(dict.fromkeys(at(0, 0, 0), (0, 100)))
    facts = seen(logs(end=at(40, 30, 0)), ledger=ledger(stands=at(40, 30, 0)), source=held)
    assert isinstance(decide(facts).verdict, Resume)


def test_a_verdict_that_is_about_no_batch_names_none() -> None:
    assert batch_of(Contradiction(ContradictionReason.OTHER_OWNER, "")) is None


def test_a_position_that_was_left_out_agrees_with_what_the_ledger_says_of_it() -> None:
    verdict = decide(seen(ledger=ledger(retired=left_out_at(7), query=LEFT_OUT_AT_7))).verdict
    assert isinstance(verdict, Resume)


def test_a_new_generation_notes_where_the_partitions_stand_that_it_leaves_out() -> None:
    both = ledger(stands=at(40, 30), retired=left_out_at(7))
    decision = decide(seen(request=asked(source=Selection(partitions=frozenset({ZERO}))), ledger=both))
    (seed,) = [action for action in decision.actions if isinstance(action, SeedAndPublish)]
    assert seed.query is not None
    assert seed.query.left_out == Positions({Partition("orders", 1): 30, REFUNDS: 7})
