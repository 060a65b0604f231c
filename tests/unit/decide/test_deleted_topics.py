"""Topics that a pattern matched and that were deleted, or deleted and recreated: docs/adr/0010.

The stream stands at orders-0@40, orders-1@30 and refunds-0@7, and orders is what proves that the cluster is still the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.api.recovery import OnCheckpointLost, OnSourceTruncated, OnTopicDeleted
from exactlyonce.checkpoint.state import Absent
from exactlyonce.ledger.rows import NO_POSITIONS, FailureRow, FailureStatus, LandedPositions, QueryMark
from exactlyonce.positions.ranges import BatchNumber, Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    RebuildFromSink,
    RebuildReason,
    Resume,
    RewindToSink,
    SeedAndPublish,
    SourceReplaced,
    SourceTruncated,
)
from tests.unit.decide.facts import ONE, ZERO, asked, at, batch, fingerprints_at, ledger, logs, seen, source

REFUNDS, OTHERS = Partition("refunds", 0), Partition("others", 0)
ANY_TOPIC = Selection(pattern=".*")
STANDS = Positions({ZERO: 40, ONE: 30, REFUNDS: 7})
IDS = {"orders": "id-1", "refunds": "id-2"}
RECREATED = {"orders": "id-1", "refunds": "id-9"}
ONLY_ORDERS = {ZERO: (0, 100), ONE: (0, 100)}
BOTH = {**ONLY_ORDERS, REFUNDS: (0, 100)}
RETIRED = LandedPositions(Positions({REFUNDS: 7}), {"refunds": "id-2"}, fingerprints_at(Positions({REFUNDS: 7})))
FORGET = asked(source=ANY_TOPIC, on_topic_deleted=OnTopicDeleted.FORGET)
HALT = asked(source=ANY_TOPIC)


def stands(positions: Positions = STANDS, **changes: Any) -> Any:
    """Return the ledger of a stream that reads by pattern and has landed up to these positions."""
    origin_ids = {key.origin: IDS[key.origin] for key in positions}
    rows = (batch(4, Ranges.empty_at(positions)),)
    left_out = changes.get("retired", NO_POSITIONS).positions
    query = QueryMark(ANY_TOPIC, "query-1", "", left_out=left_out)
    return ledger(stands=positions, origin_ids=origin_ids, query=query, batches=rows, **changes)


def deleted(planned: Positions = STANDS, **changes: Any) -> Observation:
    """Return what is seen once refunds was deleted; `planned` is the end of the latest batch that Spark planned."""
    checkpoint = logs(4, 4, STANDS, STANDS) if planned == STANDS else logs(5, 4, STANDS, planned)
    facts: dict[str, Any] = {
        "ledger": stands(), "request": FORGET, "source": source(ONLY_ORDERS, {"orders": "id-1"}), **changes,
    }  # fmt: skip
    return seen(checkpoint, **facts)


def seeded(decision: Decision) -> SeedAndPublish:
    """Return the one seed of a decision."""
    (found,) = [action for action in decision.actions if isinstance(action, SeedAndPublish)]
    return found


def lost(partition: Partition, wanted: int, until: int) -> FailureRow:
    """Return the failure of records that went with their topic."""
    words = "its topic was deleted before the records landed"
    return FailureRow(BatchNumber(5), partition, wanted, until, FailureStatus.LOST, "", words, origin_gone=True)


def test_a_deleted_topic_is_retired_and_the_reason_says_from_which_offset_on_its_records_are_lost() -> None:
    decision = decide(deleted())
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is RebuildReason.TOPIC_DELETED
    assert decision.verdict.message == (
        "Topic refunds, which the pattern matched, was deleted: records from refunds-0@7 on, if there were any, are lost. "
        "A new generation continues without it at orders-0@40, orders-1@30."
    )
    made = seeded(decision)
    assert (made.before, made.after.positions, made.note) == (STANDS, at(40, 30), decision.verdict.message)
    assert made.given_up == (), "nothing was planned beyond what landed"


def test_records_of_a_deleted_topic_that_were_planned_and_had_not_landed_are_recorded_as_lost() -> None:
    decision = decide(deleted(planned=Positions({ZERO: 50, ONE: 30, REFUNDS: 12})))
    assert isinstance(decision.verdict, RebuildFromSink)
    assert "refunds-0 [7, 12) were planned and had not landed" in decision.verdict.message
    assert seeded(decision).given_up == (lost(REFUNDS, 7, 12),)
    assert seeded(decision).after.positions == at(40, 30), "what was planned of orders is read again"


def test_a_topic_that_was_deleted_before_anything_of_it_landed_is_recorded_as_lost_and_forgotten() -> None:
    facts = deleted(planned=Positions({**STANDS, OTHERS: 3}), source=source(BOTH, IDS))
    decision = decide(facts)
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is RebuildReason.TOPIC_DELETED
    assert seeded(decision).given_up == (lost(OTHERS, 0, 3),)
    assert seeded(decision).after.positions == STANDS


def test_a_deleted_topic_is_forgotten_also_where_no_checkpoint_is_left_that_may_have_planned_of_it() -> None:
    facts = deleted(request=replace(FORGET, on_checkpoint_lost=OnCheckpointLost.REBUILD_FROM_SINK))
    decision = decide(replace(facts, checkpoint=Absent()))
    assert isinstance(decision.verdict, RebuildFromSink)
    assert seeded(decision).after.positions == at(40, 30)


def test_a_topic_that_was_deleted_before_anything_of_it_landed_halts_and_the_way_out_is_named() -> None:
    verdict = decide(deleted(planned=Positions({**STANDS, OTHERS: 3}), source=source(BOTH, IDS), request=HALT)).verdict
    assert isinstance(verdict, SourceReplaced)
    assert "topic others does not exist any more" in verdict.message
    assert "set recovery.onTopicDeleted to Forget to continue without the topics that are gone" in verdict.message


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(source({OTHERS: (0, 100)}, {"others": "id-7"}), id="other topics match the pattern"),
        pytest.param(source({ZERO: (0, 100), ONE: (0, 100)}, {"orders": "id-8"}), id="all topics have other ids"),
        pytest.param(source({}, {}), id="no topic matches the pattern"),
    ],
)
def test_nothing_is_forgotten_where_no_topic_proves_that_the_cluster_is_still_the_same(found: Any) -> None:
    """The brokers may be another cluster's, and would be read from the beginning."""
    decision = decide(deleted(source=found))
    assert decision.halts
    assert isinstance(decision.verdict, SourceReplaced)
    assert "Forget" not in decision.verdict.message, "it would change nothing"


