"""The sink has committed a load that the ledger does not know: nothing starts before a person has said what is there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from exactlyonce.api.resource import FRESH
from exactlyonce.checkpoint.state import Absent
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.known_loads import FoundLoad, KnownLoads, LatestLoads, digest_of
from exactlyonce.ledger.rows import BatchStatus, FailureStatus, LedgerView
from exactlyonce.ledger.settlement import Settlement
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions
from exactlyonce.positions.selection import Selection
from exactlyonce.reconcile.asked_reset import AskedReset
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Known
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    FirstStart,
    Launch,
    OffsetsReset,
    RecordLoads,
    ReplayBatch,
    RewindToSink,
    SeedAndPublish,
)
from tests.unit.decide.facts import BEGUN_5, ONE, TOKEN, ZERO, asked, at, batch, ledger, logs, ranges, seen, source

LATEST = LatestLoads(BatchNumber(4), ("label-4",), "label-3", "the topic")
SPANS_5 = ((ZERO, OffsetRange(40, 50)), (ONE, OffsetRange(30, 45)))
FOUND = FoundLoad("label-5", BatchNumber(5), 25, SPANS_5, place="the topic")
IS_THERE, IS_NOT = "label-5=Committed by=jane", "label-5=Aborted by=jane"


def behind(found: FoundLoad = FOUND, **changes: Any) -> LedgerView:
    return ledger(loads=KnownLoads(LATEST, found), **changes)


def decided(found: FoundLoad = FOUND, answers: str | None = None, **changes: Any) -> Decision:
    """Return what is decided of the stream that has planned batch 5, which the ledger has lost."""
    request = asked(two_phases=True, tells_latest_load=True, settle_loads=answers, **changes.pop("request", {}))
    given = {"ledger": behind(found), "checkpoint": logs(5, 4, at(40, 30), at(50, 45)), **changes}
    return decide(seen(request=request, **given))


def reset_to(after: Positions, load: str) -> str:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    life = ledger().stream.life
    return AskedReset(
        life, BatchNumber(4), at(40, 30), after, False, "jane", when, "as the topic has it", load
    ).to_json()


def halted(decision: Decision) -> str:
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is ContradictionReason.LEDGER_BEHIND_SINK
    assert decision.halts
    return decision.verdict.message


@pytest.mark.parametrize(
    "answers",
    [None, "label-4=Committed", "label-5=Committed label-5=Aborted", "label-5=Removed"],
    ids=["none", "of another load", "both", "of a part"],
)
def test_a_stream_whose_sink_has_an_unknown_load_halts_until_there_is_an_answer_for_it(answers: str | None) -> None:
    decision = decided(answers=answers)
    message = halted(decision)
    assert "batch 5 of this stream under label-5 (25 rows of orders-0 [40, 50), orders-1 [30, 45))" in message
    assert "label-5=Committed" in message
    assert "label-5=Aborted" in message
    assert decision.actions == ()
    (told,) = decision.verdict.evidence
    assert told.data["ranges"] == '{"orders":{"0":[40,50],"1":[30,45]}}'


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"request": {"limit": "another"}}, id="the limit was changed"),
        pytest.param({"checkpoint": Absent()}, id="the checkpoint is lost"),
        pytest.param({"source": source({ZERO: (60, 100), ONE: (0, 100)})}, id="retention took its records"),
        pytest.param(
            {"request": {"reset_offsets": reset_to(at(0, 0), "")}}, id="a reset is asked for by who did not know"
        ),
    ],
)
def test_nothing_else_takes_a_stream_past_an_unknown_load(changes: dict[str, Any]) -> None:
    halted(decided(**changes))


def test_records_that_a_person_has_found_count_as_landed_and_the_stream_continues_after_them() -> None:
    decision = decided(answers=IS_THERE)
    seed, launch = decision.actions
    assert isinstance(decision.verdict, OffsetsReset)
    assert "as jane says" in decision.verdict.message
    assert isinstance(seed, SeedAndPublish)
    assert (seed.before, seed.after.positions, seed.given_up, launch) == (at(40, 30), at(50, 45), (), Launch())
    assert seed.seed_batch == 6, "batch 5 is another one"
    assert seed.settlement is not None
    assert (seed.settlement.found, seed.settlement.answer) == (FOUND, Answer.COMMITTED)
    row = seed.settlement.row
    assert row is not None
    assert (row.batch, row.status, row.ranges, row.rows_written) == (
        5,
        BatchStatus.LANDED,
        ranges((40, 50), (30, 45)),
        25,
    )
    assert row.note == "in the sink under label-5, as jane says; the ledger had lost it"


@pytest.mark.parametrize(
    ("spans", "after", "kept"),
    [
        pytest.param(
            ((ZERO, OffsetRange(46, 50)), (ONE, OffsetRange(30, 45))), at(50, 45), [(ZERO, 40, 46)], id="before it"
        ),
        pytest.param(
            ((ZERO, OffsetRange(40, 42)), (ZERO, OffsetRange(43, 50)), (ONE, OffsetRange(30, 45))),
            at(50, 45), [(ZERO, 42, 43)], id="among its records",
        ),
        pytest.param(
            ((ZERO, OffsetRange(40, 50)), (ONE, OffsetRange(36, 36))), at(50, 36), [(ONE, 30, 36)],
            id="in a partition of which it has none",
        ),
        pytest.param(
            ((ZERO, OffsetRange(35, 38)), (ONE, OffsetRange(30, 45))), at(40, 45), [], id="none, and it is behind in one"
        ),
        pytest.param(
            ((Partition("orders", 2), OffsetRange(3, 5)), (ZERO, OffsetRange(40, 50)), (ONE, OffsetRange(30, 45))),
            at(50, 45, 5), [(Partition("orders", 2), 0, 3)], id="in a partition that the ledger does not know",
        ),
    ],
)  # fmt: skip
def test_what_the_ledger_has_lost_beside_a_found_load_is_kept_in_quarantine(
    spans: Any, after: Positions, kept: list[tuple[Partition, int, int]]
) -> None:
    seed = decided(replace(FOUND, spans=spans), IS_THERE).actions[0]
    assert isinstance(seed, SeedAndPublish)
    assert seed.after.positions == after
    assert [(row.partition, row.from_offset, row.until_offset) for row in seed.given_up] == kept
    assert {row.status for row in seed.given_up} <= {FailureStatus.QUARANTINED}
    assert all("the ledger went back" in row.error for row in seed.given_up)


def test_records_of_which_a_person_has_found_no_row_are_read_again() -> None:
    decision = decided(answers=IS_NOT)
    assert isinstance(decision.verdict, ReplayBatch)
    settled = RecordLoads(Settlement(FOUND, Answer.ABORTED, "jane"))
    assert decision.actions == (settled, Launch())
    assert any("label-5, as jane says" in told.words for told in decision.verdict.evidence)


@pytest.mark.parametrize(
    ("ranges_planned", "is_known"),
    [pytest.param(((40, 50), (30, 45)), True, id="these"), pytest.param(((40, 50), (30, 44)), False, id="others")],
)
def test_records_of_which_the_sink_keeps_a_digest_are_those_that_spark_has_planned_if_they_fit_it(
    ranges_planned: tuple[tuple[int, int], ...], is_known: bool
) -> None:
    spans = tuple(ranges(*ranges_planned).items())
    decision = decided(replace(FOUND, spans=None, digest=digest_of(spans)), IS_THERE)
    if is_known:
        assert isinstance(decision.actions[0], SeedAndPublish)
        assert decision.actions[0].after.positions == at(50, 45)
    else:
        assert "set the positions with `exactlyonce offsets reset`" in halted(decision)


def test_records_of_which_the_sink_keeps_a_digest_are_those_that_the_ledger_has_decided_under_another_label() -> None:
    load = Committable("label-4", "71", 25, ranges((30, 40), (20, 30)))
    again = FoundLoad("label-4-again", BatchNumber(4), 25, None, digest_of(tuple(load.ranges.items())))
    row = batch(4, load.ranges, BatchStatus.DECIDED)
    view = replace(behind(again, batches=(row,)), decided=DecidedBatch(BatchNumber(4), (load,)))
    decision = decided(again, "label-4-again=Committed", ledger=view)
    assert isinstance(decision.actions[0], SeedAndPublish)
    assert (decision.actions[0].after.positions, decision.actions[0].given_up) == (at(40, 30), ())


def test_an_answer_waits_until_the_resource_reads_the_same_partitions_again() -> None:
    others = {"source": Selection(origins=frozenset({"payments"}))}
    payments = Partition("payments", 0)
    held = source({ZERO: (0, 100), ONE: (0, 100), payments: (0, 9)}, selected=frozenset({payments}))
    message = halted(decided(answers=IS_THERE, request=others, source=held, start=Positions({payments: 0})))
    assert "Its answer is taken up once the resource reads the same partitions again" in message


def test_a_reset_that_names_the_load_counts_before_an_answer_for_it() -> None:
    decision = decided(answers=IS_THERE, request={"reset_offsets": reset_to(at(60, 60), "label-5")})
    seed = decision.actions[0]
    assert isinstance(seed, SeedAndPublish)
    assert seed.after.positions == at(60, 60)


def test_a_reset_that_names_the_load_settles_it_where_nobody_can_tell_its_records() -> None:
    unknown = replace(FOUND, spans=None, digest="of other records")
    decision = decided(unknown, request={"reset_offsets": reset_to(at(50, 45), "label-5")})
    assert isinstance(decision.verdict, OffsetsReset)
    (seed, launch) = decision.actions
    assert isinstance(seed, SeedAndPublish)
    assert (seed.after.positions, seed.settlement, launch) == (at(50, 45), Settlement(unknown, None, "jane"), Launch())


def test_a_new_start_forgets_what_the_sink_has_of_the_former_life() -> None:
    decision = decided(request={"fresh": TOKEN}, start=at(0, 0))
    assert isinstance(decision.verdict, FirstStart)
    assert any(getattr(getattr(one, "adoption", None), "starts_over", False) for one in decision.actions)


def test_a_stream_whose_ledger_has_no_batch_any_more_halts_and_offers_a_new_start() -> None:
    gone = replace(ledger(None, at(), (), {}, query=None, loads=KnownLoads(None, FOUND)))
    message = halted(decided(answers=IS_THERE, ledger=gone, known=None))
    assert f"{FRESH}={TOKEN}" in message


@pytest.mark.parametrize(
    ("checkpoint", "known"),
    [
        pytest.param(logs(5, 5, at(40, 30), at(50, 45)), None, id="Spark's logs"),
        pytest.param(logs(), Known(BatchNumber(5)), id="the status"),
    ],
)
def test_where_something_else_knows_more_than_the_ledger_the_driver_asks_the_sink(checkpoint: Any, known: Any) -> None:
    request = asked(two_phases=True, tells_latest_load=True)
    plain = ledger(loads=KnownLoads(LATEST))
    decision = decide(seen(checkpoint, request=request, ledger=plain, known=known))
    assert not decision.halts
    assert RecordLoads(FoundLoad("", BatchNumber(5))) in decision.actions
    again = decide(seen(checkpoint, request=request, ledger=behind(FoundLoad("", BatchNumber(5))), known=known))
    assert not any(isinstance(action, RecordLoads) for action in again.actions), "it is recorded"


def test_where_the_sink_cannot_say_it_the_stream_halts_until_a_reset_that_knows_of_it() -> None:
    doubt, request = FoundLoad("", BatchNumber(5)), asked(two_phases=True)
    checkpoint = logs(5, 5, at(40, 30), at(50, 45))
    first = decide(seen(checkpoint, request=request))
    assert "exactlyonce offsets reset" in halted(first)
    assert first.actions == (RecordLoads(doubt),)
    recorded = ledger(loads=KnownLoads(None, doubt))
    left_behind = replace(request, reset_offsets=reset_to(at(50, 45), ""))
    halted(decide(seen(checkpoint, request=left_behind, ledger=recorded)))
    halted(decide(seen(logs(), request=request, ledger=recorded)))  # whatever became of the logs since
    knows = replace(request, reset_offsets=reset_to(at(50, 45), "behind-5"))
    decision = decide(seen(checkpoint, request=knows, ledger=recorded))
    assert isinstance(decision.verdict, OffsetsReset)
    seed = decision.actions[0]
    assert isinstance(seed, SeedAndPublish)
    assert seed.settlement == Settlement(doubt, None, "jane")


def test_of_a_sink_in_the_ledgers_database_nothing_is_recorded() -> None:
    decision = decide(seen(logs(5, 5, at(40, 30), at(50, 45)), ledger=ledger(batches=(BEGUN_5, *ledger().batches))))
    assert isinstance(decision.verdict, RewindToSink)
    assert not any(isinstance(action, RecordLoads) for action in decision.actions)
