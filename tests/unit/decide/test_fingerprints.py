"""The last landed records against what the source holds now: what is the same, what is not, and what cannot be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID, Fingerprint
from exactlyonce.positions.ranges import Partition
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import RebuildFromSink, RebuildReason, Resume, SourceReplaced
from exactlyonce.source.port import SourceView
from tests.unit.decide.facts import BATCH_4, BEGUN_5, ONE, ZERO, at, fingerprints_at, ledger, logs, seen, source

KEPT = fingerprints_at(at(40, 30))
CANNOT = "cannot be told"


def holding(records: Mapping[Partition, Fingerprint | None], **source_changes: object) -> Observation:
    """Return the healthy stream whose source holds these records at the fingerprints' offsets."""
    view: SourceView = replace(source(), records=records, **source_changes)  # type: ignore[arg-type] # fields of the view
    return seen(source=view)


def untold(facts: Observation) -> list[str]:
    """Return what the verdict says that cannot be told."""
    return [item.words for item in decide(facts).verdict.evidence if CANNOT in item.words]


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        pytest.param(Fingerprint(39, "other", 0, 0), "its checksum is other and was digest of 39", id="other content"),
        pytest.param(Fingerprint(39, "digest of 39", 7, 0), "its timestamp is 7 and was 0", id="another timestamp"),
        pytest.param(
            Fingerprint(39, "digest of 39", 0, 3),
            "it was written in leader epoch 3 and was of leader epoch 0",
            id="the same content written again",
        ),
        pytest.param(None, "no record is there", id="none"),
    ],
)
def test_another_record_where_one_landed_halts_and_names_partition_and_offset(
    found: Fingerprint | None, difference: str
) -> None:
    decision = decide(holding({**KEPT, ZERO: found}))
    assert decision.halts
    assert isinstance(decision.verdict, SourceReplaced)
    words = f"orders-0 has landed up to 40 and offset 39 is not what landed ({difference})"
    assert [item.words for item in decision.verdict.evidence] == [words]
    assert words in decision.verdict.message


def test_the_same_records_go_on_and_nothing_is_left_untold() -> None:
    facts = holding(dict(KEPT))
    assert isinstance(decide(facts).verdict, Resume)
    assert untold(facts) == []


def test_an_epoch_that_the_brokers_do_not_tell_is_no_difference() -> None:
    unknown = {key: replace(kept, leader_epoch=None) for key, kept in KEPT.items()}
    assert isinstance(decide(holding(unknown)).verdict, Resume)


def test_a_record_that_compaction_may_have_taken_is_told_and_does_not_halt() -> None:
    facts = holding({**KEPT, ZERO: None}, compacted=frozenset({"orders"}))
    assert isinstance(decide(facts).verdict, Resume)
    assert untold(facts) == [
        "whether the last records that landed of orders-0 are still the same cannot be told: compaction may have taken them"
    ]


def test_another_record_in_a_compacted_topic_halts() -> None:
    other = Fingerprint(39, "other", 0, 0)
    assert isinstance(decide(holding({**KEPT, ZERO: other}, compacted=frozenset({"orders"}))).verdict, SourceReplaced)


def test_records_that_retention_took_after_they_landed_cannot_be_compared() -> None:
    facts = seen(source=source({ZERO: (40, 100), ONE: (0, 100)}))
    assert isinstance(decide(facts).verdict, Resume)
    assert untold(facts) == [
        "whether the last records that landed of orders-0 are still the same cannot be told: the source no longer holds them"
    ]


def test_a_ledger_of_an_earlier_release_says_that_nothing_can_be_compared() -> None:
    facts = seen(ledger=ledger(fingerprints={}))
    assert isinstance(decide(facts).verdict, Resume)
    assert untold(facts) == [
        "whether the last records that landed of orders-0, orders-1 are still the same cannot be told: no fingerprint of them "
        "is kept"
    ]


@pytest.mark.parametrize(
    ("known", "found"),
    [(ZERO_ORIGIN_ID, ZERO_ORIGIN_ID), (ZERO_ORIGIN_ID, "id-1"), ("id-1", ZERO_ORIGIN_ID), ("", "id-1"), ("id-1", "")],
)
def test_the_zero_id_is_neither_the_same_nor_another_one_and_that_is_told(known: str, found: str) -> None:
    facts = seen(ledger=ledger(origin_ids={"orders": known}), source=source(origin_ids={"orders": found}))
    assert isinstance(decide(facts).verdict, Resume)
    assert untold(facts) == ["whether orders was recreated cannot be told by its id: then or now the source had none"]


def test_a_new_generation_forgets_no_id_that_the_brokers_do_not_tell_now() -> None:
    facts = seen(logs(3, 3), source=source(origin_ids={"orders": ZERO_ORIGIN_ID}))
    (seed, _) = decide(facts).actions
    assert seed.after.origin_ids == {"orders": "id-1"}  # type: ignore[union-attr] # the first action is the seed


def test_a_batch_that_was_planned_beyond_the_end_of_the_source_is_planned_again() -> None:
    facts = seen(
        logs(5, 4, at(40, 30), at(50, 45)),
        ledger=ledger(batches=(BATCH_4, BEGUN_5)),
        source=source({ZERO: (0, 46), ONE: (0, 100)}),
    )
    decision = decide(facts)
    assert not decision.halts
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is RebuildReason.PLANNED_BEYOND_SOURCE
    assert decision.verdict.message.startswith(
        "Batch 5 was planned to read orders-0 up to 50 and ends at 46: the source lost records before they landed"
    )
