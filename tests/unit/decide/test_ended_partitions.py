"""A partition that has landed to its end may be gone; one that is gone before its end landed is a loss that is named.

Positions here count nothing, as those of Kinesis do not: how many records are gone is never told.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from exactlyonce.api.recovery import OnSourceTruncated
from exactlyonce.checkpoint.state import Absent, CheckpointState
from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    FinishBatch,
    RebuildFromSink,
    RebuildReason,
    ReplayBatch,
    Resume,
    SeedAndPublish,
    SkipLanded,
    SourceReplaced,
    SourceTruncated,
)
from tests.unit.decide.facts import EMPTY, MAY_LIVE, NOT_STARTED, asked, batch, ledger, logs, seen, source

PARENT, CHILD = Partition("orders", "shard-0"), Partition("orders", "shard-1")
END = PARTITION_END
UNCOUNTED = asked(positions_count_records=False, position_text=lambda position: f"<{position}>")
AFTER_BATCH_4 = Positions({PARENT: END, CHILD: 40})
BATCH_4 = batch(4, Ranges({CHILD: OffsetRange(0, 40)}))
"""The batch in which the parent was left out: its end had landed before."""

ONLY_CHILD = source({CHILD: (0, END)})
LEFT_OUT = logs(start=Positions({PARENT: END, CHILD: 0}), end=Positions({CHILD: 40}))


def _decided(checkpoint: CheckpointState = LEFT_OUT, **changes: object) -> Observation:
    given = {
        "request": UNCOUNTED,
        "ledger": ledger(stands=AFTER_BATCH_4, batches=(BATCH_4,)),
        "source": ONLY_CHILD,
        **changes,
    }
    return seen(checkpoint, **given)


def test_a_partition_that_has_landed_to_its_end_may_leave_plan_and_source() -> None:
    decision = decide(_decided())
    assert isinstance(decision.verdict, Resume)
    assert not decision.halts


def test_a_batch_that_left_an_ended_partition_out_is_recognised_when_spark_did_not_commit_it() -> None:
    decision = decide(_decided(replace(LEFT_OUT, checkpointed=BatchNumber(3))))
    assert isinstance(decision.verdict, SkipLanded)


def test_a_batch_that_leaves_out_a_partition_which_ended_in_the_batch_before_runs_again() -> None:
    batch_4 = batch(4, Ranges({PARENT: OffsetRange(10, END), CHILD: OffsetRange(0, 0)}))
    before, after = Positions({PARENT: END, CHILD: 0}), Positions({CHILD: 40})
    found = ledger(stands=before, batches=(batch_4,))
    decision = decide(_decided(logs(5, 4, start=before, end=after), ledger=found))
    assert isinstance(decision.verdict, ReplayBatch)


def test_a_new_partition_that_appears_is_no_changed_set() -> None:
    grandchild = Partition("orders", "shard-2")
    decision = decide(_decided(source=source({CHILD: (0, END), grandchild: (0, END)})))
    assert isinstance(decision.verdict, Resume)


def test_a_plan_that_leaves_out_a_partition_before_its_end_is_another_plan() -> None:
    found = ledger(stands=Positions({PARENT: 30, CHILD: 40}), batches=(batch(4, Ranges({CHILD: OffsetRange(0, 40)})),))
    there = source({PARENT: (0, END), CHILD: (0, END)})
    verdict = decide(_decided(ledger=found, source=there)).verdict
    assert isinstance(verdict, Contradiction), "the ledger stands where no batch of it ended"


def test_a_planned_batch_that_leaves_out_a_partition_before_its_end_is_not_run() -> None:
    before = Positions({PARENT: 30, CHILD: 0})
    found = ledger(stands=before, batches=(batch(4, Ranges({PARENT: OffsetRange(0, 30), CHILD: OffsetRange(0, 0)})),))
    there = source({PARENT: (0, END), CHILD: (0, END)})
    verdict = decide(_decided(logs(5, 4, start=before, end=Positions({CHILD: 40})), ledger=found, source=there)).verdict
    assert isinstance(verdict, RebuildFromSink)
    assert verdict.reason is RebuildReason.PLANNED_OTHERWISE


def _vanished(**changes: object) -> Observation:
    """The parent's end has not landed, and the source has only its end left of it."""
    stands = Positions({PARENT: 30, CHILD: 40})
    found = ledger(stands=stands, batches=(batch(4, Ranges({PARENT: OffsetRange(0, 30), CHILD: OffsetRange(0, 40)})),))
    there = source({PARENT: (END, END), CHILD: (0, END)})
    return _decided(logs(end=stands), ledger=found, source=there, **changes)


