"""What is decided, or landed and perhaps not shown, is finished first, whatever the verdict: by a driver without a query."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.recovery import OnSourceTruncated
from exactlyonce.api.status import DriverStatus, StreamStatus
from exactlyonce.checkpoint.state import Absent
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended, Gone
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.rows import BatchStatus, DatabaseIdentity, LedgerView, Owner
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.finish_first import finish_without_a_look, finished_by, finishes, has_finished, was_tried
from exactlyonce.reconcile.observation import Known, Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    FinishCommit,
    FinishFirst,
    FirstStart,
    Launch,
    RecordAnswers,
    Resume,
    SourceReplaced,
    SourceTruncated,
    batch_of,
)
from tests.unit.decide.facts import DATABASE, ME, ONE, TOKEN, ZERO, asked, at, ledger, logs, seen, source
from tests.unit.decide.test_decided import DECIDED_4, FOUR, TOLD, decided_ledger

FINISH = Launch(DriverTask.FINISH_ONLY)
TWO_PHASES = asked(two_phases=True)
TRUNCATED = source({ZERO: (45, 100), ONE: (0, 100)})
REPLACED = source(origin_ids={"orders": "id-2"})
LATER = Owner("cluster-9", "uid-9")


def written_by(attempt: int | None, view: LedgerView | None = None, *, released: bool = False) -> LedgerView:
    """Return a ledger whose checkpoint a driver of that attempt wrote last."""
    view = view or ledger()
    writer = None if attempt is None else Epoch(attempt)
    return replace(view, stream=replace(view.stream, writer=writer, writer_released=released))


@pytest.mark.parametrize(
    ("facts", "then"),
    [
        pytest.param(
            seen(ledger=decided_ledger(), request=TWO_PHASES, source=TRUNCATED), SourceTruncated, id="records are gone"
        ),
        pytest.param(
            seen(ledger=decided_ledger(), request=TWO_PHASES, source=REPLACED),
            SourceReplaced,
            id="the source is another",
        ),
        pytest.param(
            seen(ledger=decided_ledger(), request=replace(TWO_PHASES, fresh=TOKEN), start=at(0, 0)),
            FirstStart,
            id="a person asks for a new start",
        ),
    ],
)
def test_a_decided_batch_is_finished_before_the_stream_halts_or_starts_over(facts: Observation, then: type) -> None:
    first = decide(facts)
    assert isinstance(first.verdict, FinishFirst)
    assert batch_of(first.verdict) == FOUR
    assert first.actions == (FINISH,)
    assert first.finishes
    assert not first.halts
    assert TOLD in first.verdict.evidence
    landed = replace(facts, ledger=decided_ledger(None, BatchStatus.LANDED))
    after = decide(landed)
    assert isinstance(after.verdict, then), "once it has landed, the stream is decided as ever"
    assert after.verdict.message.split("; ")[0] in first.verdict.message
    assert after.halts == (then is not FirstStart)


def test_a_stream_that_goes_on_needs_no_such_driver() -> None:
    going_on = decide(seen(logs(checkpointed=3), ledger=decided_ledger(), request=TWO_PHASES))
    assert isinstance(going_on.verdict, FinishCommit)
    without = asked(two_phases=True, on_source_truncated=OnSourceTruncated.RESUME_FROM_EARLIEST)
    truncated = decide(seen(ledger=decided_ledger(), request=without, source=TRUNCATED))
    assert isinstance(truncated.verdict, SourceTruncated)
    assert truncated.actions[-1] == Launch()


def test_answers_of_a_person_are_recorded_before_it_starts() -> None:
    facts = seen(
        ledger=decided_ledger(), request=replace(TWO_PHASES, settle_loads="label-a=Committed"), source=TRUNCATED
    )
    assert decide(facts).actions == (RecordAnswers(FOUR, {"label-a": Answer.COMMITTED}), FINISH)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param(
            seen(ledger=replace(decided_ledger(), stream=replace(ledger().stream, owner=LATER)), request=TWO_PHASES),
            ContradictionReason.OTHER_OWNER,
            id="the stream is another resource's",
        ),
        pytest.param(
            seen(ledger=decided_ledger(status=BatchStatus.LANDED), request=TWO_PHASES),
            ContradictionReason.LEDGER_INCONSISTENT,
            id="the ledger contradicts itself",
        ),
        pytest.param(
            seen(Absent(), ledger=decided_ledger(), request=TWO_PHASES, known=Known(FOUR + 2)),  # type: ignore[arg-type]
            ContradictionReason.LEDGER_BEHIND_SINK,
            id="the ledger went back, and the sink did not",
        ),
    ],
)
def test_nothing_is_finished_where_the_ledger_is_anothers_or_not_believed(
    facts: Observation, why: ContradictionReason
) -> None:
    decision = decide(facts)
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is why
    assert decision.halts


def test_a_sink_that_is_not_named_any_more_finishes_nothing() -> None:
    decision = decide(seen(ledger=decided_ledger(), source=TRUNCATED))
    assert isinstance(decision.verdict, SourceTruncated)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param(
            seen(
                ledger=replace(decided_ledger(), decided=replace(DECIDED_4, sink="t at h:1")),
                request=asked(fresh=TOKEN),
            ),
            "to be committed in t at h:1, and the resource no longer names that sink. Name it again",
            id="another sink",
        ),
        pytest.param(
            seen(
                ledger=decided_ledger(),
                request=replace(TWO_PHASES, fresh=TOKEN),
                database=DatabaseIdentity("another", 1),
            ),
            "is a copy of it. Annotate exactlyonce.dev/adopt in place of exactlyonce.dev/fresh",
            id="a copied ledger",
        ),
        pytest.param(
            seen(ledger=decided_ledger(status=BatchStatus.LANDED), request=replace(TWO_PHASES, fresh=TOKEN)),
            "the ledger contradicts itself: it names batch 4 as decided and its table of batches says Landed. Restore",
            id="a ledger that contradicts itself",
        ),
    ],
)
def test_a_new_start_is_refused_that_would_forget_what_no_driver_of_it_can_finish(
    facts: Observation, words: str
) -> None:
    decision = decide(replace(facts, start=at(0, 0)))
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is ContradictionReason.NEW_START_REFUSED
    assert decision.verdict.message.startswith("The stream cannot start over: batch 4 is decided")
    assert words in decision.verdict.message
    assert decision.halts


@pytest.mark.parametrize(
    ("view", "by", "is_left"),
    [
        pytest.param(written_by(5), None, True, id="its driver did not end by its own word"),
        pytest.param(written_by(None), None, True, id="a generation was published since"),
        pytest.param(written_by(5), 6, False, id="one without a query has shown it since"),
        pytest.param(written_by(None), 6, False, id="and no driver has claimed since"),
        pytest.param(written_by(7), 6, True, id="one with a query came after that"),
        pytest.param(written_by(5, released=True), None, False, id="its driver ended by its own word"),
    ],
)
def test_what_has_landed_and_may_not_be_shown_is_shown_before_the_stream_halts(
    view: LedgerView, by: int | None, is_left: bool
) -> None:
    request = asked(shows_landed=True, finished_by=by)
    decision = decide(seen(ledger=view, request=request, source=TRUNCATED))
    assert isinstance(decision.verdict, FinishFirst if is_left else SourceTruncated)
    assert isinstance(decide(seen(ledger=view, request=request)).verdict, Resume), (
        "a query shows it before its first batch"
    )
    if is_left:
        assert decision.verdict.message.startswith(
            "Readers may not be shown all that has landed, up to batch 4; a driver that runs no query finishes that first."
        )


def test_where_rows_land_with_the_ledger_nothing_is_left_to_show() -> None:
    assert isinstance(decide(seen(ledger=written_by(5), source=TRUNCATED)).verdict, SourceTruncated)


def test_by_the_ledger_alone_it_is_decided_for_the_very_stream_and_its_own_ledger() -> None:
    def decided(view: LedgerView | None, database: DatabaseIdentity = DATABASE, gone: bool = False) -> bool:
        decision = finish_without_a_look(view, database, TWO_PHASES, "It rests.", owner_is_gone=gone)
        assert decision is None or decision.verdict.message.endswith("It rests.")
        return decision is not None

    elsewhere = replace(decided_ledger(), stream=replace(ledger().stream, owner=LATER))
    recreated = replace(decided_ledger(), stream=replace(ledger().stream, owner=replace(ME, uid="former")))
    assert decided(decided_ledger())
    assert decided(recreated, gone=True)
    assert not decided(None)
    assert not decided(ledger())
    assert not decided(elsewhere)
    assert not decided(decided_ledger(), DatabaseIdentity("another", 1))
    assert not decided(decided_ledger(status=BatchStatus.LANDED))


def test_the_status_knows_the_latest_driver_without_a_query_and_whether_it_has_finished() -> None:
    query = DriverStatus(attempt=5, ended="Finished")
    running = DriverStatus(attempt=6, task=DriverTask.FINISH_ONLY)
    assert [finishes(None), finishes(query), finishes(running)] == [False, False, True]
    told = [StreamStatus(), *(StreamStatus(driver=it) for it in (query, running))]
    assert [finished_by(it) for it in told] == [None, None, None]
    assert finished_by(StreamStatus(driver=running.model_copy(update={"ended": "Finished"}))) == 6


def test_its_last_message_tells_it_from_others_and_an_error_says_that_finishing_was_tried() -> None:
    said = [LastMessage(ending, "so") for ending in Ending]
    told = [it.ending for it in said if has_finished(Ended("reaped", it, "it ended"))]
    assert told == [Ending.FINISHED]
    assert not has_finished(Ended("reaped", None, "killed"))
    assert not has_finished(Gone("its node is lost"))
    assert [was_tried(case) for case in (None, "ColumnsUnfit", "LoadsInDoubt")] == [False, False, True]