def test_the_record_that_landed_last_proves_the_cluster_where_brokers_have_no_topic_ids() -> None:
    none = {"orders": "", "refunds": ""}
    facts = deleted(ledger=replace(stands(), landed=replace(stands().landed, origin_ids=none)))
    without_ids = replace(facts, source=replace(facts.source, origin_ids={"orders": ""}))
    assert isinstance(decide(without_ids).verdict, RebuildFromSink)
    unproven = replace(without_ids, source=replace(without_ids.source, records={}))
    assert isinstance(decide(unproven).verdict, SourceReplaced)


def test_a_topic_that_was_deleted_and_recreated_is_read_from_its_first_record() -> None:
    planned = Positions({ZERO: 40, ONE: 30, REFUNDS: 12})
    shorter = {**ONLY_ORDERS, REFUNDS: (0, 3)}
    decision = decide(deleted(planned=planned, source=source(shorter, RECREATED)))
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is RebuildReason.TOPIC_DELETED, (
        "what was planned of the old topic is not the new one's"
    )
    assert decision.verdict.message == (
        "Topic refunds, which the pattern matched, was deleted: records from refunds-0@7 on, if there were any, are lost; "
        "refunds-0 [7, 12) were planned and had not landed. Topic refunds was recreated and is read from its first record. A "
        "new generation continues at orders-0@40, orders-1@30, refunds-0@0."
    )
    made = seeded(decision)
    assert made.after.positions == Positions({ZERO: 40, ONE: 30, REFUNDS: 0})
    assert (made.after.origin_ids, made.after.fingerprints.get(REFUNDS)) == (RECREATED, None)
    assert made.given_up == (lost(REFUNDS, 7, 12),)


def test_a_forgotten_topic_that_is_recreated_is_read_from_its_first_record() -> None:
    facts = deleted(ledger=stands(at(40, 30), retired=RETIRED), source=source(BOTH, RECREATED))
    facts = replace(facts, checkpoint=logs(4, 4, at(40, 30)))
    decision = decide(facts)
    assert isinstance(decision.verdict, RebuildFromSink)
    assert "Topic refunds was recreated and is read from its first record" in decision.verdict.message
    assert seeded(decision).after.positions == Positions({ZERO: 40, ONE: 30, REFUNDS: 0})


def test_a_topic_that_was_missing_for_a_moment_goes_on_where_it_stood() -> None:
    facts = deleted(ledger=stands(at(40, 30), retired=RETIRED), source=source(BOTH, IDS))
    facts = replace(facts, checkpoint=logs(4, 4, at(40, 30)))
    assert seeded(decide(facts)).after.positions == STANDS


