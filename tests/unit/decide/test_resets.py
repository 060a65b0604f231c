"""A person asked for other positions: what is decided where the stream stands as it did then, and what where it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from exactlyonce.api.resource import FRESH
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, Positions
from exactlyonce.reconcile.asked_reset import AskedReset, ResetMalformed
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Launch,
    OffsetsReset,
    Resume,
    SeedAndPublish,
    SourceReplaced,
)
from tests.unit.decide.facts import (
    BATCH_4,
    BEGUN_5,
    MAY_LIVE,
    ONE,
    ORDERS,
    TOKEN,
    ZERO,
    asked,
    at,
    batch,
    damaged,
    ledger,
    location,
    logs,
    ranges,
    seen,
    source,
)

WHEN = datetime(2026, 5, 1, 12, tzinfo=UTC)
WORDS = "jane asked for it at 2026-05-01T12:00:00+00:00: wrong join"
MARK = Fingerprint(59, "digest of 59", 0, 0)


def reset(after: Positions, before: Positions = at(40, 30), number: int = 4, *, keep: bool = False) -> AskedReset:  # noqa: B008 - immutable
    return AskedReset(ledger().stream.life, BatchNumber(number), before, after, keep, "jane", WHEN, "wrong join")


def requested(wanted: AskedReset, facts: Observation | None = None, **changes: object) -> Observation:
    found = seen() if facts is None else facts
    return replace(found, request=replace(found.request, reset_offsets=wanted.to_json(), **changes))  # type: ignore[arg-type]


def seeded(facts: Observation) -> SeedAndPublish:
    decision = decide(facts)
    assert isinstance(decision.verdict, OffsetsReset), decision.verdict
    *_, seed, launch = decision.actions
    assert isinstance(seed, SeedAndPublish)
    assert launch == Launch()
    return seed


def refusal(facts: Observation) -> str:
    decision = decide(facts)
    assert isinstance(decision.verdict, Contradiction), decision.verdict
    assert (decision.verdict.reason, decision.actions) == (ContradictionReason.RESET_REFUSED, ())
    assert decision.verdict.message.startswith("The positions of shop/orders are not reset: ")
    assert decision.verdict.message.endswith("and the stream continues where it stands.")
    return decision.verdict.message


def test_a_request_is_read_as_it_was_written() -> None:
    wanted = reset(Positions({ZERO: PARTITION_END, ONE: 5}), keep=True)
    assert AskedReset.from_json(wanted.to_json()) == wanted


def test_a_new_generation_begins_at_the_positions_asked_for_and_says_what_it_skips_and_repeats() -> None:
    facts = requested(reset(at(60, 10)))
    seed = seeded(facts)
    assert (seed.before, seed.after.positions, seed.seed_batch, seed.resets) == (at(40, 30), at(60, 10), 5, True)
    assert seed.note == decide(facts).verdict.message == (
        "The positions are reset: orders-0 from 40 to 60, orders-1 from 30 to 10; 20 records are skipped and given up; "
        f"20 records are read again. {WORDS}."
    )  # fmt: skip
    told = [item.words for item in decide(facts).verdict.evidence]
    assert told[:3] == [
        f"a reset was asked for when batch 4 had landed: {WORDS}",
        "skipped: orders-0 [40, 60)",
        "read again: orders-1 [10, 30)",
    ]


def test_what_is_skipped_is_recorded_as_lost_with_who_asked_and_which_records_they_are() -> None:
    facts = requested(reset(at(60, 10)), replace(seen(), source_address="brokers", last_before_reset={ZERO: MARK}))
    (row,) = seeded(facts).given_up
    words = f"skipped by a reset of the positions. {WORDS}"
    assert row == FailureRow(
        BatchNumber(5), ZERO, 40, 60, FailureStatus.LOST, "brokers", words, origin_id="id-1", fingerprint=MARK,
        life=ledger().stream.life,
    )  # fmt: skip


def test_what_is_skipped_and_kept_is_quarantined_with_what_a_replay_recognises_it_by() -> None:
    facts = requested(
        reset(at(60, 30), keep=True), replace(seen(), last_before_reset={ZERO: MARK}), most_quarantined=70
    )
    seed = seeded(facts)
    (row,) = seed.given_up
    assert (row.status, row.origin_id, row.fingerprint, row.life) == (
        FailureStatus.QUARANTINED, "id-1", MARK, ledger().stream.life,
    )  # fmt: skip
    assert seed.most_quarantined == 70
    assert seed.after.fingerprints[ZERO] == MARK, "the source is recognised by the record before the new position"
    assert seed.after.fingerprints[ONE].offset == 29, "a position that does not move keeps its own"


def in_quarantine(first: int, until: int) -> FailureRow:
    return FailureRow(
        BatchNumber(2), ONE, first, until, FailureStatus.QUARANTINED, "brokers", "it fails", origin_id="id-1"
    )


@pytest.mark.parametrize(("most", "count"), [(24, 25), (25, None)])
def test_what_is_kept_counts_with_what_stays_in_quarantine_and_not_with_what_is_read_again(
    most: int, count: int | None
) -> None:
    held = (in_quarantine(0, 5), in_quarantine(10, 20))  # 0 to 5 stay; the rest is read again from 5 on
    facts = requested(reset(at(60, 5), keep=True), replace(seen(), kept=held), most_quarantined=most)
    if count is None:
        assert len(seeded(facts).given_up) == 1
    else:
        assert f"{count} records would be in quarantine, more than recovery.maxQuarantined ({most})" in refusal(facts)


def test_what_a_replay_has_decided_is_not_read_again_since_its_rows_are_committed_whatever_the_positions_are() -> None:
    decided = replace(in_quarantine(10, 20), status=FailureStatus.REPLAYING, replay="mine decided")
    facts = requested(reset(at(60, 15)), replace(seen(), kept=(decided, in_quarantine(0, 5))))
    assert "the range 2/orders-1/10 is decided by a replay, and its rows will be committed" in refusal(facts)
    behind = requested(reset(at(60, 20)), replace(seen(), kept=(decided,)))
    assert seeded(behind).after.positions == at(60, 20), "nothing of it is read again"


def test_where_the_stream_stands_a_new_generation_begins_and_nothing_is_skipped_or_repeated() -> None:
    seed = seeded(requested(reset(at(40, 30))))
    assert (seed.after.positions, seed.given_up) == (at(40, 30), ())
    assert seed.note == f"A new generation begins where the sink stands. {WORDS}."


@pytest.mark.parametrize("changes", [{"checkpoint": damaged()}, {"predecessor": MAY_LIVE}, {"checkpoint": logs(5, 4)}])
def test_neither_a_bad_checkpoint_nor_a_driver_that_may_live_nor_a_planned_batch_stands_in_the_way(
    changes: dict[str, object],
) -> None:
    assert seeded(requested(reset(at(10, 10)), replace(seen(), **changes))).after.positions == at(10, 10)  # type: ignore[arg-type]


def test_of_a_batch_that_landed_in_part_the_positions_are_what_counts() -> None:
    stands = at(50, 30)
    facts = seen(logs(5, 4, at(40, 30), at(50, 45)), ledger=ledger(stands=stands, batches=(BATCH_4, BEGUN_5)))
    assert seeded(requested(reset(at(45, 30), stands), facts)).after.positions == at(45, 30)


def test_retention_is_no_loss_where_the_reset_stands_behind_what_it_took() -> None:
    held = source({ZERO: (50, 100), ONE: (0, 100)})
    assert seeded(requested(reset(at(50, 30)), seen(source=held))).after.positions == at(50, 30)


@pytest.mark.parametrize("number", [3, 5])
def test_a_request_for_another_batch_has_no_effect(number: int) -> None:
    verdict = decide(requested(reset(at(10, 10), number=number))).verdict
    assert isinstance(verdict, Resume)
    words = f"the reset that jane asked for when batch {number} had landed has no effect any more, and batch 4 has landed since"
    assert verdict.evidence[-1].words.startswith(words), "and nobody has to guess why nothing was reset"


def test_a_request_that_was_made_of_a_former_life_of_the_stream_has_no_effect() -> None:
    """The annotation is kept with the resource, and may be applied again with it: the same number may have landed again."""
    former = replace(reset(at(10, 10)), life="another life")
    verdict = decide(requested(former)).verdict
    assert isinstance(verdict, Resume)
    assert verdict.evidence[-1].words.endswith("has no effect any more, and the stream has started over since")


def test_an_empty_annotation_asks_for_nothing() -> None:
    assert isinstance(decide(seen(request=asked(reset_offsets=""))).verdict, Resume)


@pytest.mark.parametrize(
    ("wanted", "facts", "why"),
    [
        (reset(at(10, 10), at(35, 30)), seen(), "positions have moved since the reset was asked for"),
        (reset(at(10, 10)), seen(ledger=ledger(stateful=True)), "the query keeps state"),
        (
            reset(at(10, 10)),
            seen(ledger=replace(ledger(), decided=DecidedBatch(BatchNumber(5), (Committable("a", "1", 1, ranges()),)))),
            "batch 5 is decided, and its rows will be committed; let the stream run until it has landed",
        ),
        (reset(at(5, 30)), seen(source=source({ZERO: (7, 100), ONE: (0, 100)})), "holds orders-0 from 7 on, and"),
        (
            reset(at(10, 30)),
            seen(source=source({ZERO: (0, 100), ONE: (31, 100)})),
            "holds orders-1 from 31 on, and the stream would stand at 30",
        ),
        (reset(at(101, 30)), seen(), "the source holds orders-0 up to 100, and the stream would stand at 101"),
        (
            reset(at(PARTITION_END, 30)),
            seen(source=source({ZERO: (0, PARTITION_END), ONE: (0, 100)})),
            "orders-0 would be set from 40 to its end; what has been read to its end stays there",
        ),
    ],
)  # fmt: skip
def test_positions_that_would_lose_or_double_what_nobody_named_are_refused(
    wanted: AskedReset, facts: Observation, why: str
) -> None:
    assert why in refusal(requested(wanted, facts))


def test_a_stream_that_was_only_seeded_keeps_its_number_so_it_starts_over_instead() -> None:
    only_seeded = ledger(0, batches=(batch(0, ranges((40, 40), (30, 30))),))
    facts = seen(
        logs(0, 0, None, at(40, 30)), ledger=only_seeded, location=location(highest_planned={}, ran=frozenset())
    )
    assert f"annotate {FRESH}={TOKEN} to start over there" in refusal(requested(reset(at(10, 10), number=0), facts))


def test_a_source_that_is_another_halts_first() -> None:
    facts = seen(source=source(origin_ids={"orders": "id-2"}))
    assert isinstance(decide(requested(reset(at(0, 0)), facts)).verdict, SourceReplaced)


def test_a_resource_that_reads_other_partitions_is_not_reset_as_well() -> None:
    facts = seen(request=asked(source=replace(ORDERS, origins=frozenset({"refunds"}))))
    assert "the resource reads other partitions than the stream has read" in refusal(requested(reset(at(0, 0)), facts))


MALFORMED = [
    "", "{", "[]", '"x"', "{}", "null",
    reset(at(1, 1)).to_json().replace('"batch":4', '"batch":"4"'),
    reset(at(1, 1)).to_json().replace('"batch":4', '"batch":true'),
    reset(at(1, 1)).to_json().replace('"after":{"orders":{"0":1,"1":1}}', '"after":{"orders":{"0":1}}'),
    reset(at(1, 1)).to_json().replace('"after":{"orders":{"0":1,"1":1}}', '"after":{"orders":{"0":-1,"1":1}}'),
    reset(at(1, 1)).to_json().replace("2026-05-01", "yesterday"),
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_request_is_refused_whole(text: str) -> None:
    with pytest.raises(ResetMalformed):
        AskedReset.from_json(text)


@pytest.mark.parametrize("text", MALFORMED[1:])
def test_an_annotation_that_is_no_request_halts_the_stream(text: str) -> None:
    facts = seen(request=asked(reset_offsets=text))
    assert "is not what `exactlyonce offsets reset` writes" in refusal(facts)


def test_what_a_person_writes_stays_one_line_of_bounded_length() -> None:
    told = replace(reset(at(1, 1)), by="j\nane", message="x" * 10_000)
    found = AskedReset.from_json(told.to_json())
    assert found.by == "j ane"
    assert len(found.message) <= 500