def test_a_partition_that_is_gone_before_its_end_landed_is_a_named_loss_of_unknown_size() -> None:
    decision = decide(_vanished())
    assert isinstance(decision.verdict, SourceTruncated)
    assert decision.halts
    assert decision.verdict.message == (
        f"The source no longer holds records that have not landed, and how many is not known: orders-shard-0 [<30>, <{END}>); "
        "set recovery.onSourceTruncated to ResumeFromEarliest to continue without them."
    )
    assert decision.verdict.evidence[0].words == (
        "orders-shard-0: it has landed up to <30> and does not exist any more; how many records it still held is not known"
    )


def test_a_landing_from_the_start_of_a_partition_is_no_proof_that_its_next_record_was_there() -> None:
    """It lands without asking for a record in front of it, so all of it may have expired by then."""
    landed_at = datetime(2026, 1, 2, tzinfo=UTC)
    named = replace(batch(4, Ranges({PARENT: OffsetRange(0, 30)})), landed_at=landed_at)
    stands, there = Positions({PARENT: 30}), source({PARENT: (50, END)})

    def seen_at(row: BatchRow) -> list[object]:
        found = ledger(stands=stands, batches=(row,))
        verdict = decide(_decided(logs(end=stands), ledger=found, source=there)).verdict
        assert isinstance(verdict, SourceTruncated)
        return [evidence.data["batch"] for evidence in verdict.evidence if "landedAt" in evidence.data]

    assert seen_at(named) == []
    assert seen_at(replace(named, ranges=Ranges({PARENT: OffsetRange(10, 30)}))) == [4]


def test_the_stream_goes_on_behind_a_partition_that_is_gone_where_the_resource_asks_for_it() -> None:
    on = replace(UNCOUNTED, on_source_truncated=OnSourceTruncated.RESUME_FROM_EARLIEST)
    decision = decide(_vanished(request=on))
    assert isinstance(decision.verdict, SourceTruncated)
    assert not decision.halts
    [seed] = [action for action in decision.actions if isinstance(action, SeedAndPublish)]
    assert seed.after.positions == Positions({PARENT: END, CHILD: 40})
    assert [(row.partition, row.from_offset, row.until_offset) for row in seed.given_up] == [(PARENT, 30, END)]


def test_records_that_expired_are_told_without_a_number_where_positions_count_nothing() -> None:
    verdict = decide(_decided(source=source({CHILD: (43, END)}))).verdict
    assert isinstance(verdict, SourceTruncated)
    assert "how many is not known: orders-shard-1 [<40>, <43>)" in verdict.message
    assert verdict.evidence[0].words == (
        "orders-shard-1: the next position is <40>, the earliest held is <43>; how many records are gone is not known"
    )


def test_a_stream_that_was_recreated_is_another_source_and_not_a_gap() -> None:
    there = source({PARENT: (0, END), CHILD: (43, END)}, origin_ids={"orders": "created later"})
    verdict = decide(_decided(source=there)).verdict
    assert isinstance(verdict, SourceReplaced)
    assert "orders was recreated (its id was id-1 and is created later)" in verdict.message


def test_nothing_is_said_to_be_unverifiable_of_a_partition_that_has_ended() -> None:
    there = source({PARENT: (END, END), CHILD: (0, END)})
    assert not any("cannot be told" in item.words for item in decide(_decided(source=there)).verdict.evidence)


