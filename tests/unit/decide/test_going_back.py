"""Verdicts that leave the checkpoint and continue where the sink stands: RebuildFromSink, RewindToSink."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.checkpoint.generation import Generation, Marker
from exactlyonce.checkpoint.state import Absent
from exactlyonce.connectors.specs import Commit
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.verdicts import (
    Decision,
    Evidence,
    FinishBatch,
    Launch,
    RebuildFromSink,
    RebuildReason,
    RecordLost,
    RewindToSink,
    WriteMarker,
)
from tests.unit.decide.facts import (
    BATCH_4,
    BEGUN_5,
    EMPTY,
    FIRST,
    MAY_LIVE,
    ONE,
    PATH,
    SINK,
    SINK_AT_50_30,
    STREAM,
    TAKEN_4,
    TAKEN_4_EVIDENCE,
    TOKEN,
    ZERO,
    Case,
    asked,
    at,
    committed,
    damaged,
    ledger,
    location,
    logs,
    planned,
    rebuild,
    seed,
    seen,
    table,
)

SECOND = Generation(2, Epoch(6))
RAN_UP_TO_5 = location(highest_planned={FIRST: BatchNumber(5)})
PARTLY_LANDED = ledger(stands=at(50, 30), batches=(BATCH_4, BEGUN_5))
TORN = f"the checkpoint at {PATH} is damaged (FileTorn: offsets/5: its first line is '', not a version)"
ELSEWHERE = f"the last checkpoint is {PATH}, the resource names /elsewhere"


def rebuilt(why: RebuildReason, words: str, data: dict[str, Any], sink: Evidence = SINK) -> RebuildFromSink:
    """Return the verdict whose reason is its first evidence and where the sink stands."""
    stands = sink.words.removeprefix("the sink holds batch 4 and stands at ")
    reason = f"{words[0].upper()}{words[1:]}; a new generation continues where the sink stands: {stands}."
    return RebuildFromSink(why, reason, (Evidence(words, data), sink))


def otherwise(when: str, number: int, start: Positions | None, end: Positions, words: str) -> Case:
    """Return a case in which batch 4 or 5 was planned otherwise than it landed, and is committed up to the one before."""
    facts = seen(logs(number, number - 1, start, end), location=location(highest_planned={FIRST: BatchNumber(number)}))
    data = {"planned": number, "start": None if start is None else start.to_json(), "end": end.to_json()}
    verdict = rebuilt(RebuildReason.PLANNED_OTHERWISE, f"batch {number} was planned {words}", data)
    return Case(when, facts, rebuild(verdict, number + 1))


LOST = rebuilt(RebuildReason.CHECKPOINT_LOST, f"there is no checkpoint at {PATH}", {"checkpoint": PATH})
MOVED = rebuilt(RebuildReason.LOCATION_CHANGED, ELSEWHERE, {"checkpoint": PATH, "location": "/elsewhere"})
PARTLY = rebuilt(
    RebuildReason.PARTLY_LANDED,
    "batch 5 landed for orders-0 only and the stream now lands whole batches",
    {"batch": 5, "partitions": ["orders-0"]},
    SINK_AT_50_30,
)
MAY_STILL_WRITE = RebuildFromSink(
    RebuildReason.PREDECESSOR_MAY_LIVE,
    "The last driver may still write its checkpoint (its node does not answer), so a new generation continues at "
    "orders-0@40, orders-1@30.",
    (
        planned(4, at(40, 30)),
        committed(4),
        SINK,
        Evidence(
            "the last driver may still live: its node does not answer", {"predecessor": "its node does not answer"}
        ),
    ),
)


@table(
    Case("its folder is gone", seen(Absent()), rebuild(LOST)),
    Case(
        "its folder is gone after a batch was taken at most once",
        seen(Absent(), ledger=ledger(batches=(TAKEN_4,))),
        Decision(
            replace(LOST, evidence=(*LOST.evidence, TAKEN_4_EVIDENCE)),
            (RecordLost(TAKEN_4), seed(LOST.message), Launch()),
        ),
    ),
    Case(
        "a file of it is torn",
        seen(damaged(5), location=RAN_UP_TO_5),
        rebuild(
            rebuilt(
                RebuildReason.CHECKPOINT_DAMAGED, TORN, {"checkpoint": PATH, "damage": "FileTorn", "highestPlanned": 5}
            ),
            6,
        ),
    ),
    Case(
        "it was put back from a backup and ends before the sink",
        seen(logs(3, 3)),
        rebuild(
            rebuilt(
                RebuildReason.CHECKPOINT_OLDER,
                "the offset log ends at batch 3, the sink holds batch 4",
                {"planned": 3},
            )
        ),
    ),
    Case(
        "the resource names another location, which is empty",
        seen(Absent(), request=asked(location="/elsewhere"), location=EMPTY),
        Decision(MOVED, (WriteMarker(Marker(STREAM, TOKEN)), seed(MOVED.message), Launch())),
    ),
    Case(
        "a part of a batch landed and the resource now asks for whole batches",
        seen(logs(5, 4, at(40, 30), at(50, 45)), ledger=PARTLY_LANDED, location=RAN_UP_TO_5),
        Decision(PARTLY, (seed(PARTLY.message, 6, at(50, 30), at(50, 30)), Launch())),
    ),
    Case("its last driver may live", seen(predecessor=MAY_LIVE), rebuild(MAY_STILL_WRITE)),
    Case(
        "its last driver may live with a batch running",
        seen(logs(5, 4, at(40, 30), at(50, 45)), predecessor=MAY_LIVE, location=RAN_UP_TO_5),
        rebuild(
            replace(
                MAY_STILL_WRITE,
                evidence=(planned(5, at(50, 45)), *MAY_STILL_WRITE.evidence[1:]),
            ),
            6,
        ),
    ),
    otherwise(
        "the landed batch was planned up to somewhere else",
        4, at(30, 20), at(41, 30),
        "up to orders-0@41, orders-1@30 and landed up to orders-0@40, orders-1@30",
    ),
    otherwise(
        "the landed batch was planned from somewhere else",
        4, at(29, 20), at(40, 30),
        "from orders-0@29, orders-1@20 to orders-0@40, orders-1@30 and landed with orders-0 [30, 40), orders-1 [20, 30)",
    ),
    otherwise(
        "no log holds where the landed batch started",
        4, None, at(40, 30),
        "from a start that no log holds to orders-0@40, orders-1@30 and landed with orders-0 [30, 40), orders-1 [20, 30)",
    ),
    otherwise(
        "the next batch was planned from before where the sink stands",
        5, at(39, 30), at(50, 45),
        "as orders-0 [39, 50), orders-1 [30, 45) and the sink stands at orders-0@40, orders-1@30",
    ),
    otherwise(
        "the next batch was planned without a partition that has landed",
        5, Positions({ZERO: 40}), Positions({ZERO: 50}),
        "as orders-0 [40, 50) and the sink stands at orders-0@40, orders-1@30",
    ),
    otherwise(
        "the next batch was planned backwards",
        5, at(40, 30), at(50, 29),
        "from orders-0@40, orders-1@30 to orders-0@50, orders-1@29, which is not a range",
    ),
    otherwise(
        "the next batch lacks a partition of the one before",
        5, at(40, 30), Positions({ONE: 45}),
        "from orders-0@40, orders-1@30 to orders-1@45, which is not a range",
    ),
    otherwise(
        "no log holds where the next batch starts",
        5, None, at(50, 45),
        "from a start that no log holds to orders-0@50, orders-1@45, which is not a range",
    ),
)  # fmt: skip
def test_rebuild_from_sink_leaves_the_checkpoint_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


def test_rebuild_from_sink_follows_when_the_end_fits_and_the_landed_batch_is_another_one() -> None:
    verdict = decide(
        seen(logs(4, 3, at(40, 20), at(50, 30)), ledger=PARTLY_LANDED, location=RAN_UP_TO_5)
    ).verdict  # fmt: skip
    assert isinstance(verdict, RebuildFromSink)
    assert verdict.reason is RebuildReason.PLANNED_OTHERWISE
    assert verdict.evidence[0].words == (
        "batch 4 was planned from orders-0@40, orders-1@20 to orders-0@50, orders-1@30 and landed with "
        "orders-0 [30, 40), orders-1 [20, 30)"
    )


def rewound(words: str, data: dict[str, Any]) -> RewindToSink:
    """Return the verdict whose reason is its first evidence and where the sink stands."""
    reason = (
        f"{words[0].upper()}{words[1:]}: the sink was restored to an earlier state; "
        "a new generation continues where it stands: orders-0@40, orders-1@30."
    )
    return RewindToSink(reason, (Evidence(words, data), SINK))


LATER_RAN = rewound(
    "generation-000002-a6 ran, and the ledger knows generation 1 as the latest",
    {"ran": "generation-000002-a6", "generation": 1},
)
COMMITTED_7 = rewound("Spark has committed batch 7, the sink holds up to batch 4", {"checkpointed": 7})


@table(
    Case(
        "Spark has committed a batch that the sink does not hold",
        seen(logs(8, 7, at(60, 50), at(70, 60)), location=location(highest_planned={FIRST: BatchNumber(8)})),
        rebuild(COMMITTED_7, 9),
    ),
    Case(
        "Spark has planned two batches more than the sink holds",
        seen(logs(6, None, at(50, 40), at(60, 50)), location=location(highest_planned={FIRST: BatchNumber(6)})),
        rebuild(rewound("Spark has planned batch 6, the sink holds up to batch 4", {"planned": 6}), 7),
    ),
    Case(
        "a later generation ran than the ledger knows of",
        seen(
            location=location(
                generations=(FIRST, SECOND),
                highest_planned={FIRST: BatchNumber(4), SECOND: BatchNumber(9)},
                ran=frozenset({FIRST, SECOND}),
            )
        ),
        Decision(LATER_RAN, (seed(LATER_RAN.message, 10, generation=3), Launch())),
    ),
)
def test_rewind_to_sink_leaves_the_checkpoint_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


@pytest.mark.parametrize("commit", list(Commit))
@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_half_landed_batch_is_finished_only_by_a_stream_that_still_lands_by_partition(
    delivery: Delivery, commit: Commit
) -> None:
    half = ledger(stands=at(50, 30), batches=(BATCH_4, BEGUN_5))
    decision = decide(
        seen(logs(5, 4, at(40, 30), at(50, 45)), ledger=half, request=asked(delivery=delivery, commit=commit))
    )
    if (delivery, commit) == (Delivery.EXACTLY_ONCE, Commit.PARTITION):
        assert isinstance(decision.verdict, FinishBatch)
        return
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is RebuildReason.PARTLY_LANDED
    assert seed(decision.verdict.message, 6, after=at(50, 30), before=at(50, 30)) in decision.actions
