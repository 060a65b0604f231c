"""Verdicts about the source: SourceTruncated and SourceReplaced."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from exactlyonce.api.recovery import OnSourceTruncated, OnTopicDeleted
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.positions.selection import Selection
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    Launch,
    Resume,
    SourceReplaced,
    SourceTruncated,
)
from tests.unit.decide.facts import (
    BATCH_4,
    ONE,
    TAKEN_4,
    TAKEN_4_EVIDENCE,
    ZERO,
    Case,
    asked,
    at,
    batch,
    halt,
    ledger,
    ranges,
    seed,
    seen,
    source,
    table,
)

TWO = Partition("orders", 2)
ANY_TOPIC = Selection(pattern=".*")
TWO_TOPICS = Selection(origins=frozenset({"orders", "refunds"}))
ON = asked(on_source_truncated=OnSourceTruncated.RESUME_FROM_EARLIEST)
ADVICE = "set recovery.onSourceTruncated to ResumeFromEarliest to continue without them."


def gone(number: int, wanted: int, earliest: int) -> Evidence:
    """Return the evidence of records that retention took."""
    return Evidence(
        f"orders-{number}: the next record is {wanted}, the earliest held is {earliest}: {earliest - wanted} are gone",
        {"topic": "orders", "partition": number, "from": wanted, "until": earliest},
    )


def given_up(batch: int, number: int, wanted: int, earliest: int) -> FailureRow:
    """Return the record that the ledger keeps of them."""
    error = "retention took the records before they landed"
    key = Partition("orders", number)
    return FailureRow(BatchNumber(batch), key, wanted, earliest, FailureStatus.LOST, "", error)


TOOK_TWO = source({ZERO: (43, 100), ONE: (37, 100)})
NO_LONGER_ONE = "The source no longer holds 3 records that have not landed: orders-0 [40, 43)"
NO_LONGER_TWO = "The source no longer holds 10 records that have not landed: orders-0 [40, 43), orders-1 [30, 37)"
NO_LONGER_NEW = "The source no longer holds 5 records that have not landed: orders-2 [0, 5)"
GOES_ON = f"{NO_LONGER_TWO}; the stream continues without them, as the resource asks."
GOES_ON_NEW = f"{NO_LONGER_NEW}; the stream continues without them, as the resource asks."


@table(
    Case(
        "retention took the next records of one partition",
        seen(source=source({ZERO: (43, 100), ONE: (0, 100)})),
        halt(SourceTruncated(False, f"{NO_LONGER_ONE}; {ADVICE}", (gone(0, 40, 43),))),
    ),
    Case(
        "retention took the next records of two partitions",
        seen(source=TOOK_TWO),
        halt(SourceTruncated(False, f"{NO_LONGER_TWO}; {ADVICE}", (gone(0, 40, 43), gone(1, 30, 37)))),
    ),
    Case(
        "a partition that appeared has lost its first records already",
        seen(source=source({ZERO: (0, 100), ONE: (0, 100), TWO: (5, 9)})),
        halt(SourceTruncated(False, f"{NO_LONGER_NEW}; {ADVICE}", (gone(2, 0, 5),))),
    ),
    Case(
        "the resource accepts the loss",
        seen(source=TOOK_TWO, request=ON),
        Decision(
            SourceTruncated(True, GOES_ON, (gone(0, 40, 43), gone(1, 30, 37))),
            (
                replace(
                    seed(GOES_ON, after=at(43, 37)),
                    given_up=(given_up(5, 0, 40, 43), given_up(5, 1, 30, 37)),
                ),
                Launch(),
            ),
        ),
    ),
    Case(
        "the resource accepts the loss of a new partition's first records",
        seen(source=source({ZERO: (0, 100), ONE: (0, 100), TWO: (5, 9)}), request=ON),
        Decision(
            SourceTruncated(True, GOES_ON_NEW, (gone(2, 0, 5),)),
            (replace(seed(GOES_ON_NEW, after=at(40, 30, 5)), given_up=(given_up(5, 2, 0, 5),)), Launch()),
        ),
    ),
    Case(
        "the resource accepts the loss and the query keeps state",
        seen(source=TOOK_TWO, request=ON, ledger=ledger(stateful=True)),
        halt(
            Contradiction(
                ContradictionReason.STATE_WOULD_BE_LOST,
                f"{GOES_ON} The query keeps state in its checkpoint, which offsets alone cannot rebuild: restore the "
                "checkpoint; or, to continue with empty state, make a stream with another streamId that starts at the offsets "
                "orders-0@40, orders-1@30.",
                (gone(0, 40, 43), gone(1, 30, 37)),
            )
        ),
    ),
)
def test_source_truncated_counts_what_is_gone_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


def test_what_is_gone_is_told_with_the_time_when_it_was_last_seen_by_the_latest_batch_that_has_read_of_it() -> None:
    landed_at = datetime(2026, 1, 2, 12, 30, tzinfo=timezone(timedelta(hours=1)))
    of_one = replace(BATCH_4, landed_at=landed_at, ranges=ranges((30, 40), (30, 30)))
    decision = decide(seen(source=TOOK_TWO, ledger=ledger(batches=(of_one,))))
    assert decision.verdict.evidence == (
        gone(0, 40, 43),
        gone(1, 30, 37),
        Evidence(
            "orders-0 still held what comes next when batch 4 landed, at 2026-01-02T11:30:00+00:00",
            {"batch": 4, "landedAt": "2026-01-02T11:30:00+00:00", "partitions": ["orders-0"]},
        ),
    )
    before = replace(
        batch(2, ranges((10, 20), (10, 30))), landed_at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=0)))
    )
    failed = replace(before, batch=BatchNumber(3), status=BatchStatus.FAILED)
    decision = decide(seen(source=TOOK_TWO, ledger=replace(ledger(batches=(of_one,)), earlier=(before, failed))))
    assert [evidence.data.get("batch") for evidence in decision.verdict.evidence] == [None, None, 4, 2]
    assert decision.verdict.evidence[-1].words == (
        "orders-1 still held what comes next when batch 2 landed, at 2026-01-01T00:00:00+00:00"
    )
    of_none = replace(of_one, ranges=ranges((40, 40), (30, 30)))
    decision = decide(seen(source=TOOK_TWO, ledger=ledger(batches=(of_none,))))
    assert decision.verdict.evidence == (gone(0, 40, 43), gone(1, 30, 37))


@pytest.mark.parametrize("earliest", [0, 29, 30])
def test_records_that_landed_may_go_from_the_source(earliest: int) -> None:
    assert isinstance(decide(seen(source=source({ZERO: (40, 100), ONE: (earliest, 100)}))).verdict, Resume)


def advised(told: str, without: str = "") -> str:
    """Return the reason of a SourceReplaced."""
    return (
        f"The source is not the one this stream has read: {told}. Restore it, {without}let a stream with another streamId read "
        "the new one, or annotate exactlyonce.dev/fresh=token-1 to start over on it."
    )


def replaced(*evidence: Evidence, without: str = "") -> Decision:
    """Return the halt of a replaced source; `without` is how the stream continues without what is gone."""
    return halt(SourceReplaced(advised("; ".join(item.words for item in evidence), without), evidence))


ENDS_EARLY = Evidence(
    "orders-0 ends at 35 and 5 records beyond that have landed", {"topic": "orders", "partition": 0, "landed": 40}
)
RECREATED = Evidence(
    "topic orders was recreated (its id was id-1 and is id-2)", {"topic": "orders", "id": "id-1", "found": "id-2"}
)


@table(
    Case("a topic is gone", seen(source=source({}, {})), replaced(
        Evidence("topic orders does not exist any more", {"topic": "orders", "id": "id-1"}))),
    Case("a topic was recreated", seen(source=source(origin_ids={"orders": "id-2"})), replaced(RECREATED)),
    Case("a topic was recreated and is shorter",
         seen(source=source({ZERO: (0, 35), ONE: (0, 30)}, {"orders": "id-2"})), replaced(RECREATED, ENDS_EARLY)),
    Case("a partition ends before what landed", seen(source=source({ZERO: (0, 35), ONE: (0, 30)})),
         replaced(ENDS_EARLY)),
    Case("a partition is gone", seen(source=source({ZERO: (0, 100)})), replaced(
        Evidence("orders-1 does not exist any more", {"topic": "orders", "partition": 1, "landed": 30}))),
    Case("one of two topics is gone", seen(
        ledger=ledger(origin_ids={"orders": "id-1", "refunds": "id-9"}), request=asked(source=TWO_TOPICS)), replaced(
        Evidence("topic refunds does not exist any more", {"topic": "refunds", "id": "id-9"}),
        without="take refunds out of what the source names to continue without, ")),
    Case("one of the topics that a pattern matched is gone", seen(
        ledger=ledger(origin_ids={"orders": "id-1", "refunds": "id-9"}), request=asked(source=ANY_TOPIC)), replaced(
        Evidence("topic refunds does not exist any more", {"topic": "refunds", "id": "id-9"}),
        without="set recovery.onTopicDeleted to Forget to continue without the topics that are gone, ")),
    Case("all topics that a pattern matched are gone, though the resource forgets them",
         seen(source=source({}, {}), request=asked(source=ANY_TOPIC, on_topic_deleted=OnTopicDeleted.FORGET)), replaced(
        Evidence("topic orders does not exist any more", {"topic": "orders", "id": "id-1"}))),
    Case("a topic that the resource names is gone, though it forgets what a pattern matched", seen(
        ledger=ledger(origin_ids={"orders": "id-1", "refunds": "id-9"}),
        request=asked(source=TWO_TOPICS, on_topic_deleted=OnTopicDeleted.FORGET)), replaced(
        Evidence("topic refunds does not exist any more", {"topic": "refunds", "id": "id-9"}),
        without="take refunds out of what the source names to continue without, ")),
)  # fmt: skip
def test_source_replaced_halts_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(seen(source=source({ZERO: (40, 40), ONE: (30, 30)})), id="all of it has landed"),
        pytest.param(seen(ledger=ledger(origin_ids={"orders": ""})), id="its id was not known when it was first read"),
    ],
)
def test_a_source_is_still_the_one_that_was_read_when(facts: Observation) -> None:
    assert isinstance(decide(facts).verdict, Resume)


def test_a_halt_for_the_source_still_records_what_was_taken_at_most_once() -> None:
    decision = decide(seen(source=TOOK_TWO, ledger=ledger(batches=(TAKEN_4,))))
    assert decision.halts
    assert [type(action).__name__ for action in decision.actions] == ["RecordLost"]
    assert decision.verdict.evidence == (gone(0, 40, 43), gone(1, 30, 37), TAKEN_4_EVIDENCE)