def test_a_partition_that_ended_lands_alone_and_the_rest_of_its_batch_is_finished() -> None:
    before, end = Positions({PARENT: 10, CHILD: 0}), Positions({PARENT: END, CHILD: 5})
    batches = (
        batch(4, Ranges({PARENT: OffsetRange(0, 10), CHILD: OffsetRange(0, 0)})),
        batch(5, Ranges({PARENT: OffsetRange(10, END), CHILD: OffsetRange(0, 5)}), BatchStatus.IN_PROGRESS),
    )
    stands = ledger(stands=Positions({PARENT: END, CHILD: 0}), batches=batches)
    by_partition = replace(UNCOUNTED, commit=asked().commit.__class__.PARTITION)
    there = source({PARENT: (0, END), CHILD: (0, END)})
    verdict = decide(
        _decided(logs(5, 4, start=before, end=end), ledger=stands, source=there, request=by_partition)
    ).verdict
    assert isinstance(verdict, FinishBatch)


def test_evidence_holds_no_number_that_a_reader_of_json_would_round() -> None:
    [evidence, *_] = decide(_vanished()).verdict.evidence
    assert evidence.data == {"topic": "orders", "partition": "shard-0", "from": 30, "until": str(END)}


@pytest.mark.parametrize("ended", [True, False])
def test_positions_leave_out_a_partition_only_at_its_end(ended: bool) -> None:
    start, until = Positions({PARENT: END if ended else 5, CHILD: 0}), Positions({CHILD: 7})
    if ended:
        assert start.ranges_until(until) == Ranges({CHILD: OffsetRange(0, 7)})
        assert start.ended == {PARENT}
        assert str(start) == "orders-shard-0@its end, orders-shard-1@0"
    else:
        with pytest.raises(ValueError, match="no end is given for orders-shard-0"):
            start.ranges_until(until)


TAKEN_5 = batch(5, Ranges({CHILD: OffsetRange(40, 50)}), BatchStatus.TAKEN)
SITUATIONS = {
    "continues": _decided(),
    "landed, not committed": _decided(replace(LEFT_OUT, checkpointed=BatchNumber(3))),
    "planned, not landed": _decided(logs(5, 4, start=AFTER_BATCH_4, end=Positions({CHILD: 50}))),
    "planned otherwise": _decided(logs(start=Positions({PARENT: END, CHILD: 0}), end=Positions({CHILD: 41}))),
    "landed with other ranges": _decided(
        replace(LEFT_OUT, planned_start=Positions({PARENT: END, CHILD: 1}), checkpointed=BatchNumber(3))
    ),
    "planned backwards": _decided(logs(5, 4, start=AFTER_BATCH_4, end=Positions({CHILD: 39}))),
    "planned from elsewhere": _decided(logs(5, 4, start=Positions({CHILD: 30}), end=Positions({CHILD: 50}))),
    "the ledger went back": _decided(logs(5, 5, start=AFTER_BATCH_4, end=Positions({CHILD: 50}))),
    "without a checkpoint": _decided(Absent()),
    "beside a driver that may live": _decided(predecessor=MAY_LIVE),
    "a first start": _decided(ledger=NOT_STARTED, location=EMPTY, start=Positions({PARENT: 0, CHILD: 40})),
    "taken and maybe not written": _decided(ledger=ledger(stands=AFTER_BATCH_4, batches=(BATCH_4, TAKEN_5))),
    "its next record is gone": _decided(source=source({CHILD: (60, END)})),
}


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_every_sentence_of_a_decision_has_positions_as_the_source_writes_them(situation: Observation) -> None:
    """Those of Kinesis are integers of 65 digits that stand in no other place: a person compares sequence numbers."""
    verdict = decide(situation).verdict
    said = [verdict.message, *(evidence.words for evidence in verdict.evidence)]
    assert any("<" in words for words in said), said
    assert [words for words in said if re.search(r"[@\[]\d|, \d+\)|\bat \d|up to \d", words)] == []