def test_a_topic_that_is_still_gone_changes_nothing_any_more() -> None:
    facts = replace(deleted(ledger=stands(at(40, 30), retired=RETIRED)), checkpoint=logs(4, 4, at(40, 30)))
    assert isinstance(decide(facts).verdict, Resume)


def test_a_topic_recreated_halts_unless_it_is_to_be_forgotten_and_the_way_out_is_named() -> None:
    verdict = decide(deleted(source=source(BOTH, RECREATED), request=HALT)).verdict
    assert isinstance(verdict, SourceReplaced)
    assert "topic refunds was recreated (its id was id-2 and is id-9)" in verdict.message
    assert (
        "set recovery.onTopicDeleted to Forget to continue without what is gone and read what was recreated from its first "
        "record, " in verdict.message
    )


def test_a_topic_recreated_that_has_lost_its_first_records_already_halts_and_counts_them() -> None:
    exists = {**ONLY_ORDERS, REFUNDS: (4, 100)}
    decision = decide(deleted(source=source(exists, RECREATED)))
    assert decision.halts
    assert isinstance(decision.verdict, SourceTruncated)
    assert "refunds-0 [0, 4)" in decision.verdict.message


def test_records_lost_with_the_old_topic_and_with_the_new_one_are_told_and_recorded() -> None:
    request = replace(FORGET, on_source_truncated=OnSourceTruncated.RESUME_FROM_EARLIEST)
    exists = {**ONLY_ORDERS, REFUNDS: (4, 100)}
    planned = Positions({ZERO: 40, ONE: 30, REFUNDS: 12})
    decision = decide(deleted(planned=planned, source=source(exists, RECREATED), request=request))
    assert isinstance(decision.verdict, SourceTruncated)
    assert "refunds-0 [7, 12) were planned and had not landed" in decision.verdict.message
    made = seeded(decision)
    of_the_new, of_the_old = made.given_up
    assert (of_the_new.from_offset, of_the_new.until_offset, of_the_new.origin_gone) == (0, 4, False)
    assert of_the_old == lost(REFUNDS, 7, 12)


def test_a_worse_reason_for_a_new_generation_is_told_first_and_the_topic_is_forgotten_with_it() -> None:
    checkpoint = logs(6, 6, STANDS, Positions({ZERO: 60, ONE: 60, REFUNDS: 9}))
    decision = decide(replace(deleted(), checkpoint=checkpoint))
    assert isinstance(decision.verdict, RewindToSink)
    assert "Topic refunds, which the pattern matched, was deleted" in decision.verdict.message
    assert seeded(decision).after.positions == at(40, 30)
    assert seeded(decision).given_up == (lost(REFUNDS, 7, 9),), "they landed once, in what the restore took away"


def test_a_plan_that_lacks_the_deleted_topic_is_no_lost_checkpoint() -> None:
    """Spark plans without the topic as soon as it is gone, and then finds that it must not continue."""
    request = replace(FORGET, on_checkpoint_lost=OnCheckpointLost.HALT)
    decision = decide(deleted(planned=at(45, 30), request=request))
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is RebuildReason.TOPIC_DELETED
    assert not decision.halts
    assert seeded(decision).after.positions == at(40, 30)


@pytest.mark.parametrize("request_", [HALT, FORGET], ids=["Halt", "Forget"])
def test_a_query_that_keeps_state_cannot_forget_a_topic_and_is_told_what_it_can_do(request_: Any) -> None:
    decision = decide(deleted(ledger=stands(stateful=True), request=request_))
    assert decision.halts
    assert "Forget" not in decision.verdict.message, "that would halt it just so"
    if request_ is FORGET:
        assert isinstance(decision.verdict, Contradiction)
        assert decision.verdict.reason is ContradictionReason.STATEFUL_QUERY_CHANGED
        assert decision.verdict.message == (
            "Topic refunds, which the pattern matched, was deleted, and the query keeps state that was made with it. Make a "
            "stream with another streamId, which starts with empty state."
        )


def test_what_a_source_calls_its_origins_is_the_word_of_the_messages() -> None:
    gone = decide(deleted(request=replace(HALT, origin_noun="shard"))).verdict
    made = decide(deleted(source=source(BOTH, RECREATED), request=replace(FORGET, origin_noun="shard"))).verdict

    assert "shard refunds does not exist any more" in gone.message
    assert "to continue without the shards that are gone" in gone.message
    assert "Shard refunds was recreated and is read from its first record" in made.message
    assert "topic " not in f"{gone.message} {made.message}".lower()
